// SPDX-License-Identifier: MIT
// Repacks codes whose rows are streams of bits, with scales and biases apart from them.
#include "engine/kernels/linear/linear_layout.h"

#include <string.h>

// One row's share of a unit: where its bytes go.
typedef struct place {
    unsigned char *at; // of the unit
    size_t row;        // in the tile
} place;

// The next 32 codes of a stream, which begin at a whole byte.
static void read_codes(const unsigned char *stream, unsigned bits, uint8_t codes[LINEAR_UNIT])
{
    for (unsigned i = 0; i < LINEAR_UNIT; i++) {
        const unsigned bit = i * bits, byte = bit / 8, shift = bit % 8;
        const unsigned more = shift + bits > 8 ? (unsigned)stream[byte + 1] << 8 : 0;
        codes[i] = (uint8_t)((stream[byte] | more) >> shift & ((1u << bits) - 1));
    }
}

static unsigned char *quad_at(place to, size_t offset, size_t quad)
{
    return to.at + offset + LINEAR_QUAD * quad + 4 * to.row;
}

// The low four bits of all codes: quad q in the low halves, q + 4 in the high ones.
static void put_nibbles(place to, size_t offset, const uint8_t *codes)
{
    for (size_t i = 0; i < LINEAR_UNIT / 2; i++)
        quad_at(to, offset, i / 4)[i % 4] =
            (unsigned char)((codes[i] & 15) | (codes[i + LINEAR_UNIT / 2] & 15) << 4);
}

// Two bits of each code from bit `from` on: two arrays of four quads.
static void put_pairs(place to, size_t offset, const uint8_t *codes, unsigned from)
{
    for (size_t i = 0; i < LINEAR_UNIT; i++) {
        const size_t quad = i / 4;
        quad_at(to, offset, quad / 4)[i % 4] |=
            (unsigned char)((codes[i] >> from & 3) << (2 * (quad % 4)));
    }
}

// One bit of each code: bit q of each byte belongs to quad q.
static void put_bits(place to, const uint8_t *codes, unsigned from)
{
    for (size_t i = 0; i < LINEAR_UNIT; i++)
        quad_at(to, 0, 0)[i % 4] |= (unsigned char)((codes[i] >> from & 1) << (i / 4));
}

static void put_codes(place to, const linear_layout *layout, unsigned bits, const uint8_t *codes)
{
    switch (bits) {
    case 2:
        put_pairs(to, layout->codes, codes, 0);
        break;
    case 3:
        put_bits(to, codes, 2);
        put_pairs(to, layout->codes, codes, 0);
        break;
    case 5:
        put_bits(to, codes, 4);
        put_nibbles(to, layout->codes, codes);
        break;
    case 6:
        put_pairs(to, 0, codes, 4);
        put_nibbles(to, layout->codes, codes);
        break;
    case 8:
        for (size_t quad = 0; quad < LINEAR_QUADS; quad++)
            memcpy(quad_at(to, layout->codes, quad), codes + 4 * quad, 4);
        break;
    default:
        put_nibbles(to, layout->codes, codes);
    }
}

static void put_scales(const weights_groups *groups, size_t index, place header)
{
    const size_t array = linear_scale_array(groups->type), bytes = array / LINEAR_ROWS;
    const unsigned char *scales = groups->scales, *biases = groups->biases;
    memcpy(header.at + bytes * header.row, scales + bytes * index, bytes);
    memcpy(header.at + array + bytes * header.row, biases + bytes * index, bytes);
}

// MXFP4: a unit is a group.
static void pack_mxfp4_row(const linear_source *source, size_t row, place to)
{
    const size_t units = source->cols / LINEAR_UNIT, unit_bytes = LINEAR_UNIT / 2;
    const unsigned char *stream = (const unsigned char *)source->data + row * units * unit_bytes;
    const unsigned char *exponents = (const unsigned char *)source->groups.scales + row * units;
    uint8_t codes[LINEAR_UNIT];
    for (size_t unit = 0; unit < units; unit++, to.at += linear_layout_of(source->type).unit) {
        to.at[to.row] = exponents[unit];
        read_codes(stream + unit * unit_bytes, 4, codes);
        put_nibbles(to, LINEAR_BYTES, codes);
    }
}

static void pack_row(const linear_source *source, size_t row, place to)
{
    const linear_layout layout = linear_layout_of(source->type);
    const weights_groups *groups = &source->groups;
    const linear_headers headers = linear_headers_of(source->type, groups->type, groups->inputs);
    const size_t units = source->cols / LINEAR_UNIT, group_count = source->cols / groups->inputs;
    const unsigned char *stream =
        (const unsigned char *)source->data + row * (source->bytes / source->rows);
    uint8_t codes[LINEAR_UNIT];
    for (size_t unit = 0; unit < units; unit++) {
        if (unit % headers.units == 0) {
            put_scales(groups, row * group_count + unit / headers.units, to);
            to.at += headers.bytes;
        }
        read_codes(stream + unit * layout.source_bytes, layout.source_bytes / 4, codes);
        put_codes(to, &layout, layout.source_bytes / 4, codes);
        to.at += layout.unit;
    }
}

void linear_pack_grouped_tile(const linear_source *source, const size_t *source_rows,
                              size_t row_count, unsigned char *tile)
{
    for (size_t i = 0; i < row_count; i++)
        (source->type == ELEMENT_MXFP4 ? pack_mxfp4_row : pack_row)(source, source_rows[i],
                                                                    (place){tile, i});
}
