// SPDX-License-Identifier: MIT
// Sixteen registers, two for 16 lanes; a permutation looks up eight values.
#include "src/math/lanes_avx2.h"

#include <stdbool.h>

// A code in the middle of a word as a float, without a shift: put below the exponent of the number
// whose last place is the code's, it is added to that number.
LANES_INLINE lanes affine_field(int bits, lanes_int words, int shift)
{
    const lanes_int mask = lanes_int_set(((1 << bits) - 1) << shift);
    const lanes one = lanes_set((float)(1 << (23 - shift)));
    const lanes_int sum = lanes_int_or(lanes_int_and(words, mask), lanes_bits(one));
    return lanes_sub(lanes_from_bits(sum), one);
}

LANES_INLINE lanes affine_byte(lanes_int words, int byte)
{
    const __m256i first = _mm256_setr_epi32(-256, -252, -248, -244, -256, -252, -248, -244);
    const __m256i from = _mm256_add_epi32(first, _mm256_set1_epi32(byte));
    return lanes_from_int(
        (lanes_int){_mm256_shuffle_epi8(words.low, from), _mm256_shuffle_epi8(words.high, from)});
}

// The code that begins at bit `shift` of each word. Up to three bits it is an index into all codes,
// of which the instruction ignores the bits above. Of four bits, the even and the odd codes of a
// word are made bytes, once each. Of five and six bits two codes share a shift: with more fields in
// place there would be more constants than registers.
LANES_INLINE lanes affine_code(int bits, lanes_int words, int shift)
{
    if (bits == 8)
        return affine_byte(words, shift / 8);
    if (bits == 4) {
        const lanes_int nibbles = shift % 8 ? lanes_int_shr_logical(words, 4) : words;
        return affine_byte(lanes_int_and(nibbles, lanes_int_set(0x0f0f0f0f)), shift / 8);
    }
    const int fields = bits > 4 ? 2 : 1, field = shift % (fields * bits);
    const int by = shift - field;
    const lanes_int shifted = by ? lanes_int_shr_logical(words, by) : words;
    if (bits > 3)
        return affine_field(bits, shifted, field);
    const float m = bits == 2 ? 0 : 4; // what the upper half of the codes adds
    const __m256 codes = _mm256_setr_ps(0, 1, 2, 3, m, 1 + m, 2 + m, 3 + m);
    return (lanes){_mm256_permutevar8x32_ps(codes, shifted.low),
                   _mm256_permutevar8x32_ps(codes, shifted.high)};
}

#define AFFINE_SUFFIX avx2
#define AFFINE_MOST 4
#define AFFINE_FEW 8
#define AFFINE_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define AFFINE_FEW_WIDE(bits, r) ((r) == 1 && (bits) != 4 ? 2 : 1)
#include "src/codec/affine/affine_tmpl.h"
