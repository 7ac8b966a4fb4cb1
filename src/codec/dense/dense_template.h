// SPDX-License-Identifier: MIT
// The kernels of dense blocks for one type and one instruction set. Included once by
// kernels/dense_<type>_<isa>.c after dense_<isa>.h.
//
// Parameters:
//   DENSE_TYPE         of the stored numbers
//   DENSE_KERNELS      the name of the kernels
// and from dense_<isa>.h:
//   DENSE_MOST         query vectors that share a pass over the block, 4 or 8
//   DENSE_BY_WEIGHT    1 when a storage row of all strips fits the registers beside the sums
//   DENSE_WIDE(r)      strips of 16 lanes that r of them take in a pass, 4, 2 or 1: what fits the
//                      registers, with enough independent sums to hide the latency of fma
//   DENSE_MANY         from so many query vectors on, widening is shared
//   DENSE_KEPT_MOST    query vectors that share a pass over widened values
//   DENSE_KEPT_STRIPS  strips that they take, and that are widened at a time
//
// Scores and weighted sums are one loop: c[i][lane] += a[i][r] * b[r][lane], r ascending, one fma
// each. Lanes are different outputs, so no order of passes changes a bit.
//
// Many vectors share the widening of 16-bit values: the first DENSE_MOST of them read the block and
// leave the widened values in a small buffer, which stays in the first-level cache for the others.
#include "src/codec/dense/dense.h"
#include "src/math/unroll.h"

#include <stdbool.h>
#include <string.h>

// Where a pass reads and writes. Rows of b are dimensions (scores) or slots (values); a storage row
// holds one of them, or a pair for bf16.
typedef struct panel {
    const char *b;     // first storage row
    size_t row_bytes;  // of one storage row
    size_t begin, end; // rows of b to add; even for bf16
    size_t width;      // lanes, a multiple of 8
    const float *a;    // a[i * a_stride + r]
    size_t a_stride;
    float *c; // c[i * c_stride + lane]
    size_t c_stride;
    bool fresh;     // start from +0 instead of c
    ptrdiff_t next; // from b to memory of its shape that is read next; 0: none is known
    float *kept;    // where a keeping pass leaves the rows that it reads, widened
} panel;

// Vectors of a pass at most.
#define DENSE_SUMS (DENSE_MOST > DENSE_KEPT_MOST ? DENSE_MOST : DENSE_KEPT_MOST)

// Widened values at a time: rows of DENSE_KEPT_LANES lanes.
#define DENSE_KEPT_LANES (16 * DENSE_KEPT_STRIPS)
#define DENSE_KEPT_ROWS 128

LANES_INLINE size_t word_bytes(kvern_type type)
{
    return type == KVERN_F16 ? 2 : 4;
}

// Loads 16 lanes (8 when `part`) of a storage row: one row of b, or an even and an odd one.
LANES_INLINE void load_rows(kvern_type type, const char *at, bool part, lanes *even, lanes *odd)
{
    if (type == KVERN_F16) {
        uint16_t half[16] = {0};
        if (part)
            memcpy(half, at, 8 * sizeof half[0]);
        *even = *odd = lanes_load_f16(part ? half : (const uint16_t *)at);
    } else if (type == KVERN_F32) {
        *even = *odd = part ? lanes_load_part((const float *)at, 8) : lanes_load((const float *)at);
    } else if (part) {
        const lanes_int words = lanes_bits(lanes_load_part((const float *)at, 8));
        *even = lanes_from_bits(lanes_int_shl(words, 16));
        *odd = lanes_from_bits(lanes_int_and(words, lanes_int_set((int)0xffff0000)));
    } else {
        lanes_load_bf16_pairs((const uint16_t *)at, even, odd);
    }
}

// What a pass over the block does: `keep` leaves the widened rows behind, `part` has 8 lanes.
typedef struct form {
    kvern_type type;
    int vectors, strips; // of 16 lanes
    bool part, keep;
} form;

// Strip t of a storage row, and a hint that the same place of the next block is wanted soon.
LANES_INLINE void take_strip(form f, const panel *p, const char *row, float *kept, int t,
                             lanes *even, lanes *odd)
{
    const char *at = row + (size_t)t * 16 * word_bytes(f.type);
    load_rows(f.type, at, f.part, even, odd);
    lanes_prefetch(at + p->next);
    if (f.keep)
        lanes_store(kept + t * 16, *even);
    if (f.keep && f.type == KVERN_BF16)
        lanes_store(kept + DENSE_KEPT_LANES + t * 16, *odd);
}

