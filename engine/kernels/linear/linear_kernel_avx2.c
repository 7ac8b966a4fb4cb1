// SPDX-License-Identifier: MIT
#include "engine/kernels/linear/linear_lanes_avx2.h"

#define SIGNED_8_BITS 1
#define TOKENS_AT_ONCE 1

// Products of pairs are 16 bits wide and are summed that wide for as long as nothing can overflow:
// the codes of activations are at most 127, those of weights at most 15, 31 or 63, and
// 8 * 2 * 15 * 127 = 30480, 4 * 2 * 31 * 127 = 31496, 2 * 2 * 63 * 127 = 32004 fit.
// Signed weights of eight bits are widened at once: 2 * 128 * 127 = 32512.
INLINE int quads_in_16_bits(int bits)
{
    return bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
}

INLINE lanes_int multiply_pairs(int bits, lanes_int weights, lanes_int codes)
{
    if (bits == 8)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(codes, weights));
    return _mm256_maddubs_epi16(weights, codes);
}

INLINE void dot_quads(int bits, int tokens, lanes_int *sums, const lanes_int *weights,
                      const unsigned char *codes, size_t stride, int quads)
{
    (void)tokens;
    (void)stride;
    const int most = quads_in_16_bits(bits), step = most < quads ? most : quads;
    UNROLL
    for (int first = 0; first < quads; first += step) {
        lanes_int pairs = multiply_pairs(bits, weights[first], all_int(int_at(codes + 4 * first)));
        UNROLL
        for (int quad = first + 1; quad < first + step; quad++)
            pairs = _mm256_add_epi16(
                pairs, multiply_pairs(bits, weights[quad], all_int(int_at(codes + 4 * quad))));
        *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
}

#define LINEAR_TILE linear_tile_avx2
#include "engine/kernels/linear/linear_kernel_template.h"
