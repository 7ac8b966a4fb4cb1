// SPDX-License-Identifier: MIT
#include "engine/linear/lanes_avx2.h"

#define ACCUMULATORS 8

// Products of pairs are 16 bits wide and are summed that wide for as long as nothing can overflow:
// the codes of activations are at most 127, those of weights 15, 31 or 63, and
// 8 * 2 * 15 * 127 = 30480, 4 * 2 * 31 * 127 = 31496, 2 * 2 * 63 * 127 = 32004 fit.
// Signed weights of eight bits are widened at once: 2 * 128 * 127 = 32512.
#define DOT_STEP(bits) ((bits) == 4 ? 8 : (bits) == 5 ? 4 : 2)
#define DOT_SIGNED_8_BITS 1

static inline lanes_int widen(lanes_int pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

static inline lanes_int dot(int bits, lanes_int sum, lanes_int weights, lanes_int codes)
{
    if (bits == 8) {
        const lanes_int magnitude = _mm256_abs_epi8(weights);
        const lanes_int signed_codes = _mm256_sign_epi8(codes, weights);
        return _mm256_add_epi32(sum, widen(_mm256_maddubs_epi16(magnitude, signed_codes)));
    }
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, codes));
}

static inline lanes_int dot_start(int bits, lanes_int sum)
{
    return bits == 8 ? sum : _mm256_setzero_si256();
}

static inline lanes_int dot_end(int bits, lanes_int sum, lanes_int part)
{
    return bits == 8 ? part : _mm256_add_epi32(sum, widen(part));
}

#define LINEAR_TILE linear_tile_avx2
#include "engine/linear/kernel_template.h"
