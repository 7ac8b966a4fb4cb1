// SPDX-License-Identifier: MIT
// Repacks blocks of the file into tiles. Each function moves the blocks of one row;
// 32-bit words are quads, so that a loop over words is a loop over four inputs at a time.
#include "engine/kernels/linear/linear_layout.h"

#include "engine/base/little_endian.h"

#include <string.h>

// One row's share of a unit (or of a header): where its bytes go.
typedef struct place {
    unsigned char *at; // of the unit
    size_t row;        // in the tile
} place;

static void store_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static void put_half(place to, size_t offset, const unsigned char *half)
{
    memcpy(to.at + offset + 2 * to.row, half, 2);
}

static void put_quad(place to, size_t offset, size_t quad, uint32_t word)
{
    store_u32(to.at + offset + LINEAR_QUAD * quad + 4 * to.row, word);
}

// Four-bit codes that the file already pairs as we do: input i with input i + 16.
static void put_paired_codes(place to, size_t offset, const unsigned char *codes)
{
    for (size_t quad = 0; quad < 4; quad++)
        put_quad(to, offset, quad, engine_load_u32(codes + 4 * quad));
}

// Four-bit codes of inputs 0 to 31 in the low (shift 0) or high (shift 4) halves of 32 bytes.
static void put_nibbles(place to, size_t offset, const unsigned char *codes, int shift)
{
    for (size_t quad = 0; quad < 4; quad++) {
        const uint32_t low = engine_load_u32(codes + 4 * quad) >> shift & 0x0f0f0f0f;
        const uint32_t high = engine_load_u32(codes + 4 * quad + 16) >> shift & 0x0f0f0f0f;
        put_quad(to, offset, quad, low | high << 4);
    }
}

// Bits 0, 4, 8 ... 28 of a word as one byte.
static uint32_t every_fourth_bit(uint32_t word)
{
    word &= 0x11111111;
    word = (word | word >> 3) & 0x03030303;
    word = (word | word >> 6) & 0x000f000f;
    return (word | word >> 12) & 0xff;
}

// Fifth bits of a block of 32: bit i of the word belongs to input i.
static void put_fifth_bits(place to, size_t offset, uint32_t bits)
{
    uint32_t word = 0;
    for (int byte = 0; byte < 4; byte++)
        word |= every_fourth_bit(bits >> byte) << (8 * byte);
    put_quad(to, offset, 0, word);
}

// scale, codes[16]
static void pack_q4_0(const unsigned char *in, place to)
{
    put_half(to, 0, in);
    put_paired_codes(to, LINEAR_HALVES, in + 2);
}

// scale, minimum, codes[16]
static void pack_q4_1(const unsigned char *in, place to)
{
    put_half(to, 0, in);
    put_half(to, LINEAR_HALVES, in + 2);
    put_paired_codes(to, 2 * LINEAR_HALVES, in + 4);
}

// scale, fifth bits, codes[16]
static void pack_q5_0(const unsigned char *in, place to)
{
    put_half(to, 0, in);
    put_fifth_bits(to, LINEAR_HALVES, engine_load_u32(in + 2));
    put_paired_codes(to, LINEAR_HALVES + LINEAR_QUAD, in + 6);
}

// scale, minimum, fifth bits, codes[16]
static void pack_q5_1(const unsigned char *in, place to)
{
    put_half(to, 0, in);
    put_half(to, LINEAR_HALVES, in + 2);
    put_fifth_bits(to, 2 * LINEAR_HALVES, engine_load_u32(in + 4));
    put_paired_codes(to, 2 * LINEAR_HALVES + LINEAR_QUAD, in + 8);
}

// scale, signed codes[32]
static void pack_q8_0(const unsigned char *in, place to)
{
    put_half(to, 0, in);
    for (size_t quad = 0; quad < LINEAR_QUADS; quad++)
        put_quad(to, LINEAR_HALVES, quad, engine_load_u32(in + 2 + 4 * quad) ^ 0x80808080);
}

// The six-bit scale and minimum of unit 0 to 7 of a Q4_K or Q5_K block. Of the 12 bytes, four hold
// scales 0 to 3, four minimums 0 to 3, and four the low halves of the others, whose high two bits
// fill up the first eight bytes.
static void six_bit_pair(const unsigned char *packed, unsigned unit, unsigned *scale,
                         unsigned *minimum)
{
    if (unit < 4) {
        *scale = packed[unit] & 0x3f;
        *minimum = packed[unit + 4] & 0x3f;
    } else {
        *scale = (packed[unit + 4] & 0xf) | packed[unit - 4] >> 6 << 4;
        *minimum = packed[unit + 4] >> 4 | packed[unit] >> 6 << 4;
    }
}

