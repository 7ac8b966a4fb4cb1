// SPDX-License-Identifier: MIT
// Activations: their memory, and the definition of their rounding.
#include "engine/base/instruction_sets.h"
#include "engine/kernels/linear/linear_layout.h"

#include <kvern/cpu.h>
#include <math.h>
#include <string.h>

static bool format_bytes(size_t cols, size_t tokens, linear_format format, size_t *bytes)
{
    const size_t record = linear_record_bytes(format);
    return !__builtin_mul_overflow(linear_units(cols), record, bytes) &&
           !__builtin_mul_overflow(*bytes, tokens, bytes) &&
           !__builtin_add_overflow(*bytes, LINEAR_ALIGNMENT - 1, bytes) &&
           (*bytes = *bytes / LINEAR_ALIGNMENT * LINEAR_ALIGNMENT, true);
}

kvern_status linear_input_bytes(size_t cols, size_t tokens, uint32_t formats, size_t *bytes)
{
    size_t total = 0;
    for (int format = 0; format < LINEAR_FORMATS; format++) {
        size_t one;
        if (!(formats & LINEAR_FORMAT_BIT(format)))
            continue;
        if (!format_bytes(cols, tokens, (linear_format)format, &one) ||
            __builtin_add_overflow(total, one, &total))
            return KVERN_ERR_OVERFLOW;
    }
    *bytes = total;
    return KVERN_OK;
}

void linear_input_init(linear_input *input, void *memory, size_t cols, size_t tokens,
                       uint32_t formats, uint32_t features)
{
    unsigned char *next = memory;
    *input = (linear_input){.cols = cols, .tokens = tokens, .round = linear_round_plain};
#ifdef ENGINE_HAS_AVX2
    if (features & KVERN_CPU_AVX2)
        input->round = linear_round_avx2;
#else
    (void)features;
#endif
    for (int format = 0; format < LINEAR_FORMATS; format++) {
        size_t bytes;
        if (!(formats & LINEAR_FORMAT_BIT(format)))
            continue;
        if (!format_bytes(cols, tokens, (linear_format)format, &bytes))
            continue; // linear_input_bytes has refused it
        input->records[format] = next;
        next += bytes;
    }
}

void linear_input_row(const linear_input *input, size_t token, const float *x)
{
    const size_t first = token / LINEAR_GROUP * LINEAR_GROUP;
    const size_t left = input->tokens - first;
    const size_t group = left < LINEAR_GROUP ? left : LINEAR_GROUP;
    for (int format = 0; format < LINEAR_FORMATS; format++) {
        if (!input->records[format])
            continue;
        const size_t record = linear_record_bytes((linear_format)format);
        unsigned char *records =
            input->records[format] + record * (first * linear_units(input->cols) + token - first);
        input->round(x, input->cols, (linear_format)format, records, record * group);
    }
}

// The largest magnitude of a block; at least an infinity when a value is not finite. Magnitudes of
// floats compare as their bits do.
static float block_peak(const float *x)
{
    uint32_t peak = 0;
    for (size_t i = 0; i < LINEAR_UNIT; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        peak = bits > peak ? bits : peak;
    }
    float value;
    memcpy(&value, &peak, sizeof value);
    return value;
}

// Writes the tail of a record from the sums of the first and the last 16 codes.
static void put_tail(unsigned char *tail, float scale, const int32_t half[2])
{
    const int32_t sum = half[0] + half[1];
    const float values[4] = {scale, scale * (float)sum, scale * (float)half[0],
                             scale * (float)half[1]};
    memcpy(tail, values, sizeof values);
    memcpy(tail + LINEAR_TAIL_SUM, &sum, sizeof sum);
}

// All codes zero: a block that is zero, or one that must turn every sum into a NaN.
static void put_empty(linear_format format, float scale, unsigned char *record)
{
    const size_t planes = format == LINEAR_FORMAT_INT8 ? 1 : 2;
    memset(record, 0, planes * LINEAR_PLANE_BYTES);
    put_tail(record + planes * LINEAR_PLANE_BYTES, scale, (const int32_t[2]){0, 0});
}

static void round_int8(const float *x, float peak, unsigned char *record)
{
    const float to_code = (float)LINEAR_LARGEST_INT8 / peak;
    int32_t half[2] = {0};
    int8_t codes[LINEAR_UNIT];
    for (size_t i = 0; i < LINEAR_UNIT; i++) {
        codes[i] = (int8_t)lrintf(x[i] * to_code);
        half[i / 16] += codes[i];
    }
    memcpy(record, codes, sizeof codes);
    put_tail(record + LINEAR_PLANE_BYTES, peak / (float)LINEAR_LARGEST_INT8, half);
}

static void round_int16(const float *x, float peak, unsigned char *record)
{
    const float to_code = (float)LINEAR_LARGEST_INT16 / peak;
    int32_t half[2] = {0};
    int8_t high[LINEAR_UNIT], low[LINEAR_UNIT];
    for (size_t i = 0; i < LINEAR_UNIT; i++) {
        const int code = (int)lrintf(x[i] * to_code);
        high[i] = (int8_t)((code + 128 + (1 << 15)) / 256 - 128); // rounded down
        const int rest = code - 256 * high[i];
        low[i] = (int8_t)(rest < LINEAR_SMALLEST_LOW ? LINEAR_SMALLEST_LOW : rest);
        half[i / 16] += 256 * high[i] + low[i];
    }
    memcpy(record, high, sizeof high);
    memcpy(record + LINEAR_PLANE_BYTES, low, sizeof low);
    put_tail(record + 2 * LINEAR_PLANE_BYTES, peak / (float)LINEAR_LARGEST_INT16, half);
}

static void round_block(const float *x, linear_format format, unsigned char *record)
{
    const float peak = block_peak(x);
    if (format == LINEAR_FORMAT_F32)
        memcpy(record, x, LINEAR_RECORD_F32);
    else if (!(peak < INFINITY))
        put_empty(format, NAN, record);
    else if (peak < LINEAR_SMALLEST_PEAK)
        put_empty(format, 0.0f, record);
    else if (format == LINEAR_FORMAT_INT8)
        round_int8(x, peak, record);
    else
        round_int16(x, peak, record);
}

void linear_round_plain(const float *x, size_t cols, linear_format format, unsigned char *records,
                        size_t stride)
{
    size_t col = 0;
    for (; col + LINEAR_UNIT <= cols; col += LINEAR_UNIT, records += stride)
        round_block(x + col, format, records);
    if (col < cols) { // float weights alone have such a block
        float rest[LINEAR_UNIT] = {0};
        memcpy(rest, x + col, (cols - col) * sizeof *x);
        round_block(rest, format, records);
    }
}
