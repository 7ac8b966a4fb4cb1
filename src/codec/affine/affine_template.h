// SPDX-License-Identifier: MIT
// The kernels of affine blocks for one width of codes and one instruction set. Included once by
// kernels/affine_<bits>_<isa>.c after codes_<isa>.h.
//
// Parameters:
//   AFFINE_BITS     of a code
//   AFFINE_KERNELS  the name of the kernels
//   AFFINE_ROTATED_KERNELS  of those for rotated vectors
//
// Nowhere is a code made into its value: scale and bias of a key join the sum of its group, those
// of a value join its weight.
#include "src/codec/affine/affine.h"
#include "src/codec/rotation/rotation.h"

#define CODES_BITS AFFINE_BITS
#define CODES_VALUES(words, shift) codes_as_floats(AFFINE_BITS, words, shift)
#include "src/codec/codes/codes_template.h"

#include <string.h>

#define AFFINE_VECTORS 32 // whose sums over a group are kept at once

// ---- Scales and biases ----

// Where they are in a block, and memory of the same shape that is read next.
typedef struct affine_sides {
    const kvern_codec *codec;
    const char *block;
    ptrdiff_t next; // bytes from one to the other
} affine_sides;

// 16 of them, from number `at` on (kvern_affine_scale_at, kvern_affine_bias_at). No call in it: one
// would send the registers of the caller to memory.
LANES_INLINE lanes load_sides(const affine_sides *sides, size_t at)
{
    const kvern_type type = sides->codec->scales;
    const char *from = sides->block + at * (type == KVERN_F32 ? sizeof(float) : sizeof(uint16_t));
    lanes_prefetch(from + sides->next);
    return type == KVERN_BF16  ? lanes_load_bf16((const uint16_t *)from)
           : type == KVERN_F16 ? lanes_load_f16((const uint16_t *)from)
                               : lanes_load((const float *)from);
}

// ---- Scores ----

// Where a group's sums go into the scores.
typedef struct affine_fold {
    affine_sides sides;
    size_t number;     // of the group
    const float *sums; // of the queries: sums[i * stride]
    size_t stride;
    size_t slot, width;                      // first lane, and lanes
    const float (*group)[KVERN_CODES_LANES]; // sum of query times code, of each vector
    float *scores;                           // of slot 0; KVERN_PAGE_POSITIONS apart
} affine_fold;

static __attribute__((noinline)) void fold_group(size_t n, const affine_fold *f)
{
    for (size_t lane = 0; lane < f->width; lane += 16) {
        const size_t slot = f->slot + lane;
        const lanes scale = load_sides(&f->sides, kvern_affine_scale_at(slot, f->number));
        const lanes bias = load_sides(&f->sides, kvern_affine_bias_at(slot, f->number));
        for (size_t i = 0; i < n; i++) {
            float *to = f->scores + i * KVERN_PAGE_POSITIONS + slot;
            lanes s = f->number == 0 ? lanes_zero() : lanes_load(to);
            s = lanes_fma(scale, lanes_load(f->group[i] + lane), s);
            s = lanes_fma(bias, lanes_set(f->sums[i * f->stride]), s);
            lanes_store(to, s);
        }
    }
}

// Scores of at most AFFINE_VECTORS vectors: tile by tile, and at the end of each group its scale
// and bias.
LANES_INLINE void score_some(affine_sides sides, codes_columns columns, size_t dim,
                             size_t tile_begin, size_t tile_end, size_t n, const float *q,
                             size_t q_stride, float *scores)
{
    kvern_codes_tile tile;
    _Alignas(64) float group[AFFINE_VECTORS][KVERN_CODES_LANES];
    const size_t slot = tile_begin * 16, width = (tile_end - tile_begin) * 16;
    const size_t size = sides.codec->group;
    kvern_codes_product product = {.rows = (const float(*)[KVERN_CODES_LANES])tile.rows,
                                   .count = size < KVERN_CODES_ROWS ? size : KVERN_CODES_ROWS,
                                   .width = width,
                                   .a_stride = q_stride,
                                   .c = group[0],
                                   .c_stride = KVERN_CODES_LANES};
    affine_fold fold = {.sides = sides,
                        .sums = q + dim,
                        .stride = q_stride,
                        .slot = slot,
                        .width = width,
                        .group = (const float(*)[KVERN_CODES_LANES])group,
                        .scores = scores};
    columns.words += slot;
    for (size_t d = 0; d < dim; d += product.count) {
        for (size_t row = 0; row < product.count; row += KVERN_CODES_COLUMN) {
            columns.to = tile.rows + row;
            unpack(columns, tile_end - tile_begin);
            columns.words += AFFINE_BITS * KVERN_PAGE_POSITIONS;
        }
        product.a = q + d;
        product.fresh = d % size == 0;
        CODES_MULTIPLY(n, &product);
        if ((d + product.count) % size)
            continue;
        fold_group(n, &fold);
        fold.number++;
        fold.sums++;
    }
}

