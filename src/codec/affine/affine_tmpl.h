// SPDX-License-Identifier: MIT
// The kernels of affine blocks for one instruction set. Included once by affine_<isa>.c after a
// lanes header.
//
// Parameters:
//   AFFINE_SUFFIX    avx2, avx512, ...: ends the name of the function that hands the kernels out
//   AFFINE_MOST      query vectors that are worked on at once, 4 or 8
//   AFFINE_WIDE(r)   how many strips of 16 lanes r of them share a pass over a tile: 4, 2 or 1
//   AFFINE_FEW_WIDE(r)  how many share the unpacking in registers: words and values need some too
//   affine_grid, affine_grid_of, affine_value
//                    the values of a group's codes, as the instruction set looks them up best (see
//                    affine_avx2.c)
//
// Few query vectors take the codes as they are unpacked, in registers. For many, the codes of 64
// rows by 64 lanes (rows are dims of keys, or slots of values) are unpacked into a tile in the
// first-level cache first, and all vectors are multiplied with the tile. Both do the same
// operations in the same order.
#include "src/codec/affine/affine.h"
#include "src/math/unroll.h"

#include <string.h>

#define AFFINE_LANES 64   // of a tile
#define AFFINE_ROWS 64    // of a tile
#define AFFINE_FEW 8      // vectors that are served without a tile
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
    const float *scales;       // scale and bias of row 0; NULL: the codes themselves are wanted
    size_t scale_stride;       // from one row's to the next row's
    float (*to)[AFFINE_LANES]; // row 0, first lane
} affine_columns;

LANES_INLINE affine_grid grid_of_row(int bits, bool plain, const affine_columns *c, size_t row)
{
    if (plain)
        return affine_grid_of(bits, lanes_set(1), lanes_zero());
    const float *at = c->scales + row * c->scale_stride;
    return affine_grid_of(bits, lanes_set(at[0]), lanes_set(at[1]));
}

LANES_INLINE void load_words(int T, const affine_columns *c, size_t word, lanes_int words[4])
{
    const uint32_t *at = c->words + word * c->stride;
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        words[t] = lanes_int_load((const int32_t *)at + t * 16);
        lanes_prefetch((const char *)(at + t * 16) + c->next);
    }
}

// The two upper bits of all words, put together: the last two codes.
LANES_INLINE void load_rest(int bits, int T, const affine_columns *c, lanes_int rest[4])
{
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        rest[t] = lanes_int_set(0);
        KVERN_UNROLL
        for (int w = 0; w < bits; w++) {
            const uint32_t *at = c->words + (size_t)w * c->stride + t * 16;
            const lanes_int upper = lanes_int_and(lanes_int_load((const int32_t *)at),
                                                  lanes_int_set((int32_t)0xc0000000));
            rest[t] = lanes_int_or(rest[t], lanes_int_shr_logical(upper, 30 - 2 * w));
        }
    }
}

// The codes of one word of T strips: consecutive rows.
LANES_INLINE void unpack_word(int bits, int T, bool plain, const affine_columns *c, size_t word)
{
    const size_t row = word * (size_t)(32 / bits);
    lanes_int words[4];
    load_words(T, c, word, words);
    KVERN_UNROLL
    for (int j = 0; j < 32 / bits; j++) {
        const affine_grid grid = grid_of_row(bits, plain, c, row + (size_t)j);
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            lanes_store(c->to[row + (size_t)j] + t * 16,
                        affine_value(bits, plain, grid, words[t], j * bits));
    }
}

LANES_INLINE void unpack_rest(int bits, int T, bool plain, const affine_columns *c)
{
    const affine_grid grid30 = grid_of_row(bits, plain, c, 30);
    const affine_grid grid31 = grid_of_row(bits, plain, c, 31);
    lanes_int rest[4];
    load_rest(bits, T, c, rest);
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        lanes_store(c->to[30] + t * 16, affine_value(bits, plain, grid30, rest[t], 0));
        lanes_store(c->to[31] + t * 16, affine_value(bits, plain, grid31, rest[t], bits));
    }
}

LANES_INLINE void unpack_strips(int bits, int T, bool plain, const affine_columns *c)
{
    for (size_t word = 0; word < (size_t)bits; word++)
        unpack_word(bits, T, plain, c, word);
    if (32 % bits)
        unpack_rest(bits, T, plain, c);
}

