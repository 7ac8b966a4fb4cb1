// SPDX-License-Identifier: MIT
#include "engine/linear/lanes_avx2.h"

#define ACCUMULATORS 8

// The products go straight to 32-bit sums.
#define DOT_STEP(bits) 8
#define DOT_SIGNED_8_BITS 0

static inline lanes_int dot(int bits, lanes_int sum, lanes_int weights, lanes_int codes)
{
    (void)bits;
    return _mm256_dpbusd_avx_epi32(sum, weights, codes);
}

static inline lanes_int dot_start(int bits, lanes_int sum)
{
    (void)bits;
    return sum;
}

static inline lanes_int dot_end(int bits, lanes_int sum, lanes_int part)
{
    (void)bits;
    (void)sum;
    return part;
}

#define LINEAR_TILE linear_tile_avxvnni
#include "engine/linear/kernel_template.h"
