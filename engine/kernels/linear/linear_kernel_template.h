// SPDX-License-Identifier: MIT
// The vector kernels of engine/kernels/linear/linear_kernel_plain.c, included once per instruction
// set. Before that, the file defines
//   LINEAR_TILE              the name of the kernel
//   LANES, VECTORS           outputs of a vector, and how many vectors are computed together
//   lanes_float, lanes_int, lanes_u32 and functions over them
//   (engine/kernels/linear/linear_lanes_avx2.h)
//   TOKENS_AT_ONCE           tokens whose sums of integers are in registers at once; and, where
//   TOKENS_OF_TWO_SUMS       they are made of two (planes of activations, codes above 4 bits)
//   dot_quads(bits, tokens, unit, sums, weights, codes, stride, quads)
//                            sums[token * VECTORS + vector] += unit * products of quads, for that
//                            many tokens or fewer; weights[vector * LINEAR_QUADS + quad]; `bits`
//                            are those of the weights' codes, `stride` is between tokens' codes;
//                            sums are zero before, unless `unit` is 1
//   SIGNED_8_BITS            8-bit codes of weights enter dot_quads less 128, as signed bytes
//
// A unit's weights are unpacked into registers once and meet all tokens of the group.

#include "engine/kernels/linear/linear_inline.h"
#include "engine/kernels/linear/linear_layout.h"

#define ALL_VECTORS (LINEAR_ROWS / LANES) // of a tile
#define PASSES (ALL_VECTORS / VECTORS)

// Float weights: tokens whose sums are in registers at once.
#define FLOAT_TOKENS (LANES == 16 ? 8 : 2)

// Weights are asked for this far ahead: the processor's own prefetching alone leaves a third of the
// memory bandwidth unused.
#define PREFETCH_BYTES 4096

INLINE void prefetch(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + PREFETCH_BYTES + i);
}

INLINE lanes_int shift_left(lanes_int a, int bits)
{
    return (lanes_int)((lanes_u32)a << bits);
}

INLINE lanes_int shift_right(lanes_int a, int bits)
{
    return (lanes_int)((lanes_u32)a >> bits);
}

// --- Weights ------------------------------------------------------------------------------------

INLINE int code_bits(uint32_t type)
{
    switch (type) {
    case ELEMENT_Q2_K:
    case ELEMENT_AFFINE_2:
        return 2;
    case ELEMENT_Q3_K:
    case ELEMENT_AFFINE_3:
        return 3;
    case ELEMENT_Q5_0:
    case ELEMENT_Q5_1:
    case ELEMENT_Q5_K:
    case ELEMENT_AFFINE_5:
    case ELEMENT_MXFP4: // after the table
        return 5;
    case ELEMENT_Q6_K:
    case ELEMENT_AFFINE_6:
        return 6;
    case ELEMENT_Q8_0:
    case ELEMENT_AFFINE_8:
        return 8;
    default:
        return 4;
    }
}

// Moves a field of bits of each byte from position `from` to position `to`, and clears the others:
// `mask` is the field at its new place.
INLINE lanes_int move_bits(lanes_int a, int from, int to, int32_t mask)
{
    return bits_and(from < to ? shift_left(a, to - from) : shift_right(a, from - to),
                    all_int(mask));
}

// The lowest bits of a quad's codes: eight, four or two.
INLINE lanes_int low_codes(uint32_t type, const unsigned char *codes, int quad)
{
    switch (code_bits(type)) {
    case 8:
        return load_int(codes + LINEAR_QUAD * quad);
    case 2:
    case 3:
        return move_bits(load_int(codes + LINEAR_QUAD * (quad / 4)), 2 * (quad % 4), 0, 0x03030303);
    default:
        return move_bits(load_int(codes + LINEAR_QUAD * (quad % 4)), quad / 4 * 4, 0, 0x0f0f0f0f);
    }
}

// The codes of a quad as bytes. `unit` is where the lanes of this vector begin.
INLINE lanes_int quad_codes(uint32_t type, const unsigned char *unit, int quad)
{
    const linear_layout layout = linear_layout_of(type);
    const unsigned char *high = unit + layout.high_bits;
    const lanes_int low = low_codes(type, unit + layout.codes, quad);
    if (type == ELEMENT_MXFP4)
        return look_up(linear_mxfp4_codes, low);
    switch (code_bits(type)) {
    case 3:
        return bits_or(low, move_bits(load_int(high), quad, 2, 0x04040404));
    case 5:
        return bits_or(low, move_bits(load_int(high), quad, 4, 0x10101010));
    case 6:
        return bits_or(low, move_bits(load_int(high + LINEAR_QUAD * (quad / 4)), 2 * (quad % 4), 4,
                                      0x30303030));
    case 8:
        return SIGNED_8_BITS ? (lanes_int)((lanes_u32)low ^ 0x80808080u) : low;
    default:
        return low;
    }
}

