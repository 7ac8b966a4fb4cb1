// SPDX-License-Identifier: MIT
// Index scores for one instruction set; equal to index_score_plain.c bit for bit. Included once by
// index_score_<isa>.c after a lanes header.
//
// Parameter: INDEX_SCORE, the name of the kernel.
#include "src/attend/index_score.h"

#include "src/math/unroll.h"

#define SLOTS 64
#define TILES 4 // of 16 lanes

LANES_INLINE lanes relu_lanes(lanes x)
{
    return lanes_max(lanes_zero(), x); // x where it is NaN, and where it is not below 0
}

LANES_INLINE lanes order_keys(lanes s)
{
    const lanes_int bits = lanes_bits(lanes_add(s, lanes_zero())); // -0 becomes +0
    const lanes_int flip = lanes_int_or(lanes_int_shr(bits, 31), lanes_int_set(INT32_MIN));
    return lanes_clear(lanes_isnan(s), lanes_from_bits(lanes_int_xor(bits, flip)));
}

void INDEX_SCORE(size_t heads, const float *weights, const float *dots, size_t count,
                 uint32_t *keys)
{
    (void)count; // vectors have lanes for what is not asked
    lanes sum[TILES];
    KVERN_UNROLL
    for (int t = 0; t < TILES; t++)
        sum[t] = lanes_zero();
    for (size_t h = 0; h < heads; h++) {
        const lanes weight = lanes_set(weights[h]);
        KVERN_UNROLL
        for (int t = 0; t < TILES; t++)
            sum[t] = lanes_fma(weight, relu_lanes(lanes_load(dots + h * SLOTS + 16 * t)), sum[t]);
    }
    KVERN_UNROLL
    for (int t = 0; t < TILES; t++)
        lanes_int_store((int32_t *)keys + 16 * t, lanes_bits(order_keys(sum[t])));
}
