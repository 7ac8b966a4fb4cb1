// SPDX-License-Identifier: MIT
// The vector kernels of engine/linear/kernel_plain.c, included once per instruction set. Before
// that, the file defines
//   LINEAR_TILE                the name of the kernel
//   LANES                      outputs of a vector: 16, or 8 for half a tile
//   ACCUMULATORS               how many sums of integers to keep in registers
//   lanes_float, lanes_int, lanes_u32 and functions over them (engine/linear/lanes_avx2.h)
//   dot(bits, sum, w, x)       adds the products of four bytes; `bits` of the weights' codes
//   DOT_STEP(bits)             how many of these may follow each other
//   dot_start, dot_end         what comes before and after them
//   DOT_SIGNED_8_BITS          8-bit codes of weights enter dot signed, not raised by 128
//
// Functions that take a type, a number of planes or of tokens are inlined where these are
// constants: each combination becomes a kernel of its own whose loops over tokens and quads are
// unrolled.

#include "engine/linear/layout.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Weights are read once per token when there is one: ask for them ahead of time.
#define PREFETCH_BYTES 2048

INLINE lanes_int shift_left(lanes_int a, int bits)
{
    return (lanes_int)((lanes_u32)a << bits);
}

INLINE lanes_int shift_right(lanes_int a, int bits)
{
    return (lanes_int)((lanes_u32)a >> bits);
}