// What a code of a vector's rows stands for: scale * code + minimum.
typedef struct unit_scales {
    lanes_float scale[2]; // of the first and the last 16 inputs
    lanes_float minimum[2];
} unit_scales;

// Inputs 0 to 15 and 16 to 31 have scales of their own.
INLINE int has_half_scales(uint32_t type)
{
    return linear_layout_of(type).scales == 2;
}

// The pair of six-bit numbers of a unit.
INLINE void load_pairs(const unsigned char *pairs, size_t lane, size_t index, lanes_int *first,
                       lanes_int *second)
{
    const lanes_int low = load_u8(pairs + LINEAR_BYTES * index + lane);
    const lanes_int high =
        shift_right(load_u8(pairs + LINEAR_PAIRS_HIGH + LINEAR_BYTES * (index / 2) + lane),
                    (int)(index % 2 * 4));
    *first = bits_or(bits_and(low, all_int(15)), shift_left(bits_and(high, all_int(3)), 4));
    *second = bits_or(shift_right(low, 4), shift_left(bits_and(high, all_int(12)), 2));
}

// Q4_K, Q5_K: pairs of scale and minimum.
INLINE void paired_scales(const unsigned char *header, size_t pairs, size_t lane, size_t index,
                          unit_scales *out)
{
    lanes_int scale, minimum;
    load_pairs(header + pairs, lane, index, &scale, &minimum);
    out->scale[0] = times(load_f16(header + 2 * lane), to_float(scale));
    out->minimum[0] = minus(times(load_f16(header + LINEAR_HALVES + 2 * lane), to_float(minimum)));
}

// Q3_K: pairs of scales, whose code 32 is zero.
INLINE void half_pair_scales(const unsigned char *header, size_t pairs, size_t lane, size_t index,
                             unit_scales *out)
{
    const lanes_float scale = load_f16(header + 2 * lane);
    lanes_int code[2];
    load_pairs(header + pairs, lane, index, &code[0], &code[1]);
    for (int half = 0; half < 2; half++)
        out->scale[half] = times(scale, to_float(add_int(code[half], all_int(-32))));
}

// Q2_K: bytes of scale and minimum, four bits each.
INLINE void half_byte_scales(const unsigned char *header, const unsigned char *unit, size_t lane,
                             unit_scales *out)
{
    const lanes_float scale = load_f16(header + 2 * lane);
    const lanes_float minimum = load_f16(header + LINEAR_HALVES + 2 * lane);
    for (int half = 0; half < 2; half++) {
        const lanes_int bytes = load_u8(unit + LINEAR_BYTES * half + lane);
        out->scale[half] = times(scale, to_float(bits_and(bytes, all_int(15))));
        out->minimum[half] = minus(times(minimum, to_float(shift_right(bytes, 4))));
    }
}

// Q6_K: signed bytes.
INLINE void signed_byte_scales(const unsigned char *header, const unsigned char *unit, size_t lane,
                               unit_scales *out)
{
    const lanes_float scale = load_f16(header + 2 * lane);
    for (int half = 0; half < 2; half++)
        out->scale[half] = times(scale, to_float(load_i8(unit + LINEAR_BYTES * half + lane)));
}

// MXFP4: half of 2^(exponent - 127), whose bits are the exponent's, but for 0, which is below the
// normal numbers, and 255, which adds a NaN: infinity times zero.
INLINE lanes_float exponent_scales(const unsigned char *exponents)
{
    const lanes_int bits = max_int(shift_left(load_u8(exponents), 23), all_int(0x00400000));
    const lanes_float whole = as_float(bits);
    return times_plus(whole, all_float(0.5f), times(whole, all_float(0.0f)));
}

INLINE lanes_float load_scales(uint32_t type, const unsigned char *array, size_t lane)
{
    return type == ELEMENT_F32   ? load_f32(array + 4 * lane)
           : type == ELEMENT_F16 ? load_f16(array + 2 * lane)
                                 : load_bf16(array + 2 * lane);
}