// One storage row for all vectors and strips: the rows of all strips are loaded first, then each
// weight is broadcast once. Register hungry.
LANES_INLINE void add_row_by_weight(form f, const panel *p, const char *row, float *kept,
                                    const float *a, lanes acc[DENSE_SUMS][4])
{
    lanes even[4], odd[4];
    KVERN_UNROLL
    for (int t = 0; t < f.strips; t++)
        take_strip(f, p, row, kept, t, &even[t], &odd[t]);
    const int pairs = f.type == KVERN_BF16 ? f.strips : 0;
    KVERN_UNROLL
    for (int i = 0; i < f.vectors; i++) {
        const float *weight = a + (size_t)i * p->a_stride;
        KVERN_UNROLL
        for (int t = 0; t < f.strips; t++)
            acc[i][t] = lanes_fma(lanes_set(weight[0]), even[t], acc[i][t]);
        KVERN_UNROLL
        for (int t = 0; t < pairs; t++)
            acc[i][t] = lanes_fma(lanes_set(weight[1]), odd[t], acc[i][t]);
    }
}

// The same strip by strip: the weights are held and the rows pass.
LANES_INLINE void add_row_by_strip(form f, const panel *p, const char *row, float *kept,
                                   const float *a, lanes acc[DENSE_SUMS][4])
{
    KVERN_UNROLL
    for (int t = 0; t < f.strips; t++) {
        lanes even, odd;
        take_strip(f, p, row, kept, t, &even, &odd);
        KVERN_UNROLL
        for (int i = 0; i < f.vectors; i++) {
            const float *weight = a + (size_t)i * p->a_stride;
            acc[i][t] = lanes_fma(lanes_set(weight[0]), even, acc[i][t]);
            if (f.type == KVERN_BF16)
                acc[i][t] = lanes_fma(lanes_set(weight[1]), odd, acc[i][t]);
        }
    }
}

// All storage rows of [begin, end) in order.
LANES_INLINE void add_rows(form f, const panel *p, size_t lane, const float *a,
                           lanes acc[DENSE_SUMS][4])
{
    const size_t step = f.type == KVERN_BF16 ? 2 : 1;
    const char *row = p->b + p->begin / step * p->row_bytes + lane * word_bytes(f.type);
    float *kept = p->kept;
    for (size_t r = p->begin; r < p->end; r += step, row += p->row_bytes) {
        if (DENSE_BY_WEIGHT)
            add_row_by_weight(f, p, row, kept, a + r, acc);
        else
            add_row_by_strip(f, p, row, kept, a + r, acc);
        if (f.keep)
            kept += step * DENSE_KEPT_LANES;
    }
}

LANES_INLINE lanes load_sum(bool part, const float *from)
{
    return part ? lanes_load_part(from, 8) : lanes_load(from);
}

LANES_INLINE void store_sum(bool part, float *to, lanes sum)
{
    if (part)
        lanes_store_part(to, sum, 8);
    else
        lanes_store(to, sum);
}

// Sums are held in registers from the first row to the last.
LANES_INLINE void pass(form f, const panel *p, size_t i0, size_t lane)
{
    lanes acc[DENSE_SUMS][4];
    float *c = p->c + i0 * p->c_stride + lane;
    KVERN_UNROLL
    for (int i = 0; i < f.vectors; i++) {
        KVERN_UNROLL
        for (int t = 0; t < f.strips; t++)
            acc[i][t] =
                p->fresh ? lanes_zero() : load_sum(f.part, c + (size_t)i * p->c_stride + t * 16);
    }
    add_rows(f, p, lane, p->a + i0 * p->a_stride, acc);
    KVERN_UNROLL
    for (int i = 0; i < f.vectors; i++) {
        KVERN_UNROLL
        for (int t = 0; t < f.strips; t++)
            store_sum(f.part, c + (size_t)i * p->c_stride + t * 16, acc[i][t]);
    }
}

// All lanes from `lane` on for R vectors, the widest passes first.
LANES_INLINE void strips(kvern_type type, int R, const panel *p, size_t i0, size_t lane)
{
    if (DENSE_WIDE(R) >= 4)
        for (; lane + 64 <= p->width; lane += 64)
            pass((form){type, R, DENSE_WIDE(R) >= 4 ? 4 : 1, false, false}, p, i0, lane);
    if (DENSE_WIDE(R) >= 2)
        for (; lane + 32 <= p->width; lane += 32)
            pass((form){type, R, DENSE_WIDE(R) >= 2 ? 2 : 1, false, false}, p, i0, lane);
    for (; lane + 16 <= p->width; lane += 16)
        pass((form){type, R, 1, false, false}, p, i0, lane);
    if (lane < p->width)
        pass((form){type, R, 1, true, false}, p, i0, lane);
}

