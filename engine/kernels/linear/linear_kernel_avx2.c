// SPDX-License-Identifier: MIT
#include "engine/kernels/linear/linear_lanes_avx2.h"

#define SIGNED_8_BITS 1
// Each activation that is loaded meets two vectors, each weight four tokens: eight sums, with two
// weights and an activation, are what 16 registers hold.
#define VECTORS 2
#define TOKENS_AT_ONCE 4
#define TOKENS_OF_TWO_SUMS 2

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

// Compilers would order the sums anew, or load a weight again for each token, until nothing fits
// the registers.
INLINE lanes_int in_register(lanes_int a)
{
    __asm__("" : "+x"(a));
    return a;
}

// The pairs of `step` quads, which fit 16 bits.
INLINE void dot_pairs(int bits, int tokens, int step, lanes_int *pairs, const lanes_int *weights,
                      const unsigned char *codes, size_t stride)
{
    UNROLL
    for (int quad = 0; quad < step; quad++) {
        lanes_int weight[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            weight[v] = in_register(weights[v * LINEAR_QUADS + quad]);
        UNROLL
        for (int i = 0; i < tokens * VECTORS; i++) {
            const lanes_int word = all_int(int_at(codes + i / VECTORS * stride + 4 * quad));
            const lanes_int product = multiply_pairs(bits, weight[i % VECTORS], word);
            pairs[i] = in_register(quad ? _mm256_add_epi16(pairs[i], product) : product);
        }
    }
}

INLINE void dot_quads(int bits, int tokens, int unit, lanes_int *sums, const lanes_int *weights,
                      const unsigned char *codes, size_t stride, int quads)
{
    const int most = quads_in_16_bits(bits), step = most < quads ? most : quads;
    const lanes_int units = _mm256_set1_epi16((short)unit);
    UNROLL
    for (int first = 0; first < quads; first += step) {
        lanes_int pairs[TOKENS_AT_ONCE * VECTORS];
        dot_pairs(bits, tokens, step, pairs, weights + first, codes + 4 * first, stride);
        UNROLL
        for (int i = 0; i < tokens * VECTORS; i++)
            sums[i] = add_int(sums[i], _mm256_madd_epi16(pairs[i], units));
    }
}

#define LINEAR_TILE linear_tile_avx2
#include "engine/kernels/linear/linear_kernel_template.h"