// Scores of R vectors in T strips from `slot` on.
LANES_INLINE void score_strips(int R, int T, const affine_sides *sides, codes_columns c, size_t dim,
                               size_t slot, const float *q, size_t q_stride, float *scores)
{
    const size_t group = sides->codec->group;
    const float *sums = q + dim;
    c.words += slot;
    scores += slot;
    for (size_t g = 0; g < dim / group; g++) {
        lanes acc[CODES_MOST][4];
        KVERN_UNROLL
        for (int i = 0; i < R * T; i++)
            acc[i / T][i % T] = lanes_zero();
        for (size_t d = 0; d < group; d += KVERN_CODES_COLUMN, q += KVERN_CODES_COLUMN) {
            add_columns(R, T, &c, q, q_stride, acc);
            c.words += AFFINE_BITS * KVERN_PAGE_POSITIONS;
        }
        lanes scale[4], bias[4];
        KVERN_UNROLL
        for (int t = 0; t < T; t++) {
            scale[t] = load_sides(sides, kvern_affine_scale_at(slot, g) + t * 16);
            bias[t] = load_sides(sides, kvern_affine_bias_at(slot, g) + t * 16);
        }
        KVERN_UNROLL
        for (int i = 0; i < R * T; i++) {
            float *to = scores + (size_t)(i / T) * KVERN_PAGE_POSITIONS + i % T * 16;
            lanes s = g == 0 ? lanes_zero() : lanes_load(to);
            s = lanes_fma(scale[i % T], acc[i / T][i % T], s);
            s = lanes_fma(bias[i % T], lanes_set(sums[(size_t)(i / T) * q_stride + g]), s);
            lanes_store(to, s);
        }
    }
}

// All scores of a block for R vectors.
LANES_INLINE void score_few(int R, const affine_sides *sides, codes_columns c, size_t dim,
                            const float *q, size_t q_stride, float *scores)
{
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot += 16 * CODES_FEW_WIDE(R))
        score_strips(R, CODES_FEW_WIDE(R), sides, c, dim, slot, q, q_stride, scores);
}

LANES_INLINE void score_by_few(const affine_sides *sides, codes_columns c, size_t dim, size_t n,
                               const float *q, size_t q_stride, float *scores)
{
    size_t i = 0;
    for (; CODES_MOST > 4 && i + CODES_MOST <= n; i += CODES_MOST)
        score_few(CODES_MOST, sides, c, dim, q + i * q_stride, q_stride,
                  scores + i * KVERN_PAGE_POSITIONS);
    for (; i + 4 <= n; i += 4)
        score_few(4, sides, c, dim, q + i * q_stride, q_stride, scores + i * KVERN_PAGE_POSITIONS);
    q += i * q_stride;
    scores += i * KVERN_PAGE_POSITIONS;
    if (n - i == 3)
        score_few(3, sides, c, dim, q, q_stride, scores);
    else if (n - i == 2)
        score_few(2, sides, c, dim, q, q_stride, scores);
    else if (n - i == 1)
        score_few(1, sides, c, dim, q, q_stride, scores);
}

LANES_INLINE affine_sides sides_of(const kvern_codec *codec, const void *block, const void *next)
{
    return (affine_sides){codec, block, next ? (const char *)next - (const char *)block : 0};
}