static void put_pair(place to, size_t pairs, size_t unit, unsigned first, unsigned second)
{
    unsigned char *low = to.at + pairs + LINEAR_BYTES * unit + to.row;
    unsigned char *high = to.at + pairs + LINEAR_PAIRS_HIGH + LINEAR_BYTES * (unit / 2) + to.row;
    *low = (unsigned char)((first & 15) | (second & 15) << 4);
    *high |= (unsigned char)((first >> 4 | second >> 4 << 2) << (unit % 2 * 4));
}

// scale, minimum scale, packed pairs[12]. Returns the header's size.
static size_t pack_k_header(const unsigned char *in, place to)
{
    const size_t pairs = 2 * LINEAR_HALVES;
    put_half(to, 0, in);
    put_half(to, LINEAR_HALVES, in + 2);
    for (unsigned unit = 0; unit < LINEAR_SUPER; unit++) {
        unsigned scale, minimum;
        six_bit_pair(in + 4, unit, &scale, &minimum);
        put_pair(to, pairs, unit, scale, minimum);
    }
    return pairs + LINEAR_PAIRS_BYTES;
}

// Header, codes[128]: 32 bytes hold one unit in their low halves and the next in their high ones.
static void pack_q4_k(const unsigned char *in, place to)
{
    to.at += pack_k_header(in, to);
    for (int unit = 0; unit < LINEAR_SUPER; unit++, to.at += 4 * LINEAR_QUAD)
        put_nibbles(to, 0, in + 16 + unit / 2 * 32, unit % 2 * 4);
}

// One bit per input of a block of 256, in 32 bytes: bit u of byte i belongs to input i of unit u.
static void put_unit_bits(place to, size_t offset, const unsigned char *bits, int unit)
{
    uint32_t word = 0;
    for (int quad = 0; quad < LINEAR_QUADS; quad++)
        word |= (engine_load_u32(bits + 4 * quad) >> unit & 0x01010101) << quad;
    put_quad(to, offset, 0, word);
}

// Header, fifth bits[32], codes[128].
static void pack_q5_k(const unsigned char *in, place to)
{
    to.at += pack_k_header(in, to);
    for (int unit = 0; unit < LINEAR_SUPER; unit++, to.at += 5 * LINEAR_QUAD) {
        put_unit_bits(to, 0, in + 16, unit);
        put_nibbles(to, LINEAR_QUAD, in + 48 + unit / 2 * 32, unit % 2 * 4);
    }
}

// Bit pairs of a unit: bits `shift` and `shift` + 1 of byte i belong to input i.
static void put_bit_pairs(place to, size_t offset, const unsigned char *pairs, int shift)
{
    for (size_t plane = 0; plane < 2; plane++) {
        uint32_t word = 0;
        for (size_t quad = 0; quad < 4; quad++) {
            const uint32_t source = engine_load_u32(pairs + 16 * plane + 4 * quad);
            word |= (source >> shift & 0x03030303) << (2 * quad);
        }
        put_quad(to, offset, plane, word);
    }
}

// scales and minimums[16], codes[64], scale, minimum scale. Each half of 128 inputs takes 32 bytes
// of codes, each of its four units two bits of every byte.
static void pack_q2_k(const unsigned char *in, place to)
{
    put_half(to, 0, in + 80);
    put_half(to, LINEAR_HALVES, in + 82);
    to.at += 2 * LINEAR_HALVES;
    const size_t unit_bytes = 2 * LINEAR_BYTES + 2 * LINEAR_QUAD;
    for (int unit = 0; unit < LINEAR_SUPER; unit++, to.at += unit_bytes) {
        to.at[to.row] = in[2 * unit];
        to.at[LINEAR_BYTES + to.row] = in[2 * unit + 1];
        put_bit_pairs(to, 2 * LINEAR_BYTES, in + 16 + unit / 4 * 32, unit % 4 * 2);
    }
}

