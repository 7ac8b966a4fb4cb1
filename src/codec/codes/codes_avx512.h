// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODES_CODES_AVX512_H
#define KVERN_CODEC_CODES_CODES_AVX512_H

// Thirty-two registers; a permutation looks up sixteen values, or thirty-two in two registers.
// Unpacking runs beside fma, on units of its own on most processors: to do it again for every eight
// vectors costs less than a tile of codes, so that all numbers of vectors are few.
#include "src/math/lanes_avx512.h"

#include <stdbool.h>

// The upper halves of 32 numbers of a table.
LANES_INLINE lanes_int codes_halves(const float *table)
{
    const lanes_int odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(lanes_bits(lanes_load(table)), odd,
                                     lanes_bits(lanes_load(table + 16)));
}

// table[code] for the code of five or six bits that begins at bit `shift` of each word, where the
// table has numbers in bf16: one permutation finds their upper halves.
LANES_INLINE lanes codes_upper(int bits, const float *table, lanes_int words, int shift)
{
    const lanes_int at =
        shift < 16 ? lanes_int_shl(words, 16 - shift) : lanes_int_shr_logical(words, shift - 16);
    return lanes_from_bits(bits == 5
                               ? _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, at, codes_halves(table))
                               : _mm512_maskz_permutex2var_epi16(0xaaaaaaaa, codes_halves(table),
                                                                 at, codes_halves(table + 32)));
}

static const float codes_numbers[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};

// The codes of up to four bits as floats, in lanes 0 to 15: an index, of which the instruction
// ignores the bits above.
LANES_INLINE lanes codes_table(int bits)
{
    const int m = bits == 2 ? 3 : bits == 3 ? 7 : 15;
    return _mm512_setr_ps(0, 1, 2, 3, (float)(4 & m), (float)(5 & m), (float)(6 & m),
                          (float)(7 & m), (float)(8 & m), (float)(9 & m), (float)(10 & m),
                          (float)(11 & m), (float)(12 & m), (float)(13 & m), (float)(14 & m),
                          (float)(15 & m));
}

// The code that begins at bit `shift` of each word.
LANES_INLINE lanes codes_as_floats(int bits, lanes_int words, int shift)
{
    if (bits == 8) {
        const lanes_int bytes = _mm512_setr_epi32(-256, -252, -248, -244, -256, -252, -248, -244,
                                                  -256, -252, -248, -244, -256, -252, -248, -244);
        const lanes_int from = lanes_int_add(bytes, lanes_int_set(shift / 8));
        return lanes_from_int(_mm512_shuffle_epi8(words, from));
    }
    if (bits > 4)
        return codes_upper(bits, codes_numbers, words, shift);
    const lanes_int shifted = shift ? lanes_int_shr_logical(words, shift) : words;
    return _mm512_permutexvar_ps(shifted, codes_table(bits));
}

// table[code] for the code that begins at bit `shift` of each word, of up to six bits. The table
// has an entry for each, and at least 16: it repeats itself where codes are shorter. Those of six
// bits are numbers in bf16.
LANES_INLINE lanes codes_lookup(int bits, const float *table, lanes_int words, int shift)
{
    if (bits == 6)
        return codes_upper(bits, table, words, shift);
    const lanes_int from = shift ? lanes_int_shr_logical(words, shift) : words;
    if (bits == 5)
        return _mm512_permutex2var_ps(lanes_load(table), from, lanes_load(table + 16));
    return _mm512_permutexvar_ps(from, lanes_load(table));
}

// count + step where the mask is true.
LANES_INLINE lanes_int codes_add(lanes_int count, lanes_mask mask, int step)
{
    return _mm512_mask_add_epi32(count, mask, count, lanes_int_set(step));
}

#define CODES_ROTATE kvern_rotate_avx512
#define CODES_ROTATE_BACK kvern_rotate_back_avx512
#define CODES_MULTIPLY kvern_codes_multiply_avx512
#define CODES_MOST 8
#define CODES_WIDE(r) ((r) <= 4 ? 4 : 2)
#define CODES_FEW SIZE_MAX
#define CODES_FEW_LOOKED_UP(bits) CODES_FEW
#define CODES_FEW_WIDE(r) ((r) <= 4 ? 4 : 2)

#endif