INLINE int32_t int_at(const unsigned char *p)
{
    int32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

INLINE float float_at(const unsigned char *p)
{
    float value;
    memcpy(&value, p, sizeof value);
    return value;
}

// --- Weights ------------------------------------------------------------------------------------

INLINE int code_bits(uint32_t type)
{
    switch (type) {
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q5_K:
        return 5;
    case GGUF_TYPE_Q6_K:
        return 6;
    case GGUF_TYPE_Q8_0:
        return 8;
    default:
        return 4;
    }
}

// Moves a field of bits from position `from` to position 4 of each byte.
INLINE lanes_int to_bit_4(lanes_int a, int from)
{
    return from < 4 ? shift_left(a, 4 - from) : shift_right(a, from - 4);
}

// The codes of a quad as bytes. `unit` is where this half's lanes begin.
INLINE lanes_int quad_codes(uint32_t type, const unsigned char *unit, int quad)
{
    const linear_layout layout = linear_layout_of(type);
    const unsigned char *codes = unit + layout.codes;
    const unsigned char *high = unit + layout.high_bits;
    if (type == GGUF_TYPE_Q8_0) {
        const lanes_int raised = load_int(codes + LINEAR_QUAD_BYTES * quad);
        return DOT_SIGNED_8_BITS ? (lanes_int)((lanes_u32)raised ^ 0x80808080u) : raised;
    }
    const lanes_int pair = load_int(codes + LINEAR_QUAD_BYTES * (quad % 4));
    const lanes_int low = bits_and(quad < 4 ? pair : shift_right(pair, 4), all_int(0x0f0f0f0f));
    if (code_bits(type) == 4)
        return low;
    if (type == GGUF_TYPE_Q6_K) {
        const lanes_int plane = load_int(high + LINEAR_QUAD_BYTES * (quad / 4));
        return bits_or(low, bits_and(to_bit_4(plane, 2 * (quad % 4)), all_int(0x30303030)));
    }
    return bits_or(low, bits_and(to_bit_4(load_int(high), quad), all_int(0x10101010)));
}

typedef struct unit_scales {
    lanes_float scale[2]; // of the first and the last 16 inputs
    lanes_float minimum;
} unit_scales;

INLINE int has_minimum(uint32_t type)
{
    return type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1 || type == GGUF_TYPE_Q4_K ||
           type == GGUF_TYPE_Q5_K;
}

// Inputs 0 to 15 and 16 to 31 have scales of their own.
INLINE int has_half_scales(uint32_t type)
{
    return type == GGUF_TYPE_Q6_K;
}

INLINE unit_scales k_scales(const unsigned char *header, size_t half, size_t index)
{
    const size_t lane = half * LANES;
    const lanes_int low = load_u8(header + LINEAR_HEADER_LOW + LINEAR_ROWS * index + lane);
    const lanes_int high =
        shift_right(load_u8(header + LINEAR_HEADER_HIGH + LINEAR_ROWS * (index / 2) + lane),
                    (int)(index % 2 * 4));
    const lanes_int scale =
        bits_or(bits_and(low, all_int(15)), shift_left(bits_and(high, all_int(3)), 4));
    const lanes_int minimum =
        bits_or(shift_right(low, 4), shift_left(bits_and(high, all_int(12)), 2));
    unit_scales out;
    out.scale[0] = out.scale[1] = times(load_f16(header + 2 * lane), to_float(scale));
    out.minimum = minus(times(load_f16(header + 32 + 2 * lane), to_float(minimum)));
    return out;
}

INLINE unit_scales scales_of(uint32_t type, const unsigned char *header, const unsigned char *unit,
                             size_t half, size_t index)
{
    unit_scales out;
    const size_t lane = half * LANES;
    if (type == GGUF_TYPE_Q4_K || type == GGUF_TYPE_Q5_K)
        return k_scales(header, half, index);
    if (type == GGUF_TYPE_Q6_K) {
        const lanes_float scale = load_f16(header + 2 * lane);
        out.scale[0] = times(scale, to_float(load_i8(unit + lane)));
        out.scale[1] = times(scale, to_float(load_i8(unit + LINEAR_ROWS + lane)));
    } else {
        out.scale[0] = out.scale[1] = load_f16(unit + 2 * lane);
    }
    out.minimum = has_minimum(type) ? load_f16(unit + 32 + 2 * lane) : out.scale[0];
    return out;
}

// --- Products -----------------------------------------------------------------------------------

// Where sums of integers begin: codes of weights are raised by their zero to be unsigned, so minus
// zero times the sum of the activations belongs to the product. `part` 0 is the whole unit.
INLINE lanes_int sum_start(uint32_t type, const unsigned char *minus_sums, int part)
{
    const int zero = linear_layout_of(type).zero;
    if (zero == 0 || (type == GGUF_TYPE_Q8_0 && DOT_SIGNED_8_BITS))
        return all_int(0);
    return all_int(int_at(minus_sums + 4 * part) * zero);
}

// Integer products of quads first to end - 1 for n tokens: sums[t * planes + plane].
INLINE void dot_quads(uint32_t type, int planes, int n, const unsigned char *unit,
                      const unsigned char *records, size_t record_bytes, int first, int end,
                      lanes_int *sums)
{
    const int bits = code_bits(type), quads = end - first;
    const int step = DOT_STEP(bits) < quads ? DOT_STEP(bits) : quads;
    UNROLL
    for (int start = first; start < end; start += step) {
        lanes_int part[ACCUMULATORS];
        UNROLL
        for (int i = 0; i < n * planes; i++)
            part[i] = dot_start(bits, sums[i]);
        UNROLL
        for (int quad = start; quad < start + step; quad++) {
            const lanes_int weights = quad_codes(type, unit, quad);
            UNROLL
            for (int i = 0; i < n * planes; i++) {
                const unsigned char *codes =
                    records + i / planes * record_bytes + i % planes * LINEAR_PLANE_BYTES;
                part[i] = dot(bits, part[i], weights, all_int(int_at(codes + 4 * quad)));
            }
        }
        UNROLL
        for (int i = 0; i < n * planes; i++)
            sums[i] = dot_end(bits, sums[i], part[i]);
    }
}

// The exact integer product as a float, rounded once.
INLINE lanes_float product_of(int planes, const lanes_int *sums)
{
    const lanes_float high = to_float(sums[0]);
    if (planes == 1)
        return high;
    return times_plus(high, all_float(LINEAR_PLANE_BASE), to_float(sums[1]));
}

INLINE void add_unit(uint32_t type, int planes, int n, const unsigned char *unit,
                     const unit_scales *scales, const unsigned char *records, lanes_float *y)
{
    const size_t record_bytes = planes == 1 ? LINEAR_RECORD_INT8 : LINEAR_RECORD_INT16;
    const size_t tail = (size_t)planes * LINEAR_PLANE_BYTES;
    const int parts = has_half_scales(type) ? 2 : 1;
    UNROLL
    for (int part = 0; part < parts; part++) {
        lanes_int sums[ACCUMULATORS];
        UNROLL
        for (int i = 0; i < n * planes; i++) {
            const unsigned char *minus_sums =
                records + i / planes * record_bytes + tail + 8 + i % planes * 12;
            sums[i] = sum_start(type, minus_sums, parts == 1 ? 0 : 1 + part);
        }
        const int quads = LINEAR_QUADS / parts;
        dot_quads(type, planes, n, unit, records, record_bytes, part * quads, (part + 1) * quads,
                  sums);
        UNROLL
        for (int t = 0; t < n; t++) {
            const lanes_float x_scale = all_float(float_at(records + t * record_bytes + tail));
            y[t] = times_plus(times(scales->scale[part], x_scale),
                              product_of(planes, sums + t * planes), y[t]);
        }
    }
    if (!has_minimum(type))
        return;
    UNROLL
    for (int t = 0; t < n; t++) {
        const float scaled_sum = float_at(records + t * record_bytes + tail + 4);
        y[t] = times_plus(scales->minimum, all_float(scaled_sum), y[t]);
    }
}

INLINE void prefetch(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + PREFETCH_BYTES + i);
}

