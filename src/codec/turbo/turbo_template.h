// SPDX-License-Identifier: MIT
// The kernels of turbo blocks for one width of codes and one instruction set. Included once by
// kernels/turbo_<bits>_<isa>.c after codes_<isa>.h.
//
// Parameters:
//   TURBO_BITS     of a code
//   TURBO_KERNELS  the name of the kernels
//
// Codes become what they mean by a permutation of the codebook, and the scale of a slot joins the
// sum of a key, or the weight of a value.
#include "src/codec/rotation/rotation.h"
#include "src/codec/turbo/turbo.h"

#define CODES_BITS TURBO_BITS
#define CODES_VALUES(words, shift)                                                                 \
    codes_lookup(TURBO_BITS, kvern_turbo_levels[TURBO_BITS], words, shift)
#include "src/codec/codes/codes_template.h"

#include <string.h>

#define TURBO_VECTORS 32 // whose weights are scaled at once

// ---- Scales ----

LANES_INLINE lanes load_scales(const void *block, size_t slot)
{
    return lanes_load_f16((const uint16_t *)block + slot);
}

LANES_INLINE ptrdiff_t bytes_to_next(const void *block, const void *next)
{
    if (!next)
        return 0;
    lanes_prefetch(next);
    lanes_prefetch((const char *)next + 64);
    return (const char *)next - (const char *)block;
}

// ---- Scores ----

// Scores of R vectors in T strips from `slot` on.
LANES_INLINE void score_strips(int R, int T, const void *block, codes_columns c, size_t dim,
                               size_t slot, const float *q, size_t q_stride, float *scores)
{
    lanes acc[CODES_MOST][4];
    const uint32_t *words = c.words;
    const size_t whole = kvern_codes_whole(dim);
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        acc[i / T][i % T] = lanes_zero();
    c.words += slot;
    for (size_t d = 0; d < whole; d += KVERN_CODES_COLUMN) {
        add_columns(R, T, &c, q + d, q_stride, acc);
        c.words += TURBO_BITS * KVERN_PAGE_POSITIONS;
    }
    if (whole < dim) {
        c.words = words + kvern_codes_half_at(TURBO_BITS, dim);
        c.stride = KVERN_CODES_COLUMN;
        const codes_factors a = factors_at(R, q + whole, q_stride);
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            add_half_strip(R, &c, slot + (size_t)t * 16, &a, t, acc);
    }
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        const lanes scale = load_scales(block, slot + (size_t)t * 16);
        KVERN_UNROLL
        for (int i = 0; i < R; i++)
            lanes_store(scores + (size_t)i * KVERN_PAGE_POSITIONS + slot + (size_t)t * 16,
                        lanes_mul(scale, acc[i][t]));
    }
}

// All scores of a block for R vectors.
LANES_INLINE void score_few(int R, const void *block, codes_columns c, size_t dim, const float *q,
                            size_t q_stride, float *scores)
{
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot += 16 * CODES_FEW_WIDE(R))
        score_strips(R, CODES_FEW_WIDE(R), block, c, dim, slot, q, q_stride, scores);
}

LANES_INLINE void score_by_few(const void *block, codes_columns c, size_t dim, size_t n,
                               const float *q, size_t q_stride, float *scores)
{
    size_t i = 0;
    for (; CODES_MOST > 4 && i + CODES_MOST <= n; i += CODES_MOST)
        score_few(CODES_MOST, block, c, dim, q + i * q_stride, q_stride,
                  scores + i * KVERN_PAGE_POSITIONS);
    for (; i + 4 <= n; i += 4)
        score_few(4, block, c, dim, q + i * q_stride, q_stride, scores + i * KVERN_PAGE_POSITIONS);
    q += i * q_stride;
    scores += i * KVERN_PAGE_POSITIONS;
    if (n - i == 3)
        score_few(3, block, c, dim, q, q_stride, scores);
    else if (n - i == 2)
        score_few(2, block, c, dim, q, q_stride, scores);
    else if (n - i == 1)
        score_few(1, block, c, dim, q, q_stride, scores);
}

