// SPDX-License-Identifier: MIT
// The kernels of affine blocks for one instruction set. Included once by affine_<isa>.c after a
// lanes header.
//
// Parameters:
//   AFFINE_SUFFIX    avx2, avx512, ...: ends the name of the function that hands the kernels out
//   AFFINE_MOST      query vectors that are worked on at once, 4 or 8
//   AFFINE_WIDE(r)   how many strips of 16 lanes r of them share a pass over a tile: 4, 2 or 1
//   AFFINE_FEW       query vectors that are served without a tile, at most
//   AFFINE_FEW_WIDE(r)  how many share the unpacking in registers: words and values need some too
//   affine_code      picks the codes out of words, as the instruction set does it best (see
//                    affine_avx2.c)
//
// Few query vectors take the codes as they are unpacked, in registers. For many, the codes of 64
// rows by 64 lanes (rows are dims of keys, or slots of values) are unpacked into a tile in the
// first-level cache first, and all vectors are multiplied with the tile. Both do the same
// operations in the same order. Nowhere is a code made into its value: scale and bias of a key join
// the sum of its group, those of a value join its weight.
#include "src/codec/affine/affine.h"
#include "src/math/unroll.h"

#include <string.h>

#define AFFINE_LANES 64   // of a tile
#define AFFINE_ROWS 64    // of a tile
#define AFFINE_VECTORS 32 // whose sums over a group are kept at once

typedef struct affine_tile {
    _Alignas(64) float rows[AFFINE_ROWS][AFFINE_LANES];
} affine_tile;

// ---- Unpacking ----

// Columns side by side, and where their values go.
typedef struct affine_columns {
    const uint32_t *words;
    size_t stride;             // from one word of a column to its next
    ptrdiff_t next;            // bytes from words to memory of its shape that is read next
    float (*to)[AFFINE_LANES]; // row 0, first lane
} affine_columns;

LANES_INLINE void load_words(int T, const affine_columns *c, size_t word, lanes_int words[4])
{
    const uint32_t *at = c->words + word * c->stride;
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        words[t] = lanes_int_load((const int32_t *)at + t * 16);
        lanes_prefetch((const char *)(at + t * 16) + c->next);
    }
}

// The last two codes of a column lie in the two upper bits of its words, the first word's lowest.
// They are gathered at the upper end of `rest`, from words that are loaded again: kept on the way,
// they would take registers from the sums.
LANES_INLINE void gather_rest(int bits, int T, const affine_columns *c, lanes_int rest[4])
{
    const lanes_int upper = lanes_int_set((int32_t)0xc0000000);
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        rest[t] = lanes_int_set(0);
    KVERN_UNROLL
    for (int word = 0; word < bits; word++) {
        const uint32_t *at = c->words + (size_t)word * c->stride;
        KVERN_UNROLL
        for (int t = 0; t < T; t++) {
            const lanes_int words = lanes_int_load((const int32_t *)at + t * 16);
            rest[t] = lanes_int_or(lanes_int_shr_logical(rest[t], 2), lanes_int_and(words, upper));
        }
    }
}

// One of the last two codes, 0 or 1, of a column, from what has been gathered.
LANES_INLINE lanes rest_code(int bits, lanes_int rest, int number)
{
    return affine_code(bits, lanes_int_shr_logical(rest, 32 - 2 * bits + number * bits), 0);
}

// The codes of one word of T strips: consecutive rows.
LANES_INLINE void unpack_word(int bits, int T, const affine_columns *c, size_t word)
{
    const size_t row = word * (size_t)(32 / bits);
    lanes_int words[4];
    load_words(T, c, word, words);
    KVERN_UNROLL
    for (int j = 0; j < 32 / bits; j++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            lanes_store(c->to[row + (size_t)j] + t * 16, affine_code(bits, words[t], j * bits));
    }
}

LANES_INLINE void unpack_strips(int bits, int T, const affine_columns *c)
{
    for (size_t word = 0; word < (size_t)bits; word++)
        unpack_word(bits, T, c, word);
    if (32 % bits == 0)
        return;
    lanes_int rest[4];
    gather_rest(bits, T, c, rest);
    KVERN_UNROLL
    for (int i = 0; i < 2 * T; i++)
        lanes_store(c->to[30 + i / T] + i % T * 16, rest_code(bits, rest[i % T], i / T));
}