// Columns of `strips` times 16 lanes.
LANES_INLINE void unpack(int bits, bool plain, affine_columns c, size_t strips)
{
    if (strips == 4) {
        unpack_strips(bits, 4, plain, &c);
        return;
    }
    for (size_t t = 0; t < strips; t++) {
        unpack_strips(bits, 1, plain, &c);
        c.words += 16;
        c.to = (float(*)[AFFINE_LANES])(c.to[0] + 16);
    }
}

// All scales and biases of a block as floats. `next`: bytes to those that are read next.
LANES_INLINE void load_sides(const kvern_codec *codec, const void *block, size_t dim,
                             ptrdiff_t next, float *sides)
{
    const size_t count = kvern_affine_sides(codec, dim);
    for (size_t i = 0; i < count; i += 16) {
        const uint16_t *half = (const uint16_t *)block + i;
        lanes_prefetch((const char *)block + i * kvern_type_bytes(codec->scales) + next);
        lanes_store(sides + i, codec->scales == KVERN_F32    ? lanes_load((const float *)block + i)
                               : codec->scales == KVERN_BF16 ? lanes_load_bf16(half)
                                                             : lanes_load_f16(half));
    }
}

#define AFFINE_MOST_SIDES (2 * KVERN_AFFINE_MOST_GROUPS * KVERN_PAGE_POSITIONS)

// ---- Few vectors ----

// One row of codes for R vectors and T strips: a[i * a_stride] is the row's factor of vector i.
LANES_INLINE void add_row(int bits, int R, int T, bool plain, affine_grid grid,
                          const lanes_int words[4], int shift, const float *a, size_t a_stride,
                          lanes acc[AFFINE_MOST][4])
{
    lanes strip[4];
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        strip[t] = affine_value(bits, plain, grid, words[t], shift);
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        const lanes weight = lanes_set(a[(size_t)i * a_stride]);
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            acc[i][t] = lanes_fma(weight, strip[t], acc[i][t]);
    }
}

// How many codes of a word are taken by constants before the words are shifted: as many as the
// instruction sets pick without a shift of their own, so that the loop need not be unrolled fully.
LANES_INLINE int codes_at_once(int bits)
{
    return bits <= 3 ? 1 : bits == 5 ? 3 : bits == 6 ? 5 : 4;
}

// The codes of one word of T strips.
LANES_INLINE void add_word(int bits, int R, int T, bool plain, const affine_columns *c, size_t word,
                           const float *a, size_t a_stride, lanes acc[AFFINE_MOST][4])
{
    const size_t per_word = (size_t)(32 / bits), first = word * per_word;
    const int at_once = codes_at_once(bits);
    lanes_int words[4];
    load_words(T, c, word, words);
    for (size_t row = first; row < first + per_word; row += (size_t)at_once) {
        KVERN_UNROLL
        for (int j = 0; j < at_once; j++)
            add_row(bits, R, T, plain, grid_of_row(bits, plain, c, row + (size_t)j), words,
                    j * bits, a + row + j, a_stride, acc);
        if (at_once == 32 / bits)
            return;
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            words[t] = lanes_int_shr_logical(words[t], at_once * bits);
    }
}