INLINE unit_scales scales_of(uint32_t type, uint32_t scale_type, const unsigned char *header,
                             const unsigned char *unit, size_t lane, size_t index)
{
    const linear_layout layout = linear_layout_of(type);
    unit_scales out;
    if (linear_is_affine(type)) {
        out.scale[0] = load_scales(scale_type, header, lane);
        out.minimum[0] = load_scales(scale_type, header + linear_scale_array(scale_type), lane);
        return out;
    }
    switch (type) {
    case ELEMENT_Q2_K:
        half_byte_scales(header, unit, lane, &out);
        break;
    case ELEMENT_Q3_K:
        half_pair_scales(header, layout.pairs, lane, index, &out);
        break;
    case ELEMENT_Q4_K:
    case ELEMENT_Q5_K:
        paired_scales(header, layout.pairs, lane, index, &out);
        break;
    case ELEMENT_Q6_K:
        signed_byte_scales(header, unit, lane, &out);
        break;
    case ELEMENT_MXFP4:
        out.scale[0] = exponent_scales(unit + lane);
        break;
    case ELEMENT_Q4_1:
    case ELEMENT_Q5_1:
        out.scale[0] = load_f16(unit + 2 * lane);
        out.minimum[0] = load_f16(unit + LINEAR_HALVES + 2 * lane);
        break;
    default:
        out.scale[0] = load_f16(unit + 2 * lane);
    }
    for (unsigned half = 0; layout.zero && half < layout.scales; half++)
        out.minimum[half] = times(out.scale[half], all_float(-(float)layout.zero));
    return out;
}

// --- Quantized weights --------------------------------------------------------------------------

INLINE size_t record_bytes(int planes)
{
    return planes == 1 ? LINEAR_RECORD_INT8 : LINEAR_RECORD_INT16;
}

INLINE void clear(int count, lanes_int *sums)
{
    UNROLL
    for (int i = 0; i < count; i++)
        sums[i] = all_int(0);
}

// The integer products of a unit, or of half of it, with n tokens, exact. A single token's planes
// are summed apart, because one sum after the other would leave the processor waiting.
INLINE void products(uint32_t type, int planes, int n, const lanes_int *weights,
                     const unsigned char *records, int first, int quads, lanes_int *sums)
{
    const int bits = code_bits(type), count = n * VECTORS;
    const size_t stride = record_bytes(planes);
    const unsigned char *high = records + 4 * first, *low = high + LINEAR_PLANE_BYTES;
    lanes_int low_sums[VECTORS];
    weights += first;
    clear(count, sums);
    dot_quads(bits, n, planes == 2 ? 256 : 1, sums, weights, high, stride, quads);
    if (planes == 2) {
        if (n > 1) {
            dot_quads(bits, n, 1, sums, weights, low, stride, quads);
        } else {
            clear(VECTORS, low_sums);
            dot_quads(bits, 1, 1, low_sums, weights, low, stride, quads);
            UNROLL
            for (int v = 0; v < VECTORS; v++)
                sums[v] = add_int(sums[v], low_sums[v]);
        }
    }
    if (bits == 8 && SIGNED_8_BITS) {
        const unsigned char *sum = records + planes * LINEAR_PLANE_BYTES + LINEAR_TAIL_SUM;
        UNROLL
        for (int i = 0; i < count; i++)
            sums[i] = add_int(sums[i], all_int(128 * int_at(sum + i / VECTORS * stride)));
    }
}

// Sums of one unit in two parts, where the first must stay while the second is made.
INLINE int tokens_at_once(uint32_t type, int planes)
{
    return planes == 1 && code_bits(type) <= 4 ? TOKENS_AT_ONCE : TOKENS_OF_TWO_SUMS;
}

// Adds a unit's part to the sums of n tokens; n is a constant.
INLINE void add_unit(uint32_t type, int planes, int n, const lanes_int *weights,
                     const unit_scales *scales, const unsigned char *records, lanes_float *y)
{
    const int parts = has_half_scales(type) ? 2 : 1, quads = LINEAR_QUADS / parts;
    UNROLL
    for (int part = 0; part < parts; part++) {
        const int x_sum = parts == 1 ? LINEAR_TAIL_SCALED_SUM : LINEAR_TAIL_HALF_SUMS + 4 * part;
        lanes_int sums[TOKENS_AT_ONCE * VECTORS];
        products(type, planes, n, weights, records, part * quads, quads, sums);
        UNROLL
        for (int i = 0; i < n * VECTORS; i++) {
            const unit_scales *scale = &scales[i % VECTORS];
            const unsigned char *tail =
                records + i / VECTORS * record_bytes(planes) + planes * LINEAR_PLANE_BYTES;
            const lanes_float x_scale = all_float(float_at(tail + LINEAR_TAIL_SCALE));
            y[i] = times_plus(times(scale->scale[part], x_scale), to_float(sums[i]), y[i]);
            y[i] = times_plus(scale->minimum[part], all_float(float_at(tail + x_sum)), y[i]);
        }
    }
}

