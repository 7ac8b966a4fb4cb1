// SPDX-License-Identifier: MIT
// The softmax kernels for one instruction set; equal to softmax_plain.c bit for bit. Included once
// by softmax_<isa>.c after a lanes header.
//
// Parameter: SOFTMAX_KERNELS, the name of the kernels.
#include "src/attend/softmax.h"

#include "src/math/exp_lanes.h"
#include "src/math/tanh_lanes.h"
#include "src/math/unroll.h"

#include <math.h>
#include <stdbool.h>

#define SLOTS 64
#define TILES 4  // of 16 lanes
#define GROUP 16 // vectors whose m and l are brought up to date together, one per lane

LANES_INLINE lanes_mask tile_mask(uint64_t visible, int tile)
{
    return lanes_mask_from_bits((uint32_t)(visible >> (16 * tile)) & 0xffff);
}

static void scale(size_t dim, const float *from, float factor, float *to)
{
    size_t d = 0;
    for (; d + 16 <= dim; d += 16)
        lanes_store(to + d, lanes_mul(lanes_load(from + d), lanes_set(factor)));
    if (d < dim)
        lanes_store_part(to + d, lanes_mul(lanes_load_part(from + d, 8), lanes_set(factor)), 8);
}

static void cap_scores(size_t n, float *w, float softcap)
{
    const lanes cap = lanes_set(softcap);
    for (size_t i = 0; i < n * SLOTS; i += 16)
        lanes_store(w + i, lanes_mul(cap, lanes_tanh(lanes_div(lanes_load(w + i), cap))));
}

// The largest visible scores of a vector, lane by lane.
LANES_INLINE lanes largest_scores(const float *w, uint64_t visible, bool all)
{
    lanes largest = lanes_set(-INFINITY);
    KVERN_UNROLL
    for (int t = 0; t < TILES; t++) {
        lanes s = lanes_load(w + 16 * t);
        if (!all)
            s = lanes_select(tile_mask(visible, t), s, lanes_set(-INFINITY));
        largest = lanes_max(s, largest);
    }
    return largest;
}

// Scores of a vector become weights; what is returned are the four tiles, added lane by lane.
LANES_INLINE lanes weigh_scores(float *w, uint64_t visible, bool all, float base)
{
    lanes sum = lanes_zero();
    KVERN_UNROLL
    for (int t = 0; t < TILES; t++) {
        const lanes x = lanes_sub(lanes_load(w + 16 * t), lanes_set(base));
        const lanes weight =
            all ? lanes_exp_nonpositive(x) : lanes_exp_nonpositive_where(tile_mask(visible, t), x);
        lanes_store(w + 16 * t, weight);
        sum = t == 0 ? weight : lanes_add(sum, weight);
    }
    return sum;
}

static void largest_of_group(size_t n, const float *w, const uint64_t *visible, float *top)
{
    lanes largest[GROUP];
    for (size_t i = 0; i < n; i++)
        largest[i] = visible[i] == UINT64_MAX ? largest_scores(w + i * SLOTS, UINT64_MAX, true)
                                              : largest_scores(w + i * SLOTS, visible[i], false);
    for (size_t i = n; i % 4 != 0; i++)
        largest[i] = lanes_zero();
    for (size_t i = 0; i < n; i += 4)
        lanes_largest_each(largest + i, top + i);
}

static void weigh_group(size_t n, float *w, const uint64_t *visible, const float *base, float *sums)
{
    lanes sum[GROUP];
    for (size_t i = 0; i < n; i++)
        sum[i] = visible[i] == UINT64_MAX ? weigh_scores(w + i * SLOTS, UINT64_MAX, true, base[i])
                                          : weigh_scores(w + i * SLOTS, visible[i], false, base[i]);
    for (size_t i = n; i % 4 != 0; i++)
        sum[i] = lanes_zero();
    for (size_t i = 0; i < n; i += 4)
        lanes_sum_each(sum + i, sums + i);
}