// The sums of n tokens, from `first` on, for half a tile (half 1 exists with 8 lanes only).
INLINE void quantized_sums(uint32_t type, int planes, int n, const linear_tile *tile, size_t half,
                           size_t first, lanes_float *y)
{
    const linear_layout layout = linear_layout_of(type);
    const size_t record_bytes = planes == 1 ? LINEAR_RECORD_INT8 : LINEAR_RECORD_INT16;
    const unsigned char *records = tile->records + first * record_bytes;
    const unsigned char *at = tile->weights, *header = at;
    const size_t units = tile->cols / LINEAR_UNIT;
    for (size_t unit = 0; unit < units; unit++) {
        if (layout.header_bytes && unit % LINEAR_SUPER == 0) {
            header = at;
            at += layout.header_bytes;
        }
        if (n == 1)
            prefetch(at, layout.unit_bytes);
        const unit_scales scales = scales_of(type, header, at, half, unit % LINEAR_SUPER);
        add_unit(type, planes, n, at + half * LANES * 4, &scales, records, y);
        at += layout.unit_bytes;
        records += tile->tokens * record_bytes;
    }
}

INLINE lanes_float load_weights(uint32_t type, const unsigned char *at)
{
    return type == GGUF_TYPE_F32   ? load_f32(at)
           : type == GGUF_TYPE_F16 ? load_f16(at)
                                   : load_bf16(at);
}

INLINE void float_sums(uint32_t type, int n, const linear_tile *tile, size_t half, size_t first,
                       lanes_float *y)
{
    const size_t col_bytes = linear_layout_of(type).unit_bytes;
    const unsigned char *records = tile->records + first * LINEAR_RECORD_F32;
    const unsigned char *at = tile->weights + half * col_bytes / 2;
    for (size_t col = 0; col < tile->cols; col += LINEAR_UNIT) {
        const size_t left = tile->cols - col;
        const size_t end = left < LINEAR_UNIT ? left : LINEAR_UNIT;
        for (size_t i = 0; i < end; i++, at += col_bytes) {
            const lanes_float weights = load_weights(type, at);
            UNROLL
            for (int t = 0; t < n; t++) {
                const float x = float_at(records + t * LINEAR_RECORD_F32 + 4 * i);
                y[t] = times_plus(weights, all_float(x), y[t]);
            }
        }
        records += tile->tokens * LINEAR_RECORD_F32;
    }
}

// --- Outputs ------------------------------------------------------------------------------------

