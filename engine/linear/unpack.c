// SPDX-License-Identifier: MIT
// Reads tiles: for the plain kernel and for embeddings.
#include "engine/linear/layout.h"

#include "engine/little_endian.h"

#include <kvern/math.h>

static void halves(const unsigned char *from, float *to)
{
    uint16_t bits[LINEAR_ROWS];
    for (size_t row = 0; row < LINEAR_ROWS; row++)
        bits[row] = engine_load_u16(from + 2 * row);
    kvern_f16_to_f32_array(0, LINEAR_ROWS, bits, to);
}

static void k_scales(const unsigned char *header, size_t unit, linear_unit *out)
{
    const unsigned char *low = header + LINEAR_HEADER_LOW + LINEAR_BYTES * unit;
    const unsigned char *high = header + LINEAR_HEADER_HIGH + LINEAR_BYTES * (unit / 2);
    halves(header, out->scale[0]);
    halves(header + LINEAR_HALVES, out->minimum[0]);
    for (size_t row = 0; row < LINEAR_ROWS; row++) {
        const int bits = high[row] >> (unit % 2 * 4);
        const int scale = (low[row] & 15) | (bits & 3) << 4;
        const int minimum = low[row] >> 4 | (bits >> 2 & 3) << 4;
        out->scale[0][row] *= (float)scale;
        out->minimum[0][row] = -(out->minimum[0][row] * (float)minimum);
    }
}

static void signed_byte_scales(const unsigned char *header, linear_unit *out)
{
    float scale[LINEAR_ROWS];
    halves(header, scale);
    for (size_t half = 0; half < 2; half++)
        for (size_t row = 0; row < LINEAR_ROWS; row++)
            out->scale[half][row] =
                scale[row] * (float)(int8_t)out->bytes[LINEAR_BYTES * half + row];
}

static void minimum_of_zero(int zero, linear_unit *out)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t row = 0; row < LINEAR_ROWS; row++)
            out->minimum[half][row] = out->scale[half][row] * -(float)zero;
}

static void unit_scales(uint32_t type, int zero, const unsigned char *header, size_t index,
                        linear_unit *out)
{
    switch (type) {
    case GGUF_TYPE_Q6_K:
        signed_byte_scales(header, out);
        break;
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
        k_scales(header, index, out);
        memcpy(out->scale[1], out->scale[0], sizeof out->scale[0]);
        break;
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_1:
        halves(out->bytes + LINEAR_HALVES, out->minimum[0]); // and as the others
        // fallthrough
    default:
        halves(out->bytes, out->scale[0]);
        memcpy(out->scale[1], out->scale[0], sizeof out->scale[0]);
    }
    if (zero)
        minimum_of_zero(zero, out);
    else
        memcpy(out->minimum[1], out->minimum[0], sizeof out->minimum[0]);
}

void linear_unpack_scales(uint32_t type, const unsigned char *tile, size_t unit, linear_unit *out)
{
    const linear_layout layout = linear_layout_of(type);
    const size_t super_bytes = layout.header + (size_t)LINEAR_SUPER * layout.unit;
    const size_t index = layout.header ? unit % LINEAR_SUPER : unit;
    const unsigned char *header = tile + (unit - index) / LINEAR_SUPER * super_bytes;
    out->bytes = header + layout.header + index * layout.unit;
    unit_scales(type, layout.zero, header, index, out);
}

// The codes of four inputs, one in each byte.
static uint32_t stored_quad(uint32_t type, const linear_layout *layout, const unsigned char *unit,
                            size_t row, size_t quad)
{
    const unsigned char *codes = unit + layout->codes + 4 * row;
    if (type == GGUF_TYPE_Q8_0)
        return engine_load_u32(codes + LINEAR_QUAD * quad);
    const uint32_t pair = engine_load_u32(codes + LINEAR_QUAD * (quad % 4));
    const uint32_t low = pair >> (quad / 4 * 4) & 0x0f0f0f0f;
    const unsigned char *high = unit + layout->high_bits + 4 * row;
    switch (type) {
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q5_K:
        return low | (engine_load_u32(high) >> quad & 0x01010101) << 4;
    case GGUF_TYPE_Q6_K:
        high += LINEAR_QUAD * (quad / 4);
        return low | (engine_load_u32(high) >> (2 * (quad % 4)) & 0x03030303) << 4;
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

void linear_unpack_floats(uint32_t type, const unsigned char *tile, size_t col, float *out)
{
    if (type == GGUF_TYPE_F16) {
        halves(tile + 2 * LINEAR_ROWS * col, out);
        return;
    }
    for (size_t row = 0; row < LINEAR_ROWS; row++) {
        const size_t element = LINEAR_ROWS * col + row;
        const uint32_t bits = type == GGUF_TYPE_F32
                                  ? engine_load_u32(tile + 4 * element)
                                  : (uint32_t)engine_load_u16(tile + 2 * element) << 16;
        memcpy(&out[row], &bits, sizeof bits);
    }
}