static void score(const kvern_codec *codec, const void *block, size_t dim, size_t tile_begin,
                  size_t tile_end, size_t n, const float *q, size_t q_stride, float *scores,
                  const void *next)
{
    if (tile_begin == tile_end)
        return;
    const affine_sides sides = sides_of(codec, block, next);
    const codes_columns c = {.words = kvern_affine_words(codec, block, dim),
                             .stride = KVERN_PAGE_POSITIONS,
                             .next = sides.next};
    if (tile_end - tile_begin == 4 && n <= CODES_FEW) {
        score_by_few(&sides, c, dim, n, q, q_stride, scores);
        return;
    }
    for (size_t i = 0; i < n; i += AFFINE_VECTORS)
        score_some(sides, c, dim, tile_begin, tile_end,
                   n - i < AFFINE_VECTORS ? n - i : AFFINE_VECTORS, q + i * q_stride, q_stride,
                   scores + i * KVERN_PAGE_POSITIONS);
}

// ---- Weighted sums ----

// What scales and biases of a group make of the weights of the vectors.
typedef struct affine_weights {
    _Alignas(64) float scaled[AFFINE_VECTORS][KVERN_PAGE_POSITIONS]; // weight times scale
    float bias[AFFINE_VECTORS];                                      // sum of weight times bias
} affine_weights;

// Which slots count: the bits of one strip each.
typedef struct affine_slots {
    lanes_mask inside[4];
} affine_slots;

LANES_INLINE affine_slots slots_between(size_t begin, size_t end)
{
    const uint64_t below = end == KVERN_PAGE_POSITIONS ? UINT64_MAX : (UINT64_C(1) << end) - 1;
    const uint64_t slots = below >> begin << begin;
    affine_slots out;
    for (int t = 0; t < 4; t++)
        out.inside[t] = lanes_mask_from_bits((uint32_t)(slots >> 16 * t) & 0xffff);
    return out;
}

// One vector; returns the sums of weight times bias, which the tree adds up. Slots that do not
// count have a bias of 0 already. `slots` NULL: all count.
LANES_INLINE lanes weigh_vector(const lanes scale[4], const lanes bias[4],
                                const affine_slots *slots, const float *w, float *scaled)
{
    lanes sum = lanes_zero();
    KVERN_UNROLL
    for (int t = 0; t < 4; t++) {
        const lanes weight = lanes_load(w + t * 16);
        lanes_store(scaled + t * 16, lanes_mul(weight, scale[t]));
        sum = lanes_fma(slots ? lanes_keep(slots->inside[t], weight) : weight, bias[t], sum);
    }
    return sum;
}

LANES_INLINE void weigh(const affine_sides *sides, size_t group, const affine_slots *slots,
                        size_t n, const float *w, affine_weights *out)
{
    lanes scale[4], bias[4];
    KVERN_UNROLL
    for (int t = 0; t < 4; t++) {
        scale[t] = load_sides(sides, kvern_affine_scale_at((size_t)t * 16, group));
        bias[t] = load_sides(sides, kvern_affine_bias_at((size_t)t * 16, group));
        if (slots)
            bias[t] = lanes_keep(slots->inside[t], bias[t]);
    }
    for (size_t i = 0; i < n; i += 4) {
        lanes sums[4];
        KVERN_UNROLL
        for (size_t j = 0; j < 4; j++)
            sums[j] = i + j < n
                          ? weigh_vector(scale, bias, slots, w + (i + j) * KVERN_PAGE_POSITIONS,
                                         out->scaled[i + j])
                          : lanes_zero();
        lanes_sum_each(sums, out->bias + i);
    }
}

// T strips of a group from dim d on, all slots, R vectors.
LANES_INLINE void add_strips(int R, int T, size_t dim, size_t d, codes_columns c,
                             const affine_weights *weights, float *acc)
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
        lanes_store(acc + (size_t)(i / T) * dim + i % T * 16,
                    lanes_add(sums[i / T][i % T], lanes_set(weights->bias[i / T])));
}

// All slots for R vectors, group by group. A group is two strips at least.
LANES_INLINE void accumulate_few(int R, const affine_sides *sides, codes_columns c, size_t dim,
                                 const float *w, float *acc)
{
    affine_weights weights;
    const size_t group = sides->codec->group;
    const int wide = CODES_FEW_WIDE(R), narrow = CODES_FEW_WIDE(R) > 2 ? 2 : CODES_FEW_WIDE(R);
    for (size_t g = 0, d = 0; d < dim; g++) {
        const size_t end = d + group;
        weigh(sides, g, NULL, (size_t)R, w, &weights);
        if (group >= KVERN_CODES_PANEL)
            for (; d < end; d += 16 * (size_t)wide)
                add_strips(R, wide, dim, d, c, &weights, acc);
        else
            for (; d < end; d += 16 * (size_t)narrow)
                add_strips(R, narrow, dim, d, c, &weights, acc);
    }
}

