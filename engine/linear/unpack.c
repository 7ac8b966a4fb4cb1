// SPDX-License-Identifier: MIT
// Reads single rows of tiles: for the plain kernel and for embeddings.
#include "engine/linear/layout.h"

#include "engine/half.h"
#include "engine/little_endian.h"

static float half_at(const unsigned char *array, size_t row)
{
    return engine_f16_to_f32(engine_load_u16(array + 2 * row));
}

// The stored codes (not less their zero) of four inputs, one in each byte.
static uint32_t stored_quad(uint32_t type, const linear_layout *layout, const unsigned char *unit,
                            size_t row, size_t quad)
{
    const unsigned char *codes = unit + layout->codes + 4 * row;
    if (type == GGUF_TYPE_Q8_0)
        return engine_load_u32(codes + LINEAR_QUAD_BYTES * quad);
    const uint32_t pair = engine_load_u32(codes + LINEAR_QUAD_BYTES * (quad % 4));
    const uint32_t low = pair >> (quad / 4 * 4) & 0x0f0f0f0f;
    const unsigned char *high = unit + layout->high_bits + 4 * row;
    switch (type) {
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q5_K:
        return low | (engine_load_u32(high) >> quad & 0x01010101) << 4;
    case GGUF_TYPE_Q6_K:
        high += LINEAR_QUAD_BYTES * (quad / 4);
        return low | (engine_load_u32(high) >> (2 * (quad % 4)) & 0x03030303) << 4;
    default:
        return low;
    }
}

static void k_scales(const unsigned char *header, size_t unit, size_t row, linear_unit *out)
{
    const int low = header[LINEAR_HEADER_LOW + LINEAR_ROWS * unit + row];
    const int high = header[LINEAR_HEADER_HIGH + LINEAR_ROWS * (unit / 2) + row] >> (unit % 2 * 4);
    const int scale = (low & 15) | (high & 3) << 4;
    const int minimum = low >> 4 | (high >> 2 & 3) << 4;
    out->scale[0] = out->scale[1] = half_at(header, row) * (float)scale;
    out->minimum = -(half_at(header + 32, row) * (float)minimum);
}

static void unit_scales(uint32_t type, const unsigned char *header, size_t index_in_header,
                        const unsigned char *unit, size_t row, linear_unit *out)
{
    switch (type) {
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_1:
        out->has_minimum = true;
        out->scale[0] = out->scale[1] = half_at(unit, row);
        out->minimum = half_at(unit + 32, row);
        break;
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
        out->has_minimum = true;
        k_scales(header, index_in_header, row, out);
        break;
    case GGUF_TYPE_Q6_K:
        for (size_t half = 0; half < 2; half++) {
            const int8_t scale = (int8_t)unit[LINEAR_ROWS * half + row];
            out->scale[half] = half_at(header, row) * (float)scale;
        }
        break;
    default:
        out->scale[0] = out->scale[1] = half_at(unit, row);
    }
}

void linear_unpack(uint32_t type, const unsigned char *tile, size_t unit, size_t row,
                   linear_unit *out)
{
    const linear_layout layout = linear_layout_of(type);
    const size_t headers = layout.header_bytes ? unit / LINEAR_SUPER : 0;
    const size_t super_bytes = layout.header_bytes + (size_t)LINEAR_SUPER * layout.unit_bytes;
    const size_t index = layout.header_bytes ? unit % LINEAR_SUPER : unit;
    const unsigned char *header = tile + headers * super_bytes;
    const unsigned char *at = header + layout.header_bytes + index * layout.unit_bytes;
    *out = (linear_unit){0};
    unit_scales(type, header, index, at, row, out);
    for (size_t quad = 0; quad < LINEAR_QUADS; quad++) {
        const uint32_t word = stored_quad(type, &layout, at, row, quad);
        for (size_t i = 0; i < 4; i++)
            out->code[4 * quad + i] = (int8_t)((int)(word >> (8 * i) & 255) - layout.zero);
    }
}

float linear_float_value(uint32_t type, const unsigned char *tile, size_t col, size_t row)
{
    const size_t element = LINEAR_ROWS * col + row;
    switch (type) {
    case GGUF_TYPE_F32:
        return engine_load_f32(tile + 4 * element);
    case GGUF_TYPE_F16:
        return engine_f16_to_f32(engine_load_u16(tile + 2 * element));
    default:
        return engine_bf16_to_f32(engine_load_u16(tile + 2 * element));
    }
}