// 64 dims from d on, or what is left, of `strips` times 16 slots; returns how many.
LANES_INLINE size_t unpack_keys(codes_columns c, size_t dim, size_t d, size_t slot, size_t strips,
                                kvern_codes_tile *tile)
{
    const uint32_t *words = c.words;
    const size_t whole = kvern_codes_whole(dim);
    size_t row = 0;
    for (; row < KVERN_CODES_ROWS && d + row < whole; row += KVERN_CODES_COLUMN) {
        c.words = words + (d + row) * 2 * TURBO_BITS + slot;
        c.to = tile->rows + row;
        unpack(c, strips);
    }
    if (row == KVERN_CODES_ROWS || whole == dim)
        return row;
    c.words = words + kvern_codes_half_at(TURBO_BITS, dim);
    c.stride = KVERN_CODES_COLUMN;
    c.to = tile->rows + row;
    unpack_half(&c, slot, strips);
    return row + 16;
}

// Scores of any number of vectors: the keys are unpacked once for all of them.
LANES_INLINE void score_many(const void *block, codes_columns c, size_t dim, size_t tile_begin,
                             size_t tile_end, size_t n, const float *q, size_t q_stride,
                             float *scores)
{
    kvern_codes_tile tile;
    const size_t slot = tile_begin * 16;
    kvern_codes_product product = {.rows = (const float(*)[KVERN_CODES_LANES])tile.rows,
                                   .width = (tile_end - tile_begin) * 16,
                                   .a_stride = q_stride,
                                   .c = scores + slot,
                                   .c_stride = KVERN_PAGE_POSITIONS};
    for (size_t d = 0; d < dim; d += product.count) {
        product.count = unpack_keys(c, dim, d, slot, tile_end - tile_begin, &tile);
        product.a = q + d;
        product.fresh = d == 0;
        CODES_MULTIPLY(n, &product);
    }
    for (size_t at = slot; at < tile_end * 16; at += 16) {
        const lanes scale = load_scales(block, at);
        for (size_t i = 0; i < n; i++) {
            float *to = scores + i * KVERN_PAGE_POSITIONS + at;
            lanes_store(to, lanes_mul(scale, lanes_load(to)));
        }
    }
}

static void score(const kvern_codec *codec, const void *block, size_t dim, size_t tile_begin,
                  size_t tile_end, size_t n, const float *q, size_t q_stride, float *scores,
                  const void *next)
{
    (void)codec;
    if (tile_begin == tile_end)
        return;
    const codes_columns c = {.words = kvern_turbo_words(block),
                             .stride = KVERN_PAGE_POSITIONS,
                             .next = bytes_to_next(block, next)};
    if (tile_end - tile_begin == 4 && n <= CODES_FEW_LOOKED_UP(TURBO_BITS))
        score_by_few(block, c, dim, n, q, q_stride, scores);
    else
        score_many(block, c, dim, tile_begin, tile_end, n, q, q_stride, scores);
}

// ---- Weighted sums ----

// Weights times scales.
typedef struct turbo_weights {
    _Alignas(64) float scaled[TURBO_VECTORS][KVERN_PAGE_POSITIONS];
} turbo_weights;

LANES_INLINE void weigh(const void *block, size_t n, const float *w, turbo_weights *out)
{
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot += 16) {
        const lanes scale = load_scales(block, slot);
        for (size_t i = 0; i < n; i++)
            lanes_store(out->scaled[i] + slot,
                        lanes_mul(lanes_load(w + i * KVERN_PAGE_POSITIONS + slot), scale));
    }
}

// T strips from dim d on, all slots, R vectors.
LANES_INLINE void add_strips(int R, int T, size_t dim, size_t d, codes_columns c,
                             const turbo_weights *weights, float *acc)
{
    const uint32_t *words = c.words;
    lanes sums[CODES_MOST][4];
    acc += d;
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        sums[i / T][i % T] = lanes_load(acc + (size_t)(i / T) * dim + i % T * 16);
    for (size_t half = 0; half < 2; half++) {
        enter_panel(dim, d, half, words, &c);
        add_columns(R, T, &c, weights->scaled[0] + half * KVERN_CODES_COLUMN, KVERN_PAGE_POSITIONS,
                    sums);
    }
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        lanes_store(acc + (size_t)(i / T) * dim + i % T * 16, sums[i / T][i % T]);
}