LANES_INLINE void accumulate_by_few(const affine_sides *sides, codes_columns c, size_t dim,
                                    size_t n, const float *w, float *acc)
{
    size_t i = 0;
    for (; CODES_MOST > 4 && i + CODES_MOST <= n; i += CODES_MOST)
        accumulate_few(CODES_MOST, sides, c, dim, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
    for (; i + 4 <= n; i += 4)
        accumulate_few(4, sides, c, dim, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
    w += i * KVERN_PAGE_POSITIONS;
    acc += i * dim;
    if (n - i == 3)
        accumulate_few(3, sides, c, dim, w, acc);
    else if (n - i == 2)
        accumulate_few(2, sides, c, dim, w, acc);
    else if (n - i == 1)
        accumulate_few(1, sides, c, dim, w, acc);
}

// The slots [begin, end) for at most AFFINE_VECTORS vectors, group by group, at most a panel at a
// time.
LANES_INLINE void accumulate_some(const affine_sides *sides, codes_columns c, size_t dim,
                                  size_t begin, size_t end, size_t n, const float *w, float *acc)
{
    kvern_codes_tile tile;
    affine_weights weights;
    const affine_slots slots = slots_between(begin, end);
    const uint32_t *words = c.words;
    const size_t group = sides->codec->group;
    kvern_codes_product product = {.rows = (const float(*)[KVERN_CODES_LANES])tile.rows + begin,
                                   .count = end - begin,
                                   .width = group < KVERN_CODES_PANEL ? group : KVERN_CODES_PANEL,
                                   .a = weights.scaled[0] + begin,
                                   .a_stride = KVERN_PAGE_POSITIONS,
                                   .c_stride = dim,
                                   .bias = weights.bias};
    for (size_t d = 0; d < dim; d += product.width) {
        if (d % group == 0)
            weigh(sides, d / group, &slots, n, w, &weights);
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
    if (begin == end)
        return;
    const affine_sides sides = sides_of(codec, block, next);
    const codes_columns c = {.words = kvern_affine_words(codec, block, dim), .next = sides.next};
    if (begin == 0 && end == KVERN_PAGE_POSITIONS && n <= CODES_FEW) {
        accumulate_by_few(&sides, c, dim, n, w, acc);
        return;
    }
    for (size_t i = 0; i < n; i += AFFINE_VECTORS)
        accumulate_some(&sides, c, dim, begin, end, n - i < AFFINE_VECTORS ? n - i : AFFINE_VECTORS,
                        w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
}

// ---- Encoding ----

// Rounded to the type of the scales.
LANES_INLINE lanes rounded(kvern_type scales, lanes v)
{
    uint16_t half[16];
    if (scales == KVERN_F32)
        return v;
    if (scales == KVERN_BF16) {
        lanes_store_bf16(half, v);
        return lanes_load_bf16(half);
    }
    lanes_store_f16(half, v);
    return lanes_load_f16(half);
}

// Codes of a group; returns its line.
LANES_INLINE kvern_affine_line encode_group(size_t group, const float *values, uint8_t *codes)
{
    const lanes most = lanes_set((float)((1 << AFFINE_BITS) - 1));
    lanes hi = lanes_load(values), lo = lanes_neg(hi); // the least value is the largest negative
    lanes_mask infinite = lanes_mask_from_bits(0);
    for (size_t i = 0; i < group; i += 16) {
        const lanes v = lanes_load(values + i);
        hi = lanes_max(v, hi);
        lo = lanes_max(lanes_neg(v), lo);
        infinite = lanes_mask_or(infinite, lanes_isnan(lanes_sub(v, v)));
    }
    if (lanes_mask_bits(infinite)) {
        memset(codes, 0, group * sizeof *codes);
        return kvern_affine_no_line();
    }
    const lanes ends[4] = {lo, hi, lo, hi};
    float end[4];
    lanes_largest_each(ends, end);
    const kvern_affine_line line = kvern_affine_line_of(AFFINE_BITS, -end[0], end[1]);
    const lanes bias = lanes_set(line.bias), scale = lanes_set(line.scale);
    for (size_t i = 0; i < group; i += 16) {
        const lanes steps = lanes_div(lanes_sub(lanes_load(values + i), bias), scale);
        const lanes code = lanes_min(lanes_max(lanes_rint(steps), lanes_zero()), most);
        lanes_int_store_bytes(codes + i, lanes_to_int(code));
    }
    return line;
}

// Of numbers that are rounded already.
static void encode_wide(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                        size_t slot, const float *wide)
{
    _Alignas(64) uint8_t codes[KVERN_MAX_STREAM_DIM];
    for (size_t g = 0; g < dim / codec->group; g++) {
        const size_t d = g * codec->group;
        kvern_affine_place_line(codec, block, slot, g,
                                encode_group(codec->group, wide + d, codes + d));
    }
    uint32_t *words = kvern_affine_words(codec, block, dim);
    place_codes(stream, words, dim, slot, codes);
}

static void encode(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                   size_t slot, kvern_type type, const void *values)
{
    _Alignas(64) float wide[KVERN_MAX_STREAM_DIM];
    for (size_t d = 0; d < dim; d += 16) {
        const lanes v = load_numbers(type, values, d);
        lanes_store(wide + d, type == codec->scales ? v : rounded(codec->scales, v));
    }
    encode_wide(codec, stream, block, dim, slot, wide);
}

static void encode_rotated(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                           size_t slot, kvern_type type, const void *values)
{
    _Alignas(64) float wide[KVERN_MAX_STREAM_DIM];
    for (size_t d = 0; d < dim; d += 16)
        lanes_store(wide + d, load_numbers(type, values, d));
    CODES_ROTATE(dim, wide);
    for (size_t d = 0; d < dim; d += 16)
        lanes_store(wide + d, rounded(codec->scales, lanes_load(wide + d)));
    encode_wide(codec, stream, block, dim, slot, wide);
}

// ---- Decoding ----

// The lines of a group.
LANES_INLINE codes_lines load_lines(const affine_sides *sides, size_t group)
{
    codes_lines lines;
    KVERN_UNROLL
    for (int t = 0; t < 4; t++) {
        lines.scale[t] = load_sides(sides, kvern_affine_scale_at((size_t)t * 16, group));
        lines.bias[t] = load_sides(sides, kvern_affine_bias_at((size_t)t * 16, group));
    }
    return lines;
}

static void decode_block(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                         size_t end, float *to)
{
    const affine_sides sides = sides_of(codec, block, NULL);
    codes_columns c = {.words = kvern_affine_words(codec, block, dim) +
                                begin / KVERN_CODES_COLUMN * AFFINE_BITS * KVERN_PAGE_POSITIONS,
                       .stride = KVERN_PAGE_POSITIONS,
                       .to = (float(*)[KVERN_CODES_LANES])to};
    for (size_t d = begin; d < end; d += KVERN_CODES_COLUMN) {
        const codes_lines lines = load_lines(&sides, d / codec->group);
        unpack_strips(4, &c, &lines);
        c.words += AFFINE_BITS * KVERN_PAGE_POSITIONS;
        c.to += KVERN_CODES_COLUMN;
    }
}

_Static_assert(KVERN_CODES_LANES == KVERN_PAGE_POSITIONS && KVERN_CODES_LANES == 4 * 16,
               "rows of a decoded block are four strips");

const kvern_codec_kernels AFFINE_KERNELS = {.encode = encode,
                                            .score = score,
                                            .accumulate = accumulate,
                                            .decode_block = decode_block,
                                            .prepare = kvern_affine_prepare};

// ---- Rotated vectors ----

static void prepare_rotated(const kvern_codec *codec, size_t dim, float *q)
{
    CODES_ROTATE(dim, q);
    kvern_affine_prepare(codec, dim, q);
}

static void finish_rotated(const kvern_codec *codec, size_t dim, float *sums)
{
    (void)codec;
    CODES_ROTATE_BACK(dim, sums);
}

const kvern_codec_kernels AFFINE_ROTATED_KERNELS = {.encode = encode_rotated,
                                                    .score = score,
                                                    .accumulate = accumulate,
                                                    .decode_block = decode_block,
                                                    .prepare = prepare_rotated,
                                                    .finish = finish_rotated,
                                                    .rotate = CODES_ROTATE};