// Brings vectors whose block has a larger score than all before to that score.
LANES_INLINE lanes raise_group(size_t n, const float *top, float *m, float *l, float *acc,
                               size_t dim)
{
    const lanes old = lanes_load_part(m, (int)n);
    const lanes larger = lanes_load(top);
    const lanes_mask raised = lanes_gt(larger, old);
    uint32_t left = lanes_mask_bits(raised) & ((UINT32_C(1) << n) - 1);
    if (!left)
        return old;
    const lanes c = lanes_exp_nonpositive(lanes_sub(old, larger));
    const lanes sum = lanes_load_part(l, (int)n), now = lanes_select(raised, larger, old);
    lanes_store_part(l, lanes_select(raised, lanes_mul(sum, c), sum), (int)n);
    lanes_store_part(m, now, (int)n);
    float factor[GROUP];
    lanes_store(factor, c);
    for (; left; left &= left - 1) {
        const size_t i = (size_t)__builtin_ctz(left);
        scale(dim, acc + i * dim, factor[i], acc + i * dim);
    }
    return now;
}

static void softmax_group(size_t n, float *w, const uint64_t *visible, float *m, float *l,
                          float *acc, size_t dim)
{
    float top[GROUP] = {0}, base[GROUP], sums[GROUP] = {0};
    largest_of_group(n, w, visible, top);
    const lanes now = raise_group(n, top, m, l, acc, dim);
    lanes_store(base, lanes_clear(lanes_eq(now, lanes_set(-INFINITY)), now));
    weigh_group(n, w, visible, base, sums);
    lanes_store_part(l, lanes_add(lanes_load_part(l, (int)n), lanes_load(sums)), (int)n);
}

static void softmax(size_t n, float *weights, const uint64_t *visible, float softcap, float *m,
                    float *l, float *acc, size_t dim)
{
    if (softcap > 0)
        cap_scores(n, weights, softcap);
    for (size_t i = 0; i < n; i += GROUP) {
        const size_t count = n - i < GROUP ? n - i : GROUP;
        softmax_group(count, weights + i * SLOTS, visible + i, m + i, l + i, acc + i * dim, dim);
    }
}

// to = fma(from, b, to * a)
LANES_INLINE void blend_values(float *to, float a, const float *from, float b, size_t dim)
{
    size_t d = 0;
    for (; d + 16 <= dim; d += 16)
        lanes_store(to + d, lanes_fma(lanes_load(from + d), lanes_set(b),
                                      lanes_mul(lanes_load(to + d), lanes_set(a))));
    if (d < dim)
        lanes_store_part(to + d,
                         lanes_fma(lanes_load_part(from + d, 8), lanes_set(b),
                                   lanes_mul(lanes_load_part(to + d, 8), lanes_set(a))),
                         8);
}

// Up to GROUP vectors, one per lane.
static void merge_group(size_t n, float *m, float *l, float *acc, const float *m_part,
                        const float *l_part, const float *acc_part, size_t dim)
{
    const lanes so_far = lanes_load_part(m, (int)n), part = lanes_load_part(m_part, (int)n);
    const lanes larger = lanes_max(part, so_far);
    const lanes base = lanes_clear(lanes_eq(larger, lanes_set(-INFINITY)), larger);
    const lanes a = lanes_exp_nonpositive(lanes_sub(so_far, base));
    const lanes b = lanes_exp_nonpositive(lanes_sub(part, base));
    const lanes sum = lanes_mul(lanes_load_part(l, (int)n), a);
    lanes_store_part(l, lanes_fma(lanes_load_part(l_part, (int)n), b, sum), (int)n);
    lanes_store_part(m, larger, (int)n);
    float factor[GROUP], part_factor[GROUP];
    lanes_store(factor, a);
    lanes_store(part_factor, b);
    for (size_t i = 0; i < n; i++)
        blend_values(acc + i * dim, factor[i], acc_part + i * dim, part_factor[i], dim);
}

static void merge(size_t n, float *m, float *l, float *acc, const float *m_part,
                  const float *l_part, const float *acc_part, size_t dim)
{
    for (size_t i = 0; i < n; i += GROUP)
        merge_group(n - i < GROUP ? n - i : GROUP, m + i, l + i, acc + i * dim, m_part + i,
                    l_part + i, acc_part + i * dim, dim);
}

static void divide(size_t dim, const float *from, float divisor, float *to)
{
    size_t d = 0;
    for (; d + 16 <= dim; d += 16)
        lanes_store(to + d, lanes_div(lanes_load(from + d), lanes_set(divisor)));
    if (d < dim)
        lanes_store_part(to + d, lanes_div(lanes_load_part(from + d, 8), lanes_set(divisor)), 8);
}

const kvern_softmax_kernels SOFTMAX_KERNELS = {softmax, merge, scale, divide};