// All 32 rows of T strips.
LANES_INLINE void add_columns(int bits, int R, int T, bool plain, const affine_columns *c,
                              const float *a, size_t a_stride, lanes acc[AFFINE_MOST][4])
{
    for (size_t word = 0; word < (size_t)bits; word++)
        add_word(bits, R, T, plain, c, word, a, a_stride, acc);
    if (32 % bits) {
        lanes_int rest[4];
        load_rest(bits, T, c, rest);
        add_row(bits, R, T, plain, grid_of_row(bits, plain, c, 30), rest, 0, a + 30, a_stride, acc);
        add_row(bits, R, T, plain, grid_of_row(bits, plain, c, 31), rest, bits, a + 31, a_stride,
                acc);
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
    bool fresh; // start from +0 instead of c
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
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            lanes_store(c + (size_t)i * p->c_stride + t * 16, acc[i][t]);
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
    const float *scales, *biases; // of the first lane
    const float *sums;            // of the queries: sums[i * stride]
    size_t stride;
    size_t width;                       // lanes
    const float (*group)[AFFINE_LANES]; // sum of query times code, of each vector
    float *scores;                      // of the first lane; KVERN_PAGE_POSITIONS apart
    bool fresh;                         // the first group
} affine_fold;

static __attribute__((noinline)) void fold_group(size_t n, const affine_fold *f)
{
    for (size_t lane = 0; lane < f->width; lane += 16) {
        const lanes scale = lanes_load(f->scales + lane), bias = lanes_load(f->biases + lane);
        for (size_t i = 0; i < n; i++) {
            float *to = f->scores + i * KVERN_PAGE_POSITIONS + lane;
            lanes s = f->fresh ? lanes_zero() : lanes_load(to);
            s = lanes_fma(scale, lanes_load(f->group[i] + lane), s);
            s = lanes_fma(bias, lanes_set(f->sums[i * f->stride]), s);
            lanes_store(to, s);
        }
    }
}

// Scores of at most AFFINE_VECTORS vectors: tile by tile, and at the end of each group its scale
// and bias.
LANES_INLINE void score_some(int bits, const kvern_codec *codec, const void *block, size_t dim,
                             size_t tile_begin, size_t tile_end, size_t n, const float *q,
                             size_t q_stride, float *scores, const void *next)
{
    affine_tile tile;
    _Alignas(64) float sides[AFFINE_MOST_SIDES], group[AFFINE_VECTORS][AFFINE_LANES];
    const size_t slot = tile_begin * 16, width = (tile_end - tile_begin) * 16;
    affine_columns columns = {
        .words = kvern_affine_words(codec, block, dim) + slot,
        .stride = KVERN_PAGE_POSITIONS,
        .next = next ? (const char *)next - (const char *)block : 0,
    };
    load_sides(codec, block, dim, columns.next, sides);
    affine_product product = {.rows = tile.rows,
                              .count = codec->group < AFFINE_ROWS ? codec->group : AFFINE_ROWS,
                              .width = width,
                              .a_stride = q_stride,
                              .c = group[0],
                              .c_stride = AFFINE_LANES};
    affine_fold fold = {.scales = sides + slot,
                        .biases = sides + slot + KVERN_PAGE_POSITIONS,
                        .sums = q + dim,
                        .stride = q_stride,
                        .width = width,
                        .group = group,
                        .scores = scores + slot,
                        .fresh = true};
    for (size_t d = 0; d < dim; d += product.count) {
        for (size_t row = 0; row < product.count; row += KVERN_AFFINE_COLUMN) {
            columns.to = tile.rows + row;
            unpack(bits, true, columns, tile_end - tile_begin);
            columns.words += (size_t)bits * KVERN_PAGE_POSITIONS;
        }
        product.a = q + d;
        product.fresh = d % codec->group == 0;
        multiply(n, &product);
        if ((d + product.count) % codec->group)
            continue;
        fold_group(n, &fold);
        fold.scales += 2 * KVERN_PAGE_POSITIONS;
        fold.biases += 2 * KVERN_PAGE_POSITIONS;
        fold.sums++;
        fold.fresh = false;
    }
}

// Scores of R vectors in T strips. `c` and `scores` begin at the first slot, `sides` at the scale
// of its first group.
LANES_INLINE void score_strips(int bits, int R, int T, size_t groups, size_t group,
                               affine_columns c, const float *sides, const float *q,
                               size_t q_stride, float *scores)
{
    const float *sums = q + groups * group;
    for (size_t g = 0; g < groups; g++, sides += 2 * KVERN_PAGE_POSITIONS) {
        lanes acc[AFFINE_MOST][4];
        KVERN_UNROLL
        for (int i = 0; i < R * T; i++)
            acc[i / T][i % T] = lanes_zero();
        for (size_t d = 0; d < group; d += KVERN_AFFINE_COLUMN, q += KVERN_AFFINE_COLUMN) {
            add_columns(bits, R, T, true, &c, q, q_stride, acc);
            c.words += (size_t)bits * KVERN_PAGE_POSITIONS;
        }
        KVERN_UNROLL
        for (int i = 0; i < R * T; i++) {
            const float *side = sides + i % T * 16;
            float *to = scores + (size_t)(i / T) * KVERN_PAGE_POSITIONS + i % T * 16;
            lanes s = g == 0 ? lanes_zero() : lanes_load(to);
            s = lanes_fma(lanes_load(side), acc[i / T][i % T], s);
            s = lanes_fma(lanes_load(side + KVERN_PAGE_POSITIONS),
                          lanes_set(sums[(size_t)(i / T) * q_stride + g]), s);
            lanes_store(to, s);
        }
    }
}

// All scores of a block for R vectors.
LANES_INLINE void score_few(int bits, int R, const kvern_codec *codec, const void *block,
                            size_t dim, const float *q, size_t q_stride, float *scores,
                            const void *next)
{
    _Alignas(64) float sides[AFFINE_MOST_SIDES];
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    affine_columns c = {.stride = KVERN_PAGE_POSITIONS,
                        .next = next ? (const char *)next - (const char *)block : 0};
    load_sides(codec, block, dim, c.next, sides);
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot += 16 * AFFINE_FEW_WIDE(R)) {
        c.words = words + slot;
        score_strips(bits, R, AFFINE_FEW_WIDE(R), dim / codec->group, codec->group, c, sides + slot,
                     q, q_stride, scores + slot);
    }
}