// The scale of half-unit 0 to 15 of a Q3_K block, six bits. Of the 12 bytes, eight hold the low
// halves, and byte 8 + h % 4 the high two bits of half-units h, h + 4, h + 8 and h + 12.
static unsigned q3_k_scale(const unsigned char *packed, unsigned half)
{
    const unsigned low = packed[half % 8] >> (half / 8 * 4) & 15;
    return low | (packed[8 + half % 4] >> (half / 4 * 2) & 3u) << 4;
}

// third bits[32], low codes[64], packed scales[12], scale. The low codes lie as Q2_K's codes do.
static void pack_q3_k(const unsigned char *in, place to)
{
    put_half(to, 0, in + 108);
    for (unsigned unit = 0; unit < LINEAR_SUPER; unit++)
        put_pair(to, LINEAR_HALVES, unit, q3_k_scale(in + 96, 2 * unit),
                 q3_k_scale(in + 96, 2 * unit + 1));
    to.at += LINEAR_HALVES + LINEAR_PAIRS_BYTES;
    for (int unit = 0; unit < LINEAR_SUPER; unit++, to.at += 3 * LINEAR_QUAD) {
        put_unit_bits(to, 0, in, unit);
        put_bit_pairs(to, LINEAR_QUAD, in + 32 + unit / 4 * 32, unit % 4 * 2);
    }
}

// low codes[128], bit pairs[64], signed scales[16], scale. Each half of 128 inputs takes 64 bytes
// of low codes and 32 of bit pairs; of its four units, odd ones are in the second 32 bytes of low
// codes, the last two in the high halves.
static void pack_q6_k(const unsigned char *in, place to)
{
    put_half(to, 0, in + 208);
    to.at += LINEAR_HALVES;
    const size_t unit_bytes = 2 * LINEAR_BYTES + 6 * LINEAR_QUAD;
    for (int unit = 0; unit < LINEAR_SUPER; unit++, to.at += unit_bytes) {
        const int half = unit / 4, quarter = unit % 4;
        to.at[to.row] = in[192 + 2 * unit];
        to.at[LINEAR_BYTES + to.row] = in[192 + 2 * unit + 1];
        put_bit_pairs(to, 2 * LINEAR_BYTES, in + 128 + half * 32, 2 * quarter);
        put_nibbles(to, 2 * LINEAR_BYTES + 2 * LINEAR_QUAD, in + half * 64 + quarter % 2 * 32,
                    quarter / 2 * 4);
    }
}

// exponent, codes[16]
static void pack_mxfp4(const unsigned char *in, place to)
{
    to.at[to.row] = in[0];
    put_paired_codes(to, LINEAR_BYTES, in + 1);
}

typedef void pack_block(const unsigned char *in, place to);

static pack_block *packer_of(uint32_t type)
{
    switch (type) {
    case ELEMENT_Q4_0:
        return pack_q4_0;
    case ELEMENT_Q4_1:
        return pack_q4_1;
    case ELEMENT_Q5_0:
        return pack_q5_0;
    case ELEMENT_Q5_1:
        return pack_q5_1;
    case ELEMENT_Q8_0:
        return pack_q8_0;
    case ELEMENT_Q2_K:
        return pack_q2_k;
    case ELEMENT_Q3_K:
        return pack_q3_k;
    case ELEMENT_Q4_K:
        return pack_q4_k;
    case ELEMENT_Q5_K:
        return pack_q5_k;
    case ELEMENT_MXFP4:
        return pack_mxfp4;
    default:
        return pack_q6_k;
    }
}

static void pack_floats(const linear_layout *layout, const unsigned char *const *rows,
                        size_t row_count, size_t cols, unsigned char *tile)
{
    const size_t element = layout->source_bytes;
    for (size_t row = 0; row < row_count; row++)
        for (size_t col = 0; col < cols; col++)
            memcpy(tile + (LINEAR_ROWS * col + row) * element, rows[row] + col * element, element);
}

void linear_pack_tile(uint32_t type, const unsigned char *const *rows, size_t row_count,
                      size_t cols, unsigned char *tile)
{
    const linear_layout layout = linear_layout_of(type);
    if (layout.source_inputs == 1) {
        pack_floats(&layout, rows, row_count, cols, tile);
        return;
    }
    pack_block *const pack = packer_of(type);
    const size_t blocks = cols / layout.source_inputs;
    const size_t block_bytes = (size_t)layout.source_bytes * LINEAR_ROWS;
    for (size_t block = 0; block < blocks; block++)
        for (size_t row = 0; row < row_count; row++)
            pack(rows[row] + block * layout.source_bytes, (place){tile + block * block_bytes, row});
}