// The last rows of a matrix may be no whole vector. Out of line: it is rare.
static __attribute__((noinline)) void store_some(float *to, size_t lanes, int add,
                                                 lanes_float value)
{
    float values[LANES];
    store_f32(values, value);
    for (size_t i = 0; i < lanes; i++)
        to[i] = add ? to[i] + values[i] : values[i];
}

INLINE void store_lanes(float *to, size_t lanes, int add, lanes_float value)
{
    if (lanes >= LANES)
        store_f32(to, add ? plus(load_f32(to), value) : value);
    else
        store_some(to, lanes, add, value);
}

INLINE void some_tokens(uint32_t type, int planes, int n, const linear_tile *tile, size_t half,
                        size_t first)
{
    lanes_float y[ACCUMULATORS];
    UNROLL
    for (int t = 0; t < n; t++)
        y[t] = all_float(0.0f);
    if (planes)
        quantized_sums(type, planes, n, tile, half, first, y);
    else
        float_sums(type, n, tile, half, first, y);
    float *to = tile->y + first * tile->y_stride + half * LANES;
    const size_t lanes = tile->rows - half * LANES;
    UNROLL
    for (int t = 0; t < n; t++)
        store_lanes(to + (size_t)t * tile->y_stride, lanes, tile->add, y[t]);
}

// All tokens of the group, as many at once as registers allow. No planes: float weights.
INLINE void all_tokens(uint32_t type, int planes, const linear_tile *tile)
{
    const size_t most = ACCUMULATORS / (planes ? planes : 1), few = most / 4;
    for (size_t half = 0; half * LANES < tile->rows; half++) {
        size_t first = 0;
        for (; tile->tokens - first >= most; first += most)
            some_tokens(type, planes, (int)most, tile, half, first);
        for (; few > 1 && tile->tokens - first >= few; first += few)
            some_tokens(type, planes, (int)few, tile, half, first);
        for (; first < tile->tokens; first++)
            some_tokens(type, planes, 1, tile, half, first);
    }
}

#define QUANTIZED_KERNEL(TYPE)                                                                     \
    static void kernel_##TYPE(const linear_tile *tile)                                             \
    {                                                                                              \
        if (tile->format == LINEAR_FORMAT_INT8)                                                    \
            all_tokens(GGUF_TYPE_##TYPE, 1, tile);                                                 \
        else                                                                                       \
            all_tokens(GGUF_TYPE_##TYPE, 2, tile);                                                 \
    }

#define FLOAT_KERNEL(TYPE)                                                                         \
    static void kernel_##TYPE(const linear_tile *tile)                                             \
    {                                                                                              \
        all_tokens(GGUF_TYPE_##TYPE, 0, tile);                                                     \
    }

QUANTIZED_KERNEL(Q4_0)
QUANTIZED_KERNEL(Q4_1)
QUANTIZED_KERNEL(Q5_0)
QUANTIZED_KERNEL(Q5_1)
QUANTIZED_KERNEL(Q8_0)
QUANTIZED_KERNEL(Q4_K)
QUANTIZED_KERNEL(Q5_K)
QUANTIZED_KERNEL(Q6_K)
FLOAT_KERNEL(F32)
FLOAT_KERNEL(F16)
FLOAT_KERNEL(BF16)

#define KERNEL_CASE(TYPE)                                                                          \
    case GGUF_TYPE_##TYPE:                                                                         \
        kernel_##TYPE(tile);                                                                       \
        break;

void LINEAR_TILE(const linear_tile *tile)
{
    switch (tile->type) {
        KERNEL_CASE(Q4_0)
        KERNEL_CASE(Q4_1)
        KERNEL_CASE(Q5_0)
        KERNEL_CASE(Q5_1)
        KERNEL_CASE(Q8_0)
        KERNEL_CASE(Q4_K)
        KERNEL_CASE(Q5_K)
        KERNEL_CASE(Q6_K)
        KERNEL_CASE(F32)
        KERNEL_CASE(F16)
        KERNEL_CASE(BF16)
    }
}
