// SPDX-License-Identifier: MIT
// The softmax kernels for one instruction set; equal to softmax_plain.c bit for bit. Included once
// by softmax_<isa>.c after a lanes header.
//
// Parameter: SOFTMAX_SUFFIX (avx2, avx512, ...) ends the name of the function that hands the
// kernels out.
#include "src/attend/softmax.h"

#include "src/math/exp_lanes.h"
#include "src/math/tanh_lanes.h"

#include <math.h>

#define SLOTS 64
#define TILES 4

LANES_INLINE lanes_mask tile_mask(uint64_t visible, int tile)
{
    return lanes_mask_from_bits((uint32_t)(visible >> (16 * tile)) & 0xffff);
}

// acc *= c, dim a multiple of 8.
LANES_INLINE void scale_values(float *acc, size_t dim, float c)
{
    size_t d = 0;
    for (; d + 16 <= dim; d += 16)
        lanes_store(acc + d, lanes_mul(lanes_load(acc + d), lanes_set(c)));
    if (d < dim)
        lanes_store_part(acc + d, lanes_mul(lanes_load_part(acc + d, 8), lanes_set(c)), 8);
}

LANES_INLINE float exp_of(float x)
{
    float lane[16];
    lanes_store(lane, lanes_exp_nonpositive(lanes_set(x)));
    return lane[0];
}

LANES_INLINE void softmax_one(float *w, uint64_t visible, float softcap, float *m, float *l,
                              float *acc, size_t dim)
{
    lanes s[TILES];
    lanes_mask seen[TILES];
    lanes largest = lanes_set(*m);
    for (int t = 0; t < TILES; t++) {
        s[t] = lanes_load(w + 16 * t);
        if (softcap > 0)
            s[t] = lanes_mul(lanes_set(softcap), lanes_tanh(lanes_div(s[t], lanes_set(softcap))));
        seen[t] = tile_mask(visible, t);
        largest = lanes_max(lanes_select(seen[t], s[t], lanes_set(-INFINITY)), largest);
    }
    const float top = lanes_largest(largest);
    if (top > *m) {
        const float c = exp_of(*m - top);
        *l *= c;
        scale_values(acc, dim, c);
        *m = top;
    }
    const lanes base = lanes_set(*m == -INFINITY ? 0 : *m);
    lanes sum = lanes_zero();
    for (int t = 0; t < TILES; t++) {
        const lanes e = lanes_exp_nonpositive(lanes_sub(s[t], base));
        const lanes weight = lanes_select(seen[t], e, lanes_zero());
        lanes_store(w + 16 * t, weight);
        sum = t == 0 ? weight : lanes_add(sum, weight);
    }
    *l += lanes_sum(sum);
}

static void softmax(size_t n, float *weights, const uint64_t *visible, float softcap, float *m,
                    float *l, float *acc, size_t dim)
{
    for (size_t i = 0; i < n; i++)
        softmax_one(weights + i * SLOTS, visible[i], softcap, m + i, l + i, acc + i * dim, dim);
}

static void blend(size_t dim, float *to, float a, const float *from, float b)
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

#define SOFTMAX_JOIN_(a, b) a##b
#define SOFTMAX_JOIN(a, b) SOFTMAX_JOIN_(a, b)

kvern_softmax_kernels SOFTMAX_JOIN(kvern_softmax_kernels_, SOFTMAX_SUFFIX)(void)
{
    return (kvern_softmax_kernels){softmax, blend};
}