// Columns of `strips` times 16 lanes.
LANES_INLINE void unpack(int bits, affine_columns c, size_t strips)
{
    if (strips == 4) {
        unpack_strips(bits, 4, &c);
        return;
    }
    for (size_t t = 0; t < strips; t++) {
        unpack_strips(bits, 1, &c);
        c.words += 16;
        c.to = (float(*)[AFFINE_LANES])(c.to[0] + 16);
    }
}

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

// ---- Few vectors ----

// One row of codes for R vectors and T strips: a[i * a_stride] is the row's factor of vector i.
LANES_INLINE void add_row(int R, int T, const lanes strip[4], const float *a, size_t a_stride,
                          lanes acc[AFFINE_MOST][4])
{
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        const lanes weight = lanes_set(a[(size_t)i * a_stride]);
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            acc[i][t] = lanes_fma(weight, strip[t], acc[i][t]);
    }
}

// The codes of one word of T strips.
LANES_INLINE void add_word(int bits, int R, int T, const affine_columns *c, size_t word,
                           const float *a, size_t a_stride, lanes acc[AFFINE_MOST][4])
{
    const size_t row = word * (size_t)(32 / bits);
    lanes_int words[4];
    load_words(T, c, word, words);
    KVERN_UNROLL
    for (int j = 0; j < 32 / bits; j++) {
        lanes strip[4];
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            strip[t] = affine_code(bits, words[t], j * bits);
        add_row(R, T, strip, a + row + j, a_stride, acc);
    }
}

// All 32 rows of T strips.
LANES_INLINE void add_columns(int bits, int R, int T, const affine_columns *c, const float *a,
                              size_t a_stride, lanes acc[AFFINE_MOST][4])
{
    for (size_t word = 0; word < (size_t)bits; word++)
        add_word(bits, R, T, c, word, a, a_stride, acc);
    if (32 % bits == 0)
        return;
    lanes_int rest[4];
    gather_rest(bits, T, c, rest);
    KVERN_UNROLL
    for (int number = 0; number < 2; number++) {
        lanes strip[4];
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            strip[t] = rest_code(bits, rest[t], number);
        add_row(R, T, strip, a + 30 + number, a_stride, acc);
    }
}

// ---- Multiplying ----

// c[i][lane] += sum over the rows of a[i][row] * tile[row][lane], rows ascending, one fma each.
typedef struct affine_product {
    const float (*rows)[AFFINE_LANES];
    size_t count;   // rows
    size_t width;   // lanes, a multiple of 16
    const float *a; // of the first row; a[i * a_stride + row]
    size_t a_stride;
    float *c; // c[i * c_stride + lane]
    size_t c_stride;
    bool fresh;        // start from +0 instead of c
    const float *bias; // added at the end: bias[i] to all lanes; NULL: nothing is
} affine_product;

LANES_INLINE void multiply_pass(int R, int T, const affine_product *p, size_t first, size_t lane)
{
    lanes acc[AFFINE_MOST][4];
    float *c = p->c + first * p->c_stride + lane;
    const float *a = p->a + first * p->a_stride;
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            acc[i][t] = p->fresh ? lanes_zero() : lanes_load(c + (size_t)i * p->c_stride + t * 16);
    }
    for (size_t row = 0; row < p->count; row++) {
        const float *b = p->rows[row] + lane;
        lanes strip[4];
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            strip[t] = lanes_load(b + t * 16);
        KVERN_UNROLL
        for (int i = 0; i < R; i++) {
            const lanes weight = lanes_set(a[(size_t)i * p->a_stride + row]);
            KVERN_UNROLL
            for (int t = 0; t < T; t++)
                acc[i][t] = lanes_fma(weight, strip[t], acc[i][t]);
        }
    }
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        const lanes bias = p->bias ? lanes_set(p->bias[first + (size_t)i]) : lanes_zero();
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            lanes_store(c + (size_t)i * p->c_stride + t * 16,
                        p->bias ? lanes_add(acc[i][t], bias) : acc[i][t]);
    }
}