// One unit for the rows of a pass and all tokens.
INLINE void add_pass(uint32_t type, uint32_t scale_type, int planes, size_t tokens,
                     const unsigned char *header, const unsigned char *unit, size_t index,
                     size_t pass, const unsigned char *records, lanes_float *y)
{
    lanes_int weights[VECTORS * LINEAR_QUADS];
    unit_scales scales[VECTORS];
    UNROLL
    for (size_t v = 0; v < VECTORS; v++) {
        const size_t lane = (pass * VECTORS + v) * LANES;
        scales[v] = scales_of(type, scale_type, header, unit, lane, index);
        UNROLL
        for (size_t quad = 0; quad < LINEAR_QUADS; quad++)
            weights[v * LINEAR_QUADS + quad] = quad_codes(type, unit + 4 * lane, (int)quad);
    }
    size_t t = 0;
#define ADD_WHILE_LEFT(n)                                                                          \
    for (; (n) <= tokens_at_once(type, planes) && t + (n) <= tokens; t += (n))                     \
    add_unit(type, planes, (n), weights, scales, records + t * record_bytes(planes),               \
             y + t * VECTORS)
    ADD_WHILE_LEFT(4);
    ADD_WHILE_LEFT(2);
    ADD_WHILE_LEFT(1);
#undef ADD_WHILE_LEFT
}

// y[(pass * tokens + token) * VECTORS + vector]
INLINE void quantized_sums(uint32_t type, int planes, size_t tokens, const linear_tile *tile,
                           lanes_float *y)
{
    const linear_layout layout = linear_layout_of(type);
    const unsigned char *at = tile->weights, *header = at, *records = tile->records;
    const linear_headers headers = linear_headers_of(type, tile->scale_type, tile->group);
    const size_t units = tile->cols / LINEAR_UNIT;
    for (size_t unit = 0, index = 0; unit < units; unit++) {
        if (headers.bytes && index == 0) {
            header = at;
            at += headers.bytes;
        }
        prefetch(at, layout.unit);
        for (size_t pass = 0; pass < PASSES; pass++)
            add_pass(type, tile->scale_type, planes, tokens, header, at, index, pass, records,
                     y + pass * tokens * VECTORS);
        index = index + 1 == headers.units ? 0 : index + 1;
        at += layout.unit;
        records += tokens * record_bytes(planes);
    }
}

// --- Float weights ------------------------------------------------------------------------------

INLINE lanes_float load_weights(uint32_t type, const unsigned char *at)
{
    return type == ELEMENT_F32 ? load_f32(at) : type == ELEMENT_F16 ? load_f16(at) : load_bf16(at);
}

