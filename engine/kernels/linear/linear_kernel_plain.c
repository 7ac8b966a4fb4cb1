// SPDX-License-Identifier: MIT
// The definition of the products: docs/linear.md in C.
#include "engine/kernels/linear/linear_layout.h"

#include <math.h>
#include <string.h>

// The part of a record behind the codes of its planes.
typedef struct record_tail {
    float scale;
    float scaled_sum[3]; // of all codes, of the first and of the last 16
} record_tail;

static int32_t dot(const uint8_t *weights, const unsigned char *codes, size_t first, size_t end)
{
    int32_t sum = 0;
    for (size_t i = first; i < end; i++)
        sum += weights[i] * (int8_t)codes[i];
    return sum;
}

// The exact integer product of inputs first to end - 1 of a unit.
static int32_t product(const uint8_t *weights, const unsigned char *record, linear_format format,
                       size_t first, size_t end)
{
    const int32_t high = dot(weights, record, first, end);
    if (format == LINEAR_FORMAT_INT8)
        return high;
    return 256 * high + dot(weights, record + LINEAR_PLANE_BYTES, first, end);
}

// Adds a unit's part to the sum of one output of one token.
static float add_unit(const linear_tile *tile, const linear_unit *unit, size_t row,
                      const uint8_t *weights, const unsigned char *record, float sum)
{
    const size_t planes = tile->format == LINEAR_FORMAT_INT8 ? 1 : 2;
    const size_t parts = linear_layout_of(tile->type).scales;
    const size_t inputs = LINEAR_UNIT / parts;
    record_tail tail;
    memcpy(&tail, record + planes * LINEAR_PLANE_BYTES, sizeof tail);
    for (size_t part = 0; part < parts; part++) {
        const int32_t whole =
            product(weights, record, tile->format, part * inputs, (part + 1) * inputs);
        sum = fmaf(unit->scale[part][row] * tail.scale, (float)whole, sum);
        sum = fmaf(unit->minimum[part][row], tail.scaled_sum[parts == 1 ? 0 : 1 + part], sum);
    }
    return sum;
}

typedef float sums_of_group[LINEAR_ROWS][LINEAR_GROUP];

static void quantized_sums(const linear_tile *tile, sums_of_group sums)
{
    const size_t record_bytes = linear_record_bytes(tile->format);
    const unsigned char *records = tile->records;
    for (size_t u = 0; u < tile->cols / LINEAR_UNIT; u++) {
        linear_unit unit;
        linear_unpack_scales(tile->type, tile->scale_type, tile->group, tile->weights, u, &unit);
        for (size_t row = 0; row < tile->rows; row++) {
            uint8_t weights[LINEAR_UNIT];
            linear_unpack_codes(tile->type, &unit, row, weights);
            for (size_t t = 0; t < tile->tokens; t++)
                sums[row][t] =
                    add_unit(tile, &unit, row, weights, records + t * record_bytes, sums[row][t]);
        }
        records += tile->tokens * record_bytes;
    }
}

static float value_at(const linear_tile *tile, size_t col, size_t t)
{
    const size_t record = col / LINEAR_UNIT * tile->tokens + t;
    float x;
    memcpy(&x, tile->records + record * LINEAR_RECORD_F32 + col % LINEAR_UNIT * sizeof x, sizeof x);
    return x;
}

static void float_sums(const linear_tile *tile, sums_of_group sums)
{
    for (size_t col = 0; col < tile->cols; col++) {
        float weights[LINEAR_ROWS];
        linear_unpack_floats(tile->type, tile->weights, col, weights);
        for (size_t t = 0; t < tile->tokens; t++) {
            const float x = value_at(tile, col, t);
            for (size_t row = 0; row < tile->rows; row++)
                sums[row][t] = fmaf(weights[row], x, sums[row][t]);
        }
    }
}

void linear_tile_plain(const linear_tile *tile)
{
    sums_of_group sums = {{0}};
    if (tile->format == LINEAR_FORMAT_F32)
        float_sums(tile, sums);
    else
        quantized_sums(tile, sums);
    for (size_t t = 0; t < tile->tokens; t++)
        for (size_t row = 0; row < tile->rows; row++) {
            float *y = tile->y + t * tile->y_stride + row;
            *y = tile->add ? *y + sums[row][t] : sums[row][t];
        }
}