// All lanes for R vectors, the widest passes first.
LANES_INLINE void multiply_strips(int R, const affine_product *p, size_t first)
{
    size_t lane = 0;
    if (AFFINE_WIDE(R) >= 4)
        for (; lane + 64 <= p->width; lane += 64)
            multiply_pass(R, AFFINE_WIDE(R) >= 4 ? 4 : 1, p, first, lane);
    if (AFFINE_WIDE(R) >= 2)
        for (; lane + 32 <= p->width; lane += 32)
            multiply_pass(R, AFFINE_WIDE(R) >= 2 ? 2 : 1, p, first, lane);
    for (; lane < p->width; lane += 16)
        multiply_pass(R, 1, p, first, lane);
}

// Not inlined: it is the same for all bits.
static __attribute__((noinline)) void multiply(size_t n, const affine_product *p)
{
    size_t i = 0;
    for (; AFFINE_MOST > 4 && i + AFFINE_MOST <= n; i += AFFINE_MOST)
        multiply_strips(AFFINE_MOST, p, i);
    for (; i + 4 <= n; i += 4)
        multiply_strips(4, p, i);
    if (n - i == 3)
        multiply_strips(3, p, i);
    else if (n - i == 2)
        multiply_strips(2, p, i);
    else if (n - i == 1)
        multiply_strips(1, p, i);
}

// ---- Scores ----

