// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODES_CODES_AVX2_H
#define KVERN_CODEC_CODES_CODES_AVX2_H

// Sixteen registers, two for 16 lanes; a permutation looks up eight values.
#include "src/math/lanes_avx2.h"

#include <stdbool.h>

LANES_INLINE lanes codes_byte(lanes_int words, int byte)
{
    const __m256i first = _mm256_setr_epi32(-256, -252, -248, -244, -256, -252, -248, -244);
    const __m256i from = _mm256_add_epi32(first, _mm256_set1_epi32(byte));
    return lanes_from_int(
        (lanes_int){_mm256_shuffle_epi8(words.low, from), _mm256_shuffle_epi8(words.high, from)});
}

// The code that begins at bit `shift` of each word. Up to three bits it is an index into all codes,
// of which the instruction ignores the bits above.
LANES_INLINE lanes codes_as_floats(int bits, lanes_int words, int shift)
{
    if (bits == 8)
        return codes_byte(words, shift / 8);
    const lanes_int shifted = shift ? lanes_int_shr_logical(words, shift) : words;
    if (bits > 3)
        return lanes_from_int(lanes_int_and(shifted, lanes_int_set((1 << bits) - 1)));
    const float m = bits == 2 ? 0 : 4; // what the upper half of the codes adds
    const __m256 codes = _mm256_setr_ps(0, 1, 2, 3, m, 1 + m, 2 + m, 3 + m);
    return (lanes){_mm256_permutevar8x32_ps(codes, shifted.low),
                   _mm256_permutevar8x32_ps(codes, shifted.high)};
}

#define CODES_MULTIPLY kvern_codes_multiply_avx2
#define CODES_MOST 4
#define CODES_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define CODES_FEW 8
#define CODES_FEW_WIDE(r) ((r) == 1 ? 2 : 1)

#endif