// 16 values, 8 at the end of a row whose length is no multiple of 16.
LANES_INLINE lanes load_values(kvern_type type, const void *values, size_t d, bool part)
{
    if (type == KVERN_F32) {
        const float *at = (const float *)values + d;
        return part ? lanes_load_part(at, 8) : lanes_load(at);
    }
    uint16_t half[16] = {0};
    memcpy(half, (const uint16_t *)values + d, (part ? 8 : 16) * sizeof half[0]);
    return type == KVERN_BF16 ? lanes_load_bf16(half) : lanes_load_f16(half);
}

LANES_INLINE void encode_as(kvern_type stored, kvern_stream stream, void *block, size_t dim,
                            size_t slot, kvern_type type, const void *values)
{
    float wide[KVERN_MAX_STREAM_DIM + 8];
    uint16_t half[KVERN_MAX_STREAM_DIM + 8];
    for (size_t d = 0; d < dim; d += 16) {
        const lanes v = load_values(type, values, d, dim - d < 16);
        if (stored == KVERN_F32)
            lanes_store(wide + d, v);
        else if (stored == KVERN_BF16)
            lanes_store_bf16(half + d, v);
        else
            lanes_store_f16(half + d, v);
    }
    if (stored == KVERN_F32)
        kvern_dense_place(stored, stream, block, dim, slot, wide);
    else
        kvern_dense_place(stored, stream, block, dim, slot, half);
}

// The lanes from `lane` on, which is 0 unless others have been done.
LANES_INLINE void multiply_few(kvern_type type, size_t n, const panel *p, size_t lane)
{
    size_t i = 0;
    for (; DENSE_MOST > 4 && i + DENSE_MOST <= n; i += DENSE_MOST)
        strips(type, DENSE_MOST, p, i, lane);
    for (; i + 4 <= n; i += 4)
        strips(type, 4, p, i, lane);
    if (n - i == 3)
        strips(type, 3, p, i, lane);
    else if (n - i == 2)
        strips(type, 2, p, i, lane);
    else if (n - i == 1)
        strips(type, 1, p, i, lane);
}

// DENSE_KEPT_LANES lanes from `lane` on for n vectors, over the widened rows [0, rows).
LANES_INLINE void multiply_kept(size_t n, const panel *kept)
{
    size_t i = 0;
    for (; i + DENSE_KEPT_MOST <= n; i += DENSE_KEPT_MOST)
        pass((form){KVERN_F32, DENSE_KEPT_MOST, DENSE_KEPT_STRIPS, false, false}, kept, i, 0);
    panel rest = *kept;
    rest.a += i * kept->a_stride;
    rest.c += i * kept->c_stride;
    multiply_few(KVERN_F32, n - i, &rest, 0);
}

// A part of the block that fits the buffer: the first vectors widen it, the others read it there.
LANES_INLINE void multiply_part(kvern_type type, size_t n, const panel *p, size_t lane)
{
    _Alignas(64) float kept[DENSE_KEPT_ROWS * DENSE_KEPT_LANES];
    panel first = *p, others = *p;
    first.kept = kept;
    pass((form){type, DENSE_MOST, DENSE_KEPT_STRIPS, false, true}, &first, 0, lane);
    others.b = (const char *)kept;
    others.row_bytes = DENSE_KEPT_LANES * sizeof(float);
    others.begin = 0;
    others.end = p->end - p->begin;
    others.width = DENSE_KEPT_LANES;
    others.a += DENSE_MOST * p->a_stride + p->begin;
    others.c += DENSE_MOST * p->c_stride + lane;
    others.next = 0;
    multiply_kept(n - DENSE_MOST, &others);
}

LANES_INLINE void multiply_many(kvern_type type, size_t n, const panel *p)
{
    panel rows = *p;
    for (; rows.begin < p->end; rows.begin = rows.end) {
        rows.end = p->end - rows.begin < DENSE_KEPT_ROWS ? p->end : rows.begin + DENSE_KEPT_ROWS;
        size_t lane = 0;
        for (; lane + DENSE_KEPT_LANES <= p->width; lane += DENSE_KEPT_LANES)
            multiply_part(type, n, &rows, lane);
        multiply_few(type, n, &rows, lane);
        rows.fresh = false;
    }
}

LANES_INLINE void multiply(kvern_type type, size_t n, const panel *p)
{
    if (n >= DENSE_MANY)
        multiply_many(type, n, p);
    else
        multiply_few(type, n, p, 0);
}

// Half a storage row of bf16: one slot of a pair whose other slot is not visible.
LANES_INLINE void add_half_row(size_t n, const panel *p, size_t r)
{
    for (size_t lane = 0; lane < p->width; lane += 16) {
        const bool part = p->width - lane < 16;
        lanes even, odd;
        load_rows(KVERN_BF16, p->b + r / 2 * p->row_bytes + lane * 4, part, &even, &odd);
        for (size_t i = 0; i < n; i++) {
            float *c = p->c + i * p->c_stride + lane;
            const lanes weight = lanes_set(p->a[i * p->a_stride + r]);
            store_sum(part, c, lanes_fma(weight, r % 2 ? odd : even, load_sum(part, c)));
        }
    }
}