// Where a group's sums go into the scores.
typedef struct affine_fold {
    affine_sides sides;
    size_t number;     // of the group
    const float *sums; // of the queries: sums[i * stride]
    size_t stride;
    size_t slot, width;                 // first lane, and lanes
    const float (*group)[AFFINE_LANES]; // sum of query times code, of each vector
    float *scores;                      // of slot 0; KVERN_PAGE_POSITIONS apart
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
LANES_INLINE void score_some(int bits, affine_sides sides, affine_columns columns, size_t dim,
                             size_t tile_begin, size_t tile_end, size_t n, const float *q,
                             size_t q_stride, float *scores)
{
    affine_tile tile;
    _Alignas(64) float group[AFFINE_VECTORS][AFFINE_LANES];
    const size_t slot = tile_begin * 16, width = (tile_end - tile_begin) * 16;
    const size_t size = sides.codec->group;
    affine_product product = {.rows = tile.rows,
                              .count = size < AFFINE_ROWS ? size : AFFINE_ROWS,
                              .width = width,
                              .a_stride = q_stride,
                              .c = group[0],
                              .c_stride = AFFINE_LANES};
    affine_fold fold = {.sides = sides,
                        .sums = q + dim,
                        .stride = q_stride,
                        .slot = slot,
                        .width = width,
                        .group = group,
                        .scores = scores};
    columns.words += slot;
    for (size_t d = 0; d < dim; d += product.count) {
        for (size_t row = 0; row < product.count; row += KVERN_AFFINE_COLUMN) {
            columns.to = tile.rows + row;
            unpack(bits, columns, tile_end - tile_begin);
            columns.words += (size_t)bits * KVERN_PAGE_POSITIONS;
        }
        product.a = q + d;
        product.fresh = d % size == 0;
        multiply(n, &product);
        if ((d + product.count) % size)
            continue;
        fold_group(n, &fold);
        fold.number++;
        fold.sums++;
    }
}

// Scores of R vectors in T strips from `slot` on.
LANES_INLINE void score_strips(int bits, int R, int T, const affine_sides *sides, affine_columns c,
                               size_t dim, size_t slot, const float *q, size_t q_stride,
                               float *scores)
{
    const size_t group = sides->codec->group;
    const float *sums = q + dim;
    c.words += slot;
    scores += slot;
    for (size_t g = 0; g < dim / group; g++) {
        lanes acc[AFFINE_MOST][4];
        KVERN_UNROLL
        for (int i = 0; i < R * T; i++)
            acc[i / T][i % T] = lanes_zero();
        for (size_t d = 0; d < group; d += KVERN_AFFINE_COLUMN, q += KVERN_AFFINE_COLUMN) {
            add_columns(bits, R, T, &c, q, q_stride, acc);
            c.words += (size_t)bits * KVERN_PAGE_POSITIONS;
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
LANES_INLINE void score_few(int bits, int R, const affine_sides *sides, affine_columns c,
                            size_t dim, const float *q, size_t q_stride, float *scores)
{
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot += 16 * AFFINE_FEW_WIDE(R))
        score_strips(bits, R, AFFINE_FEW_WIDE(R), sides, c, dim, slot, q, q_stride, scores);
}

LANES_INLINE void score_by_few(int bits, const affine_sides *sides, affine_columns c, size_t dim,
                               size_t n, const float *q, size_t q_stride, float *scores)
{
    size_t i = 0;
    for (; AFFINE_MOST > 4 && i + AFFINE_MOST <= n; i += AFFINE_MOST)
        score_few(bits, AFFINE_MOST, sides, c, dim, q + i * q_stride, q_stride,
                  scores + i * KVERN_PAGE_POSITIONS);
    for (; i + 4 <= n; i += 4)
        score_few(bits, 4, sides, c, dim, q + i * q_stride, q_stride,
                  scores + i * KVERN_PAGE_POSITIONS);
    q += i * q_stride;
    scores += i * KVERN_PAGE_POSITIONS;
    if (n - i == 3)
        score_few(bits, 3, sides, c, dim, q, q_stride, scores);
    else if (n - i == 2)
        score_few(bits, 2, sides, c, dim, q, q_stride, scores);
    else if (n - i == 1)
        score_few(bits, 1, sides, c, dim, q, q_stride, scores);
}

LANES_INLINE affine_sides sides_of(const kvern_codec *codec, const void *block, const void *next)
{
    return (affine_sides){codec, block, next ? (const char *)next - (const char *)block : 0};
}

LANES_INLINE void score(int bits, const kvern_codec *codec, const void *block, size_t dim,
                        size_t tile_begin, size_t tile_end, size_t n, const float *q,
                        size_t q_stride, float *scores, const void *next)
{
    if (tile_begin == tile_end)
        return;
    const affine_sides sides = sides_of(codec, block, next);
    const affine_columns c = {.words = kvern_affine_words(codec, block, dim),
                              .stride = KVERN_PAGE_POSITIONS,
                              .next = sides.next};
    if (tile_end - tile_begin == 4 && n <= AFFINE_FEW) {
        score_by_few(bits, &sides, c, dim, n, q, q_stride, scores);
        return;
    }
    for (size_t i = 0; i < n; i += AFFINE_VECTORS)
        score_some(bits, sides, c, dim, tile_begin, tile_end,
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

// The columns of the panel that holds dim d, from d on.
LANES_INLINE void enter_panel(int bits, size_t dim, size_t d, size_t half, const uint32_t *words,
                              affine_columns *c)
{
    const size_t first = d - d % KVERN_AFFINE_PANEL;
    c->words = words + kvern_affine_panel_at((uint32_t)bits, dim, first, half) + (d - first);
    c->stride = kvern_affine_panel_width(dim, first);
}

// T strips of a group from dim d on, all slots, R vectors.
LANES_INLINE void add_strips(int bits, int R, int T, size_t dim, size_t d, affine_columns c,
                             const affine_weights *weights, float *acc)
{
    const uint32_t *words = c.words;
    lanes sums[AFFINE_MOST][4];
    acc += d;
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        sums[i / T][i % T] = lanes_load(acc + (size_t)(i / T) * dim + i % T * 16);
    for (size_t half = 0; half < 2; half++) {
        enter_panel(bits, dim, d, half, words, &c);
        add_columns(bits, R, T, &c, weights->scaled[0] + half * KVERN_AFFINE_COLUMN,
                    KVERN_PAGE_POSITIONS, sums);
    }
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        lanes_store(acc + (size_t)(i / T) * dim + i % T * 16,
                    lanes_add(sums[i / T][i % T], lanes_set(weights->bias[i / T])));
}

// All slots for R vectors, group by group. A group is two strips at least.
LANES_INLINE void accumulate_few(int bits, int R, const affine_sides *sides, affine_columns c,
                                 size_t dim, const float *w, float *acc)
{
    affine_weights weights;
    const size_t group = sides->codec->group;
    const int wide = AFFINE_FEW_WIDE(R), narrow = AFFINE_FEW_WIDE(R) > 2 ? 2 : AFFINE_FEW_WIDE(R);
    for (size_t g = 0, d = 0; d < dim; g++) {
        const size_t end = d + group;
        weigh(sides, g, NULL, (size_t)R, w, &weights);
        if (group >= KVERN_AFFINE_PANEL)
            for (; d < end; d += 16 * (size_t)wide)
                add_strips(bits, R, wide, dim, d, c, &weights, acc);
        else
            for (; d < end; d += 16 * (size_t)narrow)
                add_strips(bits, R, narrow, dim, d, c, &weights, acc);
    }
}

LANES_INLINE void accumulate_by_few(int bits, const affine_sides *sides, affine_columns c,
                                    size_t dim, size_t n, const float *w, float *acc)
{
    size_t i = 0;
    for (; AFFINE_MOST > 4 && i + AFFINE_MOST <= n; i += AFFINE_MOST)
        accumulate_few(bits, AFFINE_MOST, sides, c, dim, w + i * KVERN_PAGE_POSITIONS,
                       acc + i * dim);
    for (; i + 4 <= n; i += 4)
        accumulate_few(bits, 4, sides, c, dim, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
    w += i * KVERN_PAGE_POSITIONS;
    acc += i * dim;
    if (n - i == 3)
        accumulate_few(bits, 3, sides, c, dim, w, acc);
    else if (n - i == 2)
        accumulate_few(bits, 2, sides, c, dim, w, acc);
    else if (n - i == 1)
        accumulate_few(bits, 1, sides, c, dim, w, acc);
}

// The slots [begin, end) for at most AFFINE_VECTORS vectors, group by group, at most a panel at a
// time.
LANES_INLINE void accumulate_some(int bits, const affine_sides *sides, affine_columns c, size_t dim,
                                  size_t begin, size_t end, size_t n, const float *w, float *acc)
{
    affine_tile tile;
    affine_weights weights;
    const affine_slots slots = slots_between(begin, end);
    const uint32_t *words = c.words;
    const size_t group = sides->codec->group;
    affine_product product = {.rows = tile.rows + begin,
                              .count = end - begin,
                              .width = group < KVERN_AFFINE_PANEL ? group : KVERN_AFFINE_PANEL,
                              .a = weights.scaled[0] + begin,
                              .a_stride = KVERN_PAGE_POSITIONS,
                              .c_stride = dim,
                              .bias = weights.bias};
    for (size_t d = 0; d < dim; d += product.width) {
        if (d % group == 0)
            weigh(sides, d / group, &slots, n, w, &weights);
        for (size_t half = begin / KVERN_AFFINE_COLUMN; half * KVERN_AFFINE_COLUMN < end; half++) {
            enter_panel(bits, dim, d, half, words, &c);
            c.to = tile.rows + half * KVERN_AFFINE_COLUMN;
            unpack(bits, c, product.width / 16);
        }
        product.c = acc + d;
        multiply(n, &product);
    }
}

LANES_INLINE void accumulate(int bits, const kvern_codec *codec, const void *block, size_t dim,
                             size_t begin, size_t end, size_t n, const float *w, float *acc,
                             const void *next)
{
    if (begin == end)
        return;
    const affine_sides sides = sides_of(codec, block, next);
    const affine_columns c = {.words = kvern_affine_words(codec, block, dim), .next = sides.next};
    if (begin == 0 && end == KVERN_PAGE_POSITIONS && n <= AFFINE_FEW) {
        accumulate_by_few(bits, &sides, c, dim, n, w, acc);
        return;
    }
    for (size_t i = 0; i < n; i += AFFINE_VECTORS)
        accumulate_some(bits, &sides, c, dim, begin, end,
                        n - i < AFFINE_VECTORS ? n - i : AFFINE_VECTORS,
                        w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
}

// ---- Encoding ----

// 16 values of a caller, rounded to the type of the scales.
LANES_INLINE lanes load_rounded(kvern_type scales, kvern_type type, const void *values, size_t d)
{
    uint16_t half[16];
    const uint16_t *at = (const uint16_t *)values + d;
    lanes v = type == KVERN_F32    ? lanes_load((const float *)values + d)
              : type == KVERN_BF16 ? lanes_load_bf16(at)
                                   : lanes_load_f16(at);
    if (scales == type || scales == KVERN_F32)
        return v;
    if (scales == KVERN_BF16) {
        lanes_store_bf16(half, v);
        return lanes_load_bf16(half);
    }
    lanes_store_f16(half, v);
    return lanes_load_f16(half);
}

// Codes of a group; returns its line.
LANES_INLINE kvern_affine_line encode_group(int bits, size_t group, const float *values,
                                            uint32_t *codes)
{
    const lanes most = lanes_set((float)((1 << bits) - 1));
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
    const kvern_affine_line line = kvern_affine_line_of((uint32_t)bits, -end[0], end[1]);
    const lanes bias = lanes_set(line.bias), scale = lanes_set(line.scale);
    for (size_t i = 0; i < group; i += 16) {
        const lanes steps = lanes_div(lanes_sub(lanes_load(values + i), bias), scale);
        const lanes code = lanes_min(lanes_max(lanes_rint(steps), lanes_zero()), most);
        lanes_int_store((int32_t *)codes + i, lanes_to_int(code));
    }
    return line;
}

LANES_INLINE void encode(int bits, const kvern_codec *codec, kvern_stream stream, void *block,
                         size_t dim, size_t slot, kvern_type type, const void *values)
{
    _Alignas(64) float wide[KVERN_MAX_HEAD_DIM];
    _Alignas(64) uint32_t codes[KVERN_MAX_HEAD_DIM];
    for (size_t d = 0; d < dim; d += 16)
        lanes_store(wide + d, load_rounded(codec->scales, type, values, d));
    for (size_t g = 0; g < dim / codec->group; g++) {
        const size_t d = g * codec->group;
        kvern_affine_place_line(codec, block, slot, g,
                                encode_group(bits, codec->group, wide + d, codes + d));
    }
    uint32_t *words = kvern_affine_words(codec, block, dim);
    if (stream == KVERN_STREAM_K)
        kvern_affine_place_k((uint32_t)bits, words, dim, slot, codes);
    else
        kvern_affine_place_v((uint32_t)bits, words, dim, slot, codes);
}

// ---- The kernels of each number of bits ----

#define AFFINE_KERNELS(bits)                                                                       \
    static void encode_##bits(const kvern_codec *codec, kvern_stream stream, void *block,          \
                              size_t dim, size_t slot, kvern_type type, const void *values)        \
    {                                                                                              \
        encode(bits, codec, stream, block, dim, slot, type, values);                               \
    }                                                                                              \
    static void score_##bits(const kvern_codec *codec, const void *block, size_t dim,              \
                             size_t tile_begin, size_t tile_end, size_t n, const float *q,         \
                             size_t q_stride, float *scores, const void *next)                     \
    {                                                                                              \
        score(bits, codec, block, dim, tile_begin, tile_end, n, q, q_stride, scores, next);        \
    }                                                                                              \
    static void accumulate_##bits(const kvern_codec *codec, const void *block, size_t dim,         \
                                  size_t begin, size_t end, size_t n, const float *w, float *acc,  \
                                  const void *next)                                                \
    {                                                                                              \
        accumulate(bits, codec, block, dim, begin, end, n, w, acc, next);                          \
    }

AFFINE_KERNELS(2)
AFFINE_KERNELS(3)
AFFINE_KERNELS(4)
AFFINE_KERNELS(5)
AFFINE_KERNELS(6)
AFFINE_KERNELS(8)

#define AFFINE_JOIN_(a, b) a##b
#define AFFINE_JOIN(a, b) AFFINE_JOIN_(a, b)

kvern_codec_kernels AFFINE_JOIN(kvern_affine_kernels_, AFFINE_SUFFIX)(uint32_t bits)
{
    switch (bits) {
    case 2:
        return (kvern_codec_kernels){encode_2, score_2, accumulate_2};
    case 3:
        return (kvern_codec_kernels){encode_3, score_3, accumulate_3};
    case 4:
        return (kvern_codec_kernels){encode_4, score_4, accumulate_4};
    case 5:
        return (kvern_codec_kernels){encode_5, score_5, accumulate_5};
    case 6:
        return (kvern_codec_kernels){encode_6, score_6, accumulate_6};
    default:
        return (kvern_codec_kernels){encode_8, score_8, accumulate_8};
    }
}