// y[vector * n + token] of n tokens from `first` on; n is a constant.
INLINE void float_sums(uint32_t type, size_t n, const linear_tile *tile, size_t first,
                       lanes_float *y)
{
    const size_t col_bytes = linear_layout_of(type).unit;
    const unsigned char *records = tile->records + first * LINEAR_RECORD_F32;
    const unsigned char *at = tile->weights;
    for (size_t col = 0; col < tile->cols; col += LINEAR_UNIT) {
        const size_t left = tile->cols - col;
        const size_t end = left < LINEAR_UNIT ? left : LINEAR_UNIT;
        for (size_t i = 0; i < end; i++, at += col_bytes) {
            prefetch(at, col_bytes);
            UNROLL
            for (size_t k = 0; k < n * ALL_VECTORS; k++) {
                const size_t offset = k / n * (col_bytes / ALL_VECTORS);
                const float x = float_at(records + k % n * LINEAR_RECORD_F32 + 4 * i);
                y[k] = times_plus(load_weights(type, at + offset), all_float(x), y[k]);
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

INLINE void store(const linear_tile *tile, size_t token, size_t vector, lanes_float value)
{
    const size_t row = vector * LANES;
    float *to = tile->y + token * tile->y_stride + row;
    if (row + LANES <= tile->rows)
        store_f32(to, tile->add ? plus(load_f32(to), value) : value);
    else if (row < tile->rows)
        store_some(to, tile->rows - row, tile->add, value);
}

// One token apart, because its sums can stay in registers.
INLINE void one_quantized_token(uint32_t type, int planes, const linear_tile *tile)
{
    lanes_float y[ALL_VECTORS];
    UNROLL
    for (size_t v = 0; v < ALL_VECTORS; v++)
        y[v] = all_float(0.0f);
    quantized_sums(type, planes, 1, tile, y);
    UNROLL
    for (size_t v = 0; v < ALL_VECTORS; v++)
        store(tile, 0, v, y[v]);
}

INLINE void quantized_tile(uint32_t type, int planes, const linear_tile *tile)
{
    if (tile->tokens == 1) {
        one_quantized_token(type, planes, tile);
        return;
    }
    const size_t tokens = tile->tokens;
    lanes_float y[ALL_VECTORS * LINEAR_GROUP];
    for (size_t i = 0; i < ALL_VECTORS * tokens; i++)
        y[i] = all_float(0.0f);
    quantized_sums(type, planes, tokens, tile, y);
    for (size_t v = 0; v < ALL_VECTORS; v++)
        for (size_t t = 0; t < tokens; t++)
            store(tile, t, v, y[(v / VECTORS * tokens + t) * VECTORS + v % VECTORS]);
}

INLINE void some_float_tokens(uint32_t type, size_t n, const linear_tile *tile, size_t first)
{
    lanes_float y[ALL_VECTORS * FLOAT_TOKENS];
    UNROLL
    for (size_t k = 0; k < n * ALL_VECTORS; k++)
        y[k] = all_float(0.0f);
    float_sums(type, n, tile, first, y);
    UNROLL
    for (size_t k = 0; k < n * ALL_VECTORS; k++)
        store(tile, first + k % n, k / n, y[k]);
}

INLINE void float_tile(uint32_t type, const linear_tile *tile)
{
    size_t first = 0;
    for (; tile->tokens - first >= FLOAT_TOKENS; first += FLOAT_TOKENS)
        some_float_tokens(type, FLOAT_TOKENS, tile, first);
    for (; first < tile->tokens; first++)
        some_float_tokens(type, 1, tile, first);
}

// Functions of their own, so that profiles name the type, and small ones have inline checks where
// sanitizers check large ones by calls.
#define KERNEL static __attribute__((noinline)) void

#define QUANTIZED_KERNEL(TYPE)                                                                     \
    KERNEL kernel_##TYPE(const linear_tile *tile)                                                  \
    {                                                                                              \
        if (tile->format == LINEAR_FORMAT_INT8)                                                    \
            quantized_tile(ELEMENT_##TYPE, 1, tile);                                               \
        else                                                                                       \
            quantized_tile(ELEMENT_##TYPE, 2, tile);                                               \
    }

#define FLOAT_KERNEL(TYPE)                                                                         \
    KERNEL kernel_##TYPE(const linear_tile *tile)                                                  \
    {                                                                                              \
        float_tile(ELEMENT_##TYPE, tile);                                                          \
    }

QUANTIZED_KERNEL(Q4_0)
QUANTIZED_KERNEL(Q4_1)
QUANTIZED_KERNEL(Q5_0)
QUANTIZED_KERNEL(Q5_1)
QUANTIZED_KERNEL(Q8_0)
QUANTIZED_KERNEL(Q2_K)
QUANTIZED_KERNEL(Q3_K)
QUANTIZED_KERNEL(Q4_K)
QUANTIZED_KERNEL(Q5_K)
QUANTIZED_KERNEL(Q6_K)
QUANTIZED_KERNEL(MXFP4)
QUANTIZED_KERNEL(AFFINE_2)
QUANTIZED_KERNEL(AFFINE_3)
QUANTIZED_KERNEL(AFFINE_4)
QUANTIZED_KERNEL(AFFINE_5)
QUANTIZED_KERNEL(AFFINE_6)
QUANTIZED_KERNEL(AFFINE_8)
FLOAT_KERNEL(F32)
FLOAT_KERNEL(F16)
FLOAT_KERNEL(BF16)

#define KERNEL_CASE(TYPE)                                                                          \
    case ELEMENT_##TYPE:                                                                           \
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
        KERNEL_CASE(Q2_K)
        KERNEL_CASE(Q3_K)
        KERNEL_CASE(Q4_K)
        KERNEL_CASE(Q5_K)
        KERNEL_CASE(Q6_K)
        KERNEL_CASE(MXFP4)
        KERNEL_CASE(AFFINE_2)
        KERNEL_CASE(AFFINE_3)
        KERNEL_CASE(AFFINE_4)
        KERNEL_CASE(AFFINE_5)
        KERNEL_CASE(AFFINE_6)
        KERNEL_CASE(AFFINE_8)
        KERNEL_CASE(F32)
        KERNEL_CASE(F16)
        KERNEL_CASE(BF16)
    }
}