// Rows in ascending order: a first half row, whole storage rows, a last half row.
LANES_INLINE void multiply_slots(kvern_type type, size_t n, panel p)
{
    const size_t end = p.end;
    if (type == KVERN_BF16) {
        if (p.begin % 2 && p.begin < end)
            add_half_row(n, &p, p.begin++);
        p.end = end & ~(size_t)1;
    }
    if (p.begin < p.end)
        multiply(type, n, &p);
    if (p.end < end && p.begin < end)
        add_half_row(n, &p, end - 1);
}

// Keys: the lanes are the slots of the tiles asked for, the rows are all dimensions.
LANES_INLINE void score_as(kvern_type type, const void *block, size_t dim, size_t tile_begin,
                           size_t tile_end, size_t n, const float *q, size_t q_stride,
                           float *scores, const void *next)
{
    const size_t skipped = tile_begin * 16 * word_bytes(type);
    const panel p = {
        .b = (const char *)block + skipped,
        .row_bytes = KVERN_PAGE_POSITIONS * word_bytes(type),
        .begin = 0,
        .end = dim,
        .width = (tile_end - tile_begin) * 16,
        .a = q,
        .a_stride = q_stride,
        .c = scores + tile_begin * 16,
        .c_stride = KVERN_PAGE_POSITIONS,
        .fresh = true,
        .next = next ? (const char *)next - (const char *)block : 0,
    };
    multiply(type, n, &p);
}

// Values: panel by panel, the lanes are dimensions, the rows are slots.
LANES_INLINE void accumulate_as(kvern_type type, const void *block, size_t dim, size_t begin,
                                size_t end, size_t n, const float *w, float *acc, const void *next)
{
    const size_t element = kvern_type_bytes(type);
    for (size_t first = 0; first < dim; first += KVERN_DENSE_PANEL) {
        const size_t width = kvern_dense_panel_width(dim, first);
        const size_t offset = first * KVERN_PAGE_POSITIONS * element;
        const panel p = {
            .b = (const char *)block + offset,
            .row_bytes = width * word_bytes(type),
            .begin = begin,
            .end = end,
            .width = width,
            .a = w,
            .a_stride = KVERN_PAGE_POSITIONS,
            .c = acc + first,
            .c_stride = dim,
            .fresh = false,
            .next = next ? (const char *)next - (const char *)block : 0,
        };
        multiply_slots(type, n, p);
    }
}

// Storage rows one by one: of 64 slots, whatever the type.
LANES_INLINE void decode_block_as(kvern_type type, const void *block, size_t begin, size_t end,
                                  float *to)
{
    const size_t step = type == KVERN_BF16 ? 2 : 1;
    const char *row = (const char *)block + begin / step * KVERN_PAGE_POSITIONS * word_bytes(type);
    for (size_t d = begin; d < end; d += step) {
        KVERN_UNROLL
        for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot += 16) {
            lanes even, odd;
            float *at = to + (d - begin) * KVERN_PAGE_POSITIONS + slot;
            load_rows(type, row + slot * word_bytes(type), false, &even, &odd);
            lanes_store(at, even);
            if (type == KVERN_BF16)
                lanes_store(at + KVERN_PAGE_POSITIONS, odd);
        }
        row += KVERN_PAGE_POSITIONS * word_bytes(type);
    }
}

static void encode(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                   size_t slot, kvern_type from, const void *values)
{
    (void)codec;
    encode_as(DENSE_TYPE, stream, block, dim, slot, from, values);
}

static void score(const kvern_codec *codec, const void *block, size_t dim, size_t tile_begin,
                  size_t tile_end, size_t n, const float *q, size_t q_stride, float *scores,
                  const void *next)
{
    (void)codec;
    score_as(DENSE_TYPE, block, dim, tile_begin, tile_end, n, q, q_stride, scores, next);
}

static void accumulate(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                       size_t end, size_t n, const float *w, float *acc, const void *next)
{
    (void)codec;
    accumulate_as(DENSE_TYPE, block, dim, begin, end, n, w, acc, next);
}

static void decode_block(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                         size_t end, float *to)
{
    (void)codec;
    (void)dim;
    decode_block_as(DENSE_TYPE, block, begin, end, to);
}

const kvern_codec_kernels DENSE_KERNELS = {
    .encode = encode, .score = score, .accumulate = accumulate, .decode_block = decode_block};