LANES_INLINE void score_by_few(int bits, const kvern_codec *codec, const void *block, size_t dim,
                               size_t n, const float *q, size_t q_stride, float *scores,
                               const void *next)
{
    size_t i = 0;
    for (; AFFINE_MOST > 4 && i + AFFINE_MOST <= n; i += AFFINE_MOST)
        score_few(bits, AFFINE_MOST, codec, block, dim, q + i * q_stride, q_stride,
                  scores + i * KVERN_PAGE_POSITIONS, next);
    for (; i + 4 <= n; i += 4)
        score_few(bits, 4, codec, block, dim, q + i * q_stride, q_stride,
                  scores + i * KVERN_PAGE_POSITIONS, next);
    q += i * q_stride;
    scores += i * KVERN_PAGE_POSITIONS;
    if (n - i == 3)
        score_few(bits, 3, codec, block, dim, q, q_stride, scores, next);
    else if (n - i == 2)
        score_few(bits, 2, codec, block, dim, q, q_stride, scores, next);
    else if (n - i == 1)
        score_few(bits, 1, codec, block, dim, q, q_stride, scores, next);
}

LANES_INLINE void score(int bits, const kvern_codec *codec, const void *block, size_t dim,
                        size_t tile_begin, size_t tile_end, size_t n, const float *q,
                        size_t q_stride, float *scores, const void *next)
{
    if (tile_begin == tile_end)
        return;
    if (tile_end - tile_begin == 4 && n <= AFFINE_FEW) {
        score_by_few(bits, codec, block, dim, n, q, q_stride, scores, next);
        return;
    }
    for (size_t i = 0; i < n; i += AFFINE_VECTORS)
        score_some(bits, codec, block, dim, tile_begin, tile_end,
                   n - i < AFFINE_VECTORS ? n - i : AFFINE_VECTORS, q + i * q_stride, q_stride,
                   scores + i * KVERN_PAGE_POSITIONS, next);
}

// ---- Weighted sums ----

// One half of a panel, 32 slots of up to 64 dims, into a tile of all slots.
LANES_INLINE void unpack_half(int bits, const kvern_codec *codec, size_t dim, affine_columns c,
                              const float *sides, size_t first, size_t half, affine_tile *tile)
{
    const size_t groups = dim / codec->group, width = kvern_affine_panel_width(dim, first);
    const size_t run = codec->group < width ? codec->group : width; // lanes with one scale
    const size_t slot = half * KVERN_AFFINE_COLUMN;
    c.words += kvern_affine_panel_at((uint32_t)bits, dim, first, half);
    c.stride = width;
    c.scale_stride = 2 * groups;
    for (size_t lane = 0; lane < width; lane += run) {
        c.scales = sides + 2 * (slot * groups + (first + lane) / codec->group);
        c.to = (float(*)[AFFINE_LANES])(tile->rows[slot] + lane);
        if (run == 64)
            unpack_strips(bits, 4, false, &c);
        else
            unpack_strips(bits, 2, false, &c);
        c.words += run;
    }
}

// T strips of a panel with one scale and bias per slot, all 64 slots, R vectors.
LANES_INLINE void add_strips(int bits, int R, int T, affine_columns c, size_t half_words,
                             const float *w, float *acc, size_t dim)
{
    lanes sums[AFFINE_MOST][4];
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        sums[i / T][i % T] = lanes_load(acc + (size_t)(i / T) * dim + i % T * 16);
    for (int half = 0; half < 2; half++, w += KVERN_AFFINE_COLUMN) {
        add_columns(bits, R, T, false, &c, w, KVERN_PAGE_POSITIONS, sums);
        c.words += half_words;
        c.scales += KVERN_AFFINE_COLUMN * c.scale_stride;
    }
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        lanes_store(acc + (size_t)(i / T) * dim + i % T * 16, sums[i / T][i % T]);
}

