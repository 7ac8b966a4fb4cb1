// SPDX-License-Identifier: MIT
// Reads tiles: for the plain kernel and for embeddings.
#include "engine/kernels/linear/linear_layout.h"

#include "engine/base/little_endian.h"

#include <kvern/math.h>

static void halves(const unsigned char *from, float *to)
{
    uint16_t bits[LINEAR_ROWS];
    for (size_t row = 0; row < LINEAR_ROWS; row++)
        bits[row] = engine_load_u16(from + 2 * row);
    kvern_f16_to_f32_array(0, LINEAR_ROWS, bits, to);
}

// The pair of six-bit numbers of each row of a unit.
static void unpack_pairs(const unsigned char *pairs, size_t unit, int first[LINEAR_ROWS],
                         int second[LINEAR_ROWS])
{
    const unsigned char *low = pairs + LINEAR_BYTES * unit;
    const unsigned char *high = pairs + LINEAR_PAIRS_HIGH + LINEAR_BYTES * (unit / 2);
    for (size_t row = 0; row < LINEAR_ROWS; row++) {
        const int bits = high[row] >> (unit % 2 * 4);
        first[row] = (low[row] & 15) | (bits & 3) << 4;
        second[row] = low[row] >> 4 | (bits >> 2 & 3) << 4;
    }
}

// Q4_K, Q5_K: pairs of scale and minimum.
static void paired_scales(const unsigned char *header, size_t pairs, size_t unit, linear_unit *out)
{
    int scale[LINEAR_ROWS], minimum[LINEAR_ROWS];
    unpack_pairs(header + pairs, unit, scale, minimum);
    halves(header, out->scale[0]);
    halves(header + LINEAR_HALVES, out->minimum[0]);
    for (size_t row = 0; row < LINEAR_ROWS; row++) {
        out->scale[0][row] *= (float)scale[row];
        out->minimum[0][row] = -(out->minimum[0][row] * (float)minimum[row]);
    }
}

// Q3_K: pairs of scales, whose code 32 is zero.
static void half_pair_scales(const unsigned char *header, size_t pairs, size_t unit,
                             linear_unit *out)
{
    int scale[2][LINEAR_ROWS];
    unpack_pairs(header + pairs, unit, scale[0], scale[1]);
    halves(header, out->scale[0]);
    for (size_t row = 0; row < LINEAR_ROWS; row++) {
        const float whole = out->scale[0][row];
        out->scale[0][row] = whole * (float)(scale[0][row] - 32);
        out->scale[1][row] = whole * (float)(scale[1][row] - 32);
    }
}

// Q2_K: bytes of scale and minimum, four bits each.
static void half_byte_scales(const unsigned char *header, linear_unit *out)
{
    float scale[LINEAR_ROWS], minimum[LINEAR_ROWS];
    halves(header, scale);
    halves(header + LINEAR_HALVES, minimum);
    for (size_t half = 0; half < 2; half++)
        for (size_t row = 0; row < LINEAR_ROWS; row++) {
            const unsigned char byte = out->bytes[LINEAR_BYTES * half + row];
            out->scale[half][row] = scale[row] * (float)(byte & 15);
            out->minimum[half][row] = -(minimum[row] * (float)(byte >> 4));
        }
}

// Q6_K: signed bytes.
static void signed_byte_scales(const unsigned char *header, linear_unit *out)
{
    float scale[LINEAR_ROWS];
    halves(header, scale);
    for (size_t half = 0; half < 2; half++)
        for (size_t row = 0; row < LINEAR_ROWS; row++)
            out->scale[half][row] =
                scale[row] * (float)(int8_t)out->bytes[LINEAR_BYTES * half + row];
}

// MXFP4: powers of two.
static void exponent_scales(linear_unit *out)
{
    for (size_t row = 0; row < LINEAR_ROWS; row++)
        out->scale[0][row] = mxfp4_half_scale(out->bytes[row]);
}

static void minimum_of_zero(int zero, linear_unit *out)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t row = 0; row < LINEAR_ROWS; row++)
            out->minimum[half][row] = out->scale[half][row] * -(float)zero;
}

// Affine types: arrays of scales and biases.
static void group_scales(uint32_t scale_type, const unsigned char *header, linear_unit *out)
{
    const unsigned char *biases = header + linear_scale_array(scale_type);
    linear_unpack_floats(scale_type, header, 0, out->scale[0]);
    linear_unpack_floats(scale_type, biases, 0, out->minimum[0]);
}

// What a type stores itself: one or two scales, and one or two minimums or none.
static void stored_scales(uint32_t type, const linear_layout *layout, const unsigned char *header,
                          size_t index, linear_unit *out)
{
    switch (type) {
    case ELEMENT_Q2_K:
        half_byte_scales(header, out);
        break;
    case ELEMENT_Q3_K:
        half_pair_scales(header, layout->pairs, index, out);
        break;
    case ELEMENT_Q4_K:
    case ELEMENT_Q5_K:
        paired_scales(header, layout->pairs, index, out);
        break;
    case ELEMENT_Q6_K:
        signed_byte_scales(header, out);
        break;
    case ELEMENT_MXFP4:
        exponent_scales(out);
        break;
    case ELEMENT_Q4_1:
    case ELEMENT_Q5_1:
        halves(out->bytes + LINEAR_HALVES, out->minimum[0]); // and as the others
        // fallthrough
    default:
        halves(out->bytes, out->scale[0]);
    }
}