// All slots for R vectors. The last panel may be narrower than the strips that are taken together.
LANES_INLINE void accumulate_few(int R, const void *block, codes_columns c, size_t dim,
                                 const float *w, float *acc)
{
    turbo_weights weights;
    const int wide = CODES_FEW_WIDE(R);
    size_t d = 0;
    weigh(block, (size_t)R, w, &weights);
    for (; d + 16 * (size_t)wide <= dim; d += 16 * (size_t)wide)
        add_strips(R, wide, dim, d, c, &weights, acc);
    if (wide > 2 && d + 32 <= dim) {
        add_strips(R, 2, dim, d, c, &weights, acc);
        d += 32;
    }
    if (wide > 1 && d < dim)
        add_strips(R, 1, dim, d, c, &weights, acc);
}

LANES_INLINE void accumulate_by_few(const void *block, codes_columns c, size_t dim, size_t n,
                                    const float *w, float *acc)
{
    size_t i = 0;
    for (; CODES_MOST > 4 && i + CODES_MOST <= n; i += CODES_MOST)
        accumulate_few(CODES_MOST, block, c, dim, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
    for (; i + 4 <= n; i += 4)
        accumulate_few(4, block, c, dim, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
    w += i * KVERN_PAGE_POSITIONS;
    acc += i * dim;
    if (n - i == 3)
        accumulate_few(3, block, c, dim, w, acc);
    else if (n - i == 2)
        accumulate_few(2, block, c, dim, w, acc);
    else if (n - i == 1)
        accumulate_few(1, block, c, dim, w, acc);
}

// The slots [begin, end) for at most TURBO_VECTORS vectors, a panel at a time.
LANES_INLINE void accumulate_some(const void *block, codes_columns c, size_t dim, size_t begin,
                                  size_t end, size_t n, const float *w, float *acc)
{
    kvern_codes_tile tile;
    turbo_weights weights;
    const uint32_t *words = c.words;
    kvern_codes_product product = {.rows = (const float(*)[KVERN_CODES_LANES])tile.rows + begin,
                                   .count = end - begin,
                                   .a = weights.scaled[0] + begin,
                                   .a_stride = KVERN_PAGE_POSITIONS,
                                   .c_stride = dim};
    weigh(block, n, w, &weights);
    for (size_t d = 0; d < dim; d += product.width) {
        product.width = kvern_codes_panel_width(dim, d);
        for (size_t half = begin / KVERN_CODES_COLUMN; half * KVERN_CODES_COLUMN < end; half++) {
            enter_panel(dim, d, half, words, &c);
            c.to = tile.rows + half * KVERN_CODES_COLUMN;
            unpack(c, product.width / 16);
        }
        product.c = acc + d;
        CODES_MULTIPLY(n, &product);
    }
}

static void accumulate(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                       size_t end, size_t n, const float *w, float *acc, const void *next)
{
    (void)codec;
    if (begin == end)
        return;
    const codes_columns c = {.words = kvern_turbo_words(block), .next = bytes_to_next(block, next)};
    if (begin == 0 && end == KVERN_PAGE_POSITIONS && n <= CODES_FEW_LOOKED_UP(TURBO_BITS)) {
        accumulate_by_few(block, c, dim, n, w, acc);
        return;
    }
    for (size_t i = 0; i < n; i += TURBO_VECTORS)
        accumulate_some(block, c, dim, begin, end, n - i < TURBO_VECTORS ? n - i : TURBO_VECTORS,
                        w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
}

// ---- Decoding ----

// Adding -0 changes nothing, so that a line is a product.
LANES_INLINE codes_lines lines_of(const void *block)
{
    codes_lines lines;
    for (size_t t = 0; t < 4; t++) {
        lines.scale[t] = load_scales(block, t * 16);
        lines.bias[t] = lanes_set(-0.0f);
    }
    return lines;
}

static void decode_block(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                         size_t end, float *to)
{
    (void)codec;
    const codes_lines lines = lines_of(block);
    const size_t whole = kvern_codes_whole(dim);
    codes_columns c = {.words = kvern_turbo_words(block) + begin * 2 * TURBO_BITS,
                       .stride = KVERN_PAGE_POSITIONS,
                       .to = (float(*)[KVERN_CODES_LANES])to};
    for (size_t d = begin; d < end && d < whole; d += KVERN_CODES_COLUMN) {
        unpack_strips(4, &c, &lines);
        c.words += TURBO_BITS * KVERN_PAGE_POSITIONS;
        c.to += KVERN_CODES_COLUMN;
    }
    if (end <= whole)
        return;
    c.stride = KVERN_CODES_COLUMN;
    unpack_half(&c, 0, 4);
    for (size_t row = 0; row < 16; row++) {
        for (size_t t = 0; t < 4; t++) {
            float *at = c.to[row] + t * 16;
            lanes_store(at, lanes_mul(lines.scale[t], lanes_load(at)));
        }
    }
}

// ---- Encoding ----
//
// Vectors are stored one at a time or four, whose sums share a tree and whose roots and divisions
// run beside each other.

typedef struct turbo_vectors {
    _Alignas(64) float z[4][KVERN_MAX_STREAM_DIM];
    _Alignas(64) uint8_t codes[4][KVERN_MAX_STREAM_DIM];
} turbo_vectors;

// Loads a vector: its largest magnitudes, and in `odd` a NaN where a number is not finite.
LANES_INLINE void load_as(kvern_type type, const void *values, size_t dim, float *to,
                          lanes *largest, lanes *odd)
{
    const lanes zero = lanes_zero();
    *largest = *odd = zero;
    for (size_t d = 0; d < dim; d += 16) {
        const lanes v = load_numbers(type, values, d);
        *largest = lanes_max(lanes_abs(v), *largest);
        *odd = lanes_fma(v, zero, *odd);
        lanes_store(to + d, v);
    }
}

// Loads N vectors; false where one of them is zero or not finite. largest[i] is the largest
// magnitude of each, or NaN.
LANES_INLINE bool load_vectors(int N, kvern_type type, const void *const *values, size_t dim,
                               turbo_vectors *v, float largest[4])
{
    lanes most[4], odd[4];
    KVERN_UNROLL
    for (int i = 0; i < N; i++) {
        if (type == KVERN_BF16)
            load_as(KVERN_BF16, values[i], dim, v->z[i], &most[i], &odd[i]);
        else if (type == KVERN_F16)
            load_as(KVERN_F16, values[i], dim, v->z[i], &most[i], &odd[i]);
        else
            load_as(KVERN_F32, values[i], dim, v->z[i], &most[i], &odd[i]);
    }
    KVERN_UNROLL
    for (int i = N; i < 4; i++)
        most[i] = most[0];
    lanes_largest_each(most, largest);
    bool usual = true;
    KVERN_UNROLL
    for (int i = 0; i < N; i++) {
        if (lanes_mask_bits(lanes_isnan(odd[i])))
            largest[i] = NAN;
        usual = usual && largest[i] > 0;
    }
    return usual;
}

// sums[i] is that of the lanes of v[i], of N.
LANES_INLINE void sum_each(int N, lanes v[4], float sums[4])
{
    KVERN_UNROLL
    for (int i = N; i < 4; i++)
        v[i] = v[0];
    lanes_sum_each(v, sums);
}

LANES_INLINE lanes squares_of(size_t dim, const float *z)
{
    lanes sum = lanes_zero();
    for (size_t d = 0; d < dim; d += 16) {
        const lanes v = lanes_load(z + d);
        sum = lanes_fma(v, v, sum);
    }
    return sum;
}

// The codes of 16 numbers of a vector whose variance is 1: how many edges a magnitude has reached,
// found by halving.
LANES_INLINE lanes_int codes_of(lanes y)
{
    const int half = 1 << (TURBO_BITS - 1);
    const float *edges = kvern_turbo_edges[TURBO_BITS];
    const lanes magnitude = lanes_abs(y);
    lanes_int above = lanes_int_set(0);
    KVERN_UNROLL
    for (int i = 1; i < TURBO_BITS; i++) {
        const int step = half >> i;
        const lanes edge =
            i == 1 ? lanes_set(edges[step - 1])
                   : codes_lookup(TURBO_BITS > 4 ? TURBO_BITS - 1 : 3, edges + step - 1, above, 0);
        above = codes_add(above, lanes_ge(magnitude, edge), step);
    }
    const lanes_int negative = lanes_int_shr(lanes_bits(y), 31);
    return lanes_int_xor(lanes_int_add(above, lanes_int_set(half)),
                         lanes_int_and(negative, lanes_int_set(2 * half - 1)));
}

// Codes of a rotated vector, and the sums with their levels.
LANES_INLINE void quantize(size_t dim, const float *z, float to_unit, uint8_t *codes, lanes *zc,
                           lanes *cc)
{
    *zc = *cc = lanes_zero();
    for (size_t d = 0; d < dim; d += 16) {
        const lanes v = lanes_load(z + d);
        const lanes_int code = codes_of(lanes_mul(v, lanes_set(to_unit)));
        const lanes level = CODES_VALUES(code, 0);
        lanes_int_store_bytes(codes + d, code);
        *zc = lanes_fma(v, level, *zc);
        *cc = lanes_fma(level, level, *cc);
    }
}

// Rotates N vectors whose largest magnitudes these are, and finds their codes and scales.
LANES_INLINE void quantize_vectors(int N, kvern_stream stream, size_t dim, turbo_vectors *v,
                                   const float largest[4], uint16_t scales[4])
{
    kvern_turbo_unit unit[4];
    lanes a[4], b[4];
    float zz[4], zc[4], cc[4];
    KVERN_UNROLL
    for (int i = 0; i < N; i++) {
        unit[i] = kvern_turbo_unit_of(largest[i]);
        for (size_t d = 0; d < dim; d += 16)
            lanes_store(v->z[i] + d, lanes_mul(lanes_load(v->z[i] + d), lanes_set(unit[i].factor)));
        CODES_ROTATE(dim, v->z[i]);
    }
    KVERN_UNROLL
    for (int i = 0; i < N; i++)
        a[i] = squares_of(dim, v->z[i]);
    sum_each(N, a, zz);
    KVERN_UNROLL
    for (int i = 0; i < N; i++)
        quantize(dim, v->z[i], sqrtf((float)dim / zz[i]), v->codes[i], &a[i], &b[i]);
    sum_each(N, a, zc);
    sum_each(N, b, cc);
    KVERN_UNROLL
    for (int i = 0; i < N; i++)
        scales[i] = kvern_turbo_scale_of(
            stream, &(kvern_turbo_sums){.zz = zz[i], .zc = zc[i], .cc = cc[i]}, unit[i].inverse);
}

LANES_INLINE void place(kvern_stream stream, void *block, size_t dim, size_t slot, uint16_t scale,
                        const uint8_t *codes)
{
    ((uint16_t *)block)[slot] = scale;
    place_codes(stream, kvern_turbo_words(block), dim, slot, codes);
}

static void encode(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                   size_t slot, kvern_type type, const void *values)
{
    (void)codec;
    turbo_vectors v;
    float largest[4];
    uint16_t scale;
    if (load_vectors(1, type, &values, dim, &v, largest)) {
        uint16_t scales[4];
        quantize_vectors(1, stream, dim, &v, largest, scales);
        scale = scales[0];
    } else {
        memset(v.codes[0], 0, dim);
        scale = largest[0] == 0 ? KVERN_TURBO_ZERO : KVERN_TURBO_NAN;
    }
    place(stream, block, dim, slot, scale, v.codes[0]);
}

static void encode_four(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                        size_t slot, kvern_type type, const void *const values[4])
{
    turbo_vectors v;
    float largest[4];
    uint16_t scales[4];
    if (!load_vectors(4, type, values, dim, &v, largest)) {
        for (size_t i = 0; i < 4; i++)
            encode(codec, stream, block, dim, slot + i, type, values[i]);
        return;
    }
    quantize_vectors(4, stream, dim, &v, largest, scales);
    for (size_t i = 0; i < 4; i++)
        place(stream, block, dim, slot + i, scales[i], v.codes[i]);
}

// ---- Rotating ----

static void prepare(const kvern_codec *codec, size_t dim, float *q)
{
    (void)codec;
    CODES_ROTATE(dim, q);
}

static void finish(const kvern_codec *codec, size_t dim, float *sums)
{
    (void)codec;
    CODES_ROTATE_BACK(dim, sums);
}

_Static_assert(KVERN_CODES_LANES == KVERN_PAGE_POSITIONS, "rows of an unpacked block");

const kvern_codec_kernels TURBO_KERNELS = {.encode = encode,
                                           .encode_four = encode_four,
                                           .score = score,
                                           .accumulate = accumulate,
                                           .decode_block = decode_block,
                                           .prepare = prepare,
                                           .finish = finish,
                                           .rotate = CODES_ROTATE};