// All slots for R vectors.
LANES_INLINE void accumulate_few(int bits, int R, const kvern_codec *codec, size_t dim,
                                 affine_columns c, const float *sides, const float *w, float *acc)
{
    c.scale_stride = 2 * (dim / codec->group);
    const uint32_t *words = c.words;
    for (size_t first = 0; first < dim; first += KVERN_AFFINE_PANEL) {
        c.stride = kvern_affine_panel_width(dim, first);
        const size_t half_words = (size_t)bits * c.stride;
        const bool wide = AFFINE_FEW_WIDE(R) == 4 && c.stride == 64 && codec->group >= 64;
        for (size_t lane = 0; lane < c.stride; lane += wide ? 64 : 32) {
            const size_t d = first + lane;
            c.words = words + kvern_affine_panel_at((uint32_t)bits, dim, first, 0) + lane;
            c.scales = sides + 2 * (d / codec->group);
            if (wide) {
                add_strips(bits, R, AFFINE_FEW_WIDE(R) == 4 ? 4 : 1, c, half_words, w, acc + d,
                           dim);
            } else if (AFFINE_FEW_WIDE(R) >= 2) {
                add_strips(bits, R, 2, c, half_words, w, acc + d, dim);
            } else {
                add_strips(bits, R, 1, c, half_words, w, acc + d, dim);
                c.words += 16;
                add_strips(bits, R, 1, c, half_words, w, acc + d + 16, dim);
            }
        }
    }
}

LANES_INLINE void accumulate_by_few(int bits, const kvern_codec *codec, size_t dim,
                                    affine_columns c, const float *sides, size_t n, const float *w,
                                    float *acc)
{
    size_t i = 0;
    for (; AFFINE_MOST > 4 && i + AFFINE_MOST <= n; i += AFFINE_MOST)
        accumulate_few(bits, AFFINE_MOST, codec, dim, c, sides, w + i * KVERN_PAGE_POSITIONS,
                       acc + i * dim);
    for (; i + 4 <= n; i += 4)
        accumulate_few(bits, 4, codec, dim, c, sides, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
    w += i * KVERN_PAGE_POSITIONS;
    acc += i * dim;
    if (n - i == 3)
        accumulate_few(bits, 3, codec, dim, c, sides, w, acc);
    else if (n - i == 2)
        accumulate_few(bits, 2, codec, dim, c, sides, w, acc);
    else if (n - i == 1)
        accumulate_few(bits, 1, codec, dim, c, sides, w, acc);
}

// The slots [begin, end) for any number of vectors.
LANES_INLINE void accumulate_many(int bits, const kvern_codec *codec, size_t dim, affine_columns c,
                                  const float *sides, size_t begin, size_t end, size_t n,
                                  const float *w, float *acc)
{
    affine_tile tile;
    affine_product product = {.rows = tile.rows + begin,
                              .count = end - begin,
                              .a = w + begin,
                              .a_stride = KVERN_PAGE_POSITIONS,
                              .c_stride = dim};
    for (size_t first = 0; first < dim && begin < end; first += KVERN_AFFINE_PANEL) {
        for (size_t half = begin / KVERN_AFFINE_COLUMN; half * KVERN_AFFINE_COLUMN < end; half++)
            unpack_half(bits, codec, dim, c, sides, first, half, &tile);
        product.width = kvern_affine_panel_width(dim, first);
        product.c = acc + first;
        multiply(n, &product);
    }
}

LANES_INLINE void accumulate(int bits, const kvern_codec *codec, const void *block, size_t dim,
                             size_t begin, size_t end, size_t n, const float *w, float *acc,
                             const void *next)
{
    _Alignas(64) float sides[AFFINE_MOST_SIDES];
    const bool whole = begin == 0 && end == KVERN_PAGE_POSITIONS;
    const affine_columns c = {.words = kvern_affine_words(codec, block, dim),
                              .next = next ? (const char *)next - (const char *)block : 0};
    load_sides(codec, block, dim, c.next, sides);
    if (whole && n <= AFFINE_FEW)
        accumulate_by_few(bits, codec, dim, c, sides, n, w, acc);
    else
        accumulate_many(bits, codec, dim, c, sides, begin, end, n, w, acc);
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
        kvern_affine_place_line(codec, stream, block, dim, slot, g,
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
