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

// table[code] of eight codes for tables of 8, 16, 32 and 64 entries: the upper half where the
// code's highest bit is set, which a shift makes a sign. Not by loads, which a slot without a
// vector yet would send anywhere in the table.
LANES_INLINE __m256 codes_of_8_(const float *table, __m256i codes)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), codes);
}

LANES_INLINE __m256 codes_choose_(__m256 below, __m256 above, __m256i codes, int bit)
{
    return _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 31 - bit)));
}

LANES_INLINE __m256 codes_of_16_(const float *table, __m256i codes)
{
    return codes_choose_(codes_of_8_(table, codes), codes_of_8_(table + 8, codes), codes, 3);
}

LANES_INLINE __m256 codes_of_32_(const float *table, __m256i codes)
{
    return codes_choose_(codes_of_16_(table, codes), codes_of_16_(table + 16, codes), codes, 4);
}

LANES_INLINE __m256 codes_of_64_(const float *table, __m256i codes)
{
    return codes_choose_(codes_of_32_(table, codes), codes_of_32_(table + 32, codes), codes, 5);
}

LANES_INLINE __m256 codes_of_(int bits, const float *table, __m256i codes)
{
    return bits < 4    ? codes_of_8_(table, codes)
           : bits == 4 ? codes_of_16_(table, codes)
           : bits == 5 ? codes_of_32_(table, codes)
                       : codes_of_64_(table, codes);
}

// table[code] for the code that begins at bit `shift` of each word, of up to six bits. The table
// has an entry for each, and at least 16: it repeats itself where codes are shorter.
LANES_INLINE lanes codes_lookup(int bits, const float *table, lanes_int words, int shift)
{
    const lanes_int from = shift ? lanes_int_shr_logical(words, shift) : words;
    return (lanes){codes_of_(bits, table, from.low), codes_of_(bits, table, from.high)};
}

// count + step where the mask is true.
LANES_INLINE lanes_int codes_add(lanes_int count, lanes_mask mask, int step)
{
    const lanes_int all = lanes_bits((lanes){mask.low, mask.high});
    return lanes_int_add(count, lanes_int_and(all, lanes_int_set(step)));
}

#define CODES_ROTATE kvern_rotate_avx2
#define CODES_ROTATE_BACK kvern_rotate_back_avx2
#define CODES_MULTIPLY kvern_codes_multiply_avx2
#define CODES_MOST 4
#define CODES_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define CODES_FEW 8
#define CODES_FEW_LOOKED_UP(bits) ((bits) > 3 ? 4 : 8)
#define CODES_FEW_WIDE(r) ((r) == 1 ? 2 : 1)

#endif
