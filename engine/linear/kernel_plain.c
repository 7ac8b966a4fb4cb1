// SPDX-License-Identifier: MIT
// The definition of the products: docs/linear.md in C.
#include "engine/linear/layout.h"

#include <math.h>
#include <string.h>

// The part of a record behind the codes of its planes.
typedef struct record_tail {
    float scale;
    float scaled_sum;
} record_tail;

static int32_t dot(const int8_t *weights, const unsigned char *codes, size_t first, size_t end)
{
    int32_t sum = 0;
    for (size_t i = first; i < end; i++)
        sum += weights[i] * (int8_t)codes[i];
    return sum;
}

// The exact integer product of inputs first to end - 1 of a unit, rounded to a float.
static float unit_dot(const linear_unit *unit, const unsigned char *record, linear_format format,
                      size_t first, size_t end)
{
    const int32_t high = dot(unit->code, record, first, end);
    if (format == LINEAR_FORMAT_INT8)
        return (float)high;
    const int32_t low = dot(unit->code, record + LINEAR_PLANE_BYTES, first, end);
    return (float)(LINEAR_PLANE_BASE * high + low);
}

// Adds a unit's part to the sum of one output of one token.
static float add_unit(uint32_t type, const linear_unit *unit, const unsigned char *record,
                      linear_format format, float sum)
{
    record_tail tail;
    memcpy(&tail, record + (format == LINEAR_FORMAT_INT8 ? 1 : 2) * LINEAR_PLANE_BYTES,
           sizeof tail);
    const size_t step = type == GGUF_TYPE_Q6_K ? 16 : 32; // inputs that share a scale
    for (size_t first = 0; first < LINEAR_UNIT; first += step) {
        const float product = unit_dot(unit, record, format, first, first + step);
        sum = fmaf(unit->scale[first / 16] * tail.scale, product, sum);
    }
    return unit->has_minimum ? fmaf(unit->minimum, tail.scaled_sum, sum) : sum;
}

static void quantized_sums(const linear_tile *tile, size_t row, float *sums)
{
    const size_t record_bytes = linear_record_bytes(tile->format);
    const unsigned char *record = tile->records;
    for (size_t unit = 0; unit < tile->cols / LINEAR_UNIT; unit++) {
        linear_unit values;
        linear_unpack(tile->type, tile->weights, unit, row, &values);
        for (size_t t = 0; t < tile->tokens; t++, record += record_bytes)
            sums[t] = add_unit(tile->type, &values, record, tile->format, sums[t]);
    }
}

static void float_sums(const linear_tile *tile, size_t row, float *sums)
{
    for (size_t col = 0; col < tile->cols; col++) {
        const float weight = linear_float_value(tile->type, tile->weights, col, row);
        const unsigned char *block =
            tile->records + col / LINEAR_UNIT * tile->tokens * LINEAR_RECORD_F32;
        for (size_t t = 0; t < tile->tokens; t++) {
            float x;
            memcpy(&x, block + t * LINEAR_RECORD_F32 + col % LINEAR_UNIT * sizeof x, sizeof x);
            sums[t] = fmaf(weight, x, sums[t]);
        }
    }
}

void linear_tile_plain(const linear_tile *tile)
{
    for (size_t row = 0; row < tile->rows; row++) {
        float sums[LINEAR_GROUP] = {0};
        if (tile->format == LINEAR_FORMAT_F32)
            float_sums(tile, row, sums);
        else
            quantized_sums(tile, row, sums);
        for (size_t t = 0; t < tile->tokens; t++) {
            float *y = tile->y + t * tile->y_stride + row;
            *y = tile->add ? *y + sums[t] : sums[t];
        }
    }
}