void linear_unpack_scales(uint32_t type, uint32_t scale_type, uint32_t group,
                          const unsigned char *tile, size_t unit, linear_unit *out)
{
    const linear_layout layout = linear_layout_of(type);
    const linear_headers headers = linear_headers_of(type, scale_type, group);
    const size_t super_bytes = headers.bytes + headers.units * layout.unit;
    const size_t index = headers.bytes ? unit % headers.units : unit;
    const unsigned char *header = tile + (unit - index) / headers.units * super_bytes;
    out->bytes = header + headers.bytes + index * layout.unit;
    if (linear_is_affine(type))
        group_scales(scale_type, header, out);
    else
        stored_scales(type, &layout, header, index, out);
    if (layout.scales == 1)
        memcpy(out->scale[1], out->scale[0], sizeof out->scale[0]);
    if (layout.zero)
        minimum_of_zero(layout.zero, out);
    else if (layout.scales == 1)
        memcpy(out->minimum[1], out->minimum[0], sizeof out->minimum[0]);
}

// Two bits of each byte, from two arrays for quads 0 to 3 and 4 to 7.
static uint32_t bit_pairs(const unsigned char *arrays, size_t quad)
{
    return engine_load_u32(arrays + LINEAR_QUAD * (quad / 4)) >> (2 * (quad % 4)) & 0x03030303;
}

const uint8_t linear_mxfp4_codes[16] = MXFP4_CODES;

static uint32_t mxfp4_quad(uint32_t codes)
{
    uint32_t word = 0;
    for (int shift = 0; shift < 32; shift += 8)
        word |= (uint32_t)linear_mxfp4_codes[codes >> shift & 15] << shift;
    return word;
}

// The codes of four inputs, one in each byte.
static uint32_t stored_quad(uint32_t type, const linear_layout *layout, const unsigned char *unit,
                            size_t row, size_t quad)
{
    const unsigned char *codes = unit + layout->codes + 4 * row;
    const unsigned char *high = unit + layout->high_bits + 4 * row;
    if (type == ELEMENT_Q8_0 || type == ELEMENT_AFFINE_8)
        return engine_load_u32(codes + LINEAR_QUAD * quad);
    if (type == ELEMENT_Q2_K || type == ELEMENT_AFFINE_2)
        return bit_pairs(codes, quad);
    if (type == ELEMENT_Q3_K || type == ELEMENT_AFFINE_3)
        return bit_pairs(codes, quad) | (engine_load_u32(high) >> quad & 0x01010101) << 2;
    const uint32_t pair = engine_load_u32(codes + LINEAR_QUAD * (quad % 4));
    const uint32_t low = pair >> (quad / 4 * 4) & 0x0f0f0f0f;
    switch (type) {
    case ELEMENT_Q5_0:
    case ELEMENT_Q5_1:
    case ELEMENT_Q5_K:
    case ELEMENT_AFFINE_5:
        return low | (engine_load_u32(high) >> quad & 0x01010101) << 4;
    case ELEMENT_Q6_K:
    case ELEMENT_AFFINE_6:
        return low | bit_pairs(high, quad) << 4;
    case ELEMENT_MXFP4:
        return mxfp4_quad(low);
    default:
        return low;
    }
}

void linear_unpack_codes(uint32_t type, const linear_unit *unit, size_t row, uint8_t *codes)
{
    const linear_layout layout = linear_layout_of(type);
    for (size_t quad = 0; quad < LINEAR_QUADS; quad++) {
        const uint32_t word = stored_quad(type, &layout, unit->bytes, row, quad);
        for (size_t i = 0; i < 4; i++)
            codes[4 * quad + i] = (uint8_t)(word >> (8 * i));
    }
}

float linear_unpack_float(uint32_t type, const unsigned char *tile, size_t col, size_t row)
{
    const size_t element = LINEAR_ROWS * col + row;
    float value;
    if (type == ELEMENT_F32)
        return engine_load_f32(tile + 4 * element);
    const uint16_t half = engine_load_u16(tile + 2 * element);
    if (type == ELEMENT_F16) {
        kvern_f16_to_f32_array(0, 1, &half, &value);
    } else {
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
    }
    return value;
}

void linear_unpack_floats(uint32_t type, const unsigned char *tile, size_t col, float *out)
{
    if (type == ELEMENT_F16) {
        halves(tile + 2 * LINEAR_ROWS * col, out);
        return;
    }
    for (size_t row = 0; row < LINEAR_ROWS; row++)
        out[row] = linear_unpack_float(type, tile, col, row);
}
