// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_LANES_AVX512_H
#define KVERN_MATH_LANES_AVX512_H

// Sixteen lanes of 32 bits on AVX-512 (F, BW, VL, DQ): one register. The names and their meaning
// are those of lanes_avx2.h, which has the comments.

#include "src/math/strict.h"

#include <immintrin.h>
#include <stdint.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef __m512 lanes;
typedef __m512i lanes_int;
typedef __mmask16 lanes_mask;

// The zero-masked forms below, with every lane kept, are the plain instructions: they only avoid
// the "undefined" operand that makes gcc 12 warn of an uninitialized variable.
#define LANES_ALL ((__mmask16)0xffff)

// ---- Loading, storing, setting. No alignment is needed beyond that of the element. ----

LANES_INLINE lanes lanes_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

LANES_INLINE void lanes_store(float *p, lanes v)
{
    _mm512_storeu_ps(p, v);
}

LANES_INLINE lanes lanes_set(float x)
{
    return _mm512_set1_ps(x);
}

LANES_INLINE lanes lanes_zero(void)
{
    return _mm512_setzero_ps();
}

LANES_INLINE lanes_int lanes_int_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

LANES_INLINE lanes_int lanes_int_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

LANES_INLINE void lanes_int_store(int32_t *p, lanes_int v)
{
    _mm512_storeu_si512(p, v);
}

LANES_INLINE lanes_int lanes_int_load_bytes(const uint8_t *p)
{
    return _mm512_maskz_cvtepu8_epi32(LANES_ALL, _mm_loadu_si128((const __m128i *)p));
}

LANES_INLINE void lanes_int_store_bytes(uint8_t *p, lanes_int v)
{
    _mm_storeu_si128((__m128i *)p, _mm512_maskz_cvtepi32_epi8(LANES_ALL, v));
}

LANES_INLINE void lanes_prefetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

// ---- The same 32 bits seen as float or as integer. ----

LANES_INLINE lanes_int lanes_bits(lanes v)
{
    return _mm512_castps_si512(v);
}

LANES_INLINE lanes lanes_from_bits(lanes_int v)
{
    return _mm512_castsi512_ps(v);
}

// ---- Float arithmetic. ----

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return _mm512_div_ps(a, b);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return _mm512_maskz_max_ps(LANES_ALL, a, b);
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return _mm512_maskz_min_ps(LANES_ALL, a, b);
}

LANES_INLINE lanes lanes_sqrt(lanes v)
{
    return _mm512_maskz_sqrt_ps(LANES_ALL, v);
}

LANES_INLINE lanes lanes_rint(lanes v)
{
    return _mm512_maskz_roundscale_ps(LANES_ALL, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

LANES_INLINE lanes lanes_neg(lanes v)
{
    return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f));
}

LANES_INLINE lanes lanes_abs(lanes v)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), v);
}

LANES_INLINE lanes lanes_copysign(lanes magnitude, lanes sign)
{
    __m512i mask = _mm512_set1_epi32(INT32_MIN);
    // 0xca is the truth table of "first ? second : third", bit by bit.
    return lanes_from_bits(
        _mm512_ternarylogic_epi32(mask, lanes_bits(sign), lanes_bits(magnitude), 0xca));
}

LANES_INLINE lanes lanes_scale(lanes p, lanes n, lanes biased)
{
    (void)biased;
    return _mm512_maskz_scalef_ps(LANES_ALL, p, n);
}

// ---- Integer arithmetic, modulo 2^32. ----

LANES_INLINE lanes_int lanes_to_int(lanes v)
{
    return _mm512_maskz_cvtps_epi32(LANES_ALL, v);
}

LANES_INLINE lanes lanes_from_int(lanes_int v)
{
    return _mm512_maskz_cvtepi32_ps(LANES_ALL, v);
}

LANES_INLINE lanes_int lanes_int_add(lanes_int a, lanes_int b)
{
    return _mm512_add_epi32(a, b);
}

LANES_INLINE lanes_int lanes_int_sub(lanes_int a, lanes_int b)
{
    return _mm512_sub_epi32(a, b);
}

LANES_INLINE lanes_int lanes_int_and(lanes_int a, lanes_int b)
{
    return _mm512_and_si512(a, b);
}

LANES_INLINE lanes_int lanes_int_or(lanes_int a, lanes_int b)
{
    return _mm512_or_si512(a, b);
}

LANES_INLINE lanes_int lanes_int_xor(lanes_int a, lanes_int b)
{
    return _mm512_xor_si512(a, b);
}

// Shifts are written with the compilers' vector types: the intrinsics want a literal when nothing
// is optimized, and a function's parameter is none.
typedef int32_t lanes_signed_ __attribute__((vector_size(64)));
typedef uint32_t lanes_unsigned_ __attribute__((vector_size(64)));

LANES_INLINE lanes_int lanes_int_shl(lanes_int v, int count)
{
    return (lanes_int)((lanes_unsigned_)v << count);
}

LANES_INLINE lanes_int lanes_int_shr(lanes_int v, int count)
{
    return (lanes_int)((lanes_signed_)v >> count);
}

LANES_INLINE lanes_int lanes_int_shr_logical(lanes_int v, int count)
{
    return (lanes_int)((lanes_unsigned_)v >> count);
}

// ---- Masks. ----

LANES_INLINE lanes_mask lanes_lt(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

LANES_INLINE lanes_mask lanes_not_lt(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ);
}

LANES_INLINE lanes_mask lanes_le(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}

LANES_INLINE lanes_mask lanes_gt(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

LANES_INLINE lanes_mask lanes_ge(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

LANES_INLINE lanes_mask lanes_eq(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

LANES_INLINE lanes_mask lanes_isnan(lanes v)
{
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
}

LANES_INLINE lanes_mask lanes_int_eq(lanes_int a, lanes_int b)
{
    return _mm512_cmpeq_epi32_mask(a, b);
}

LANES_INLINE lanes_mask lanes_mask_from_bits(uint32_t bits)
{
    return (lanes_mask)bits;
}

LANES_INLINE uint32_t lanes_mask_bits(lanes_mask m)
{
    return m;
}

LANES_INLINE lanes_mask lanes_mask_and(lanes_mask a, lanes_mask b)
{
    return a & b;
}

LANES_INLINE lanes_mask lanes_mask_or(lanes_mask a, lanes_mask b)
{
    return a | b;
}

LANES_INLINE lanes lanes_select(lanes_mask mask, lanes a, lanes b)
{
    return _mm512_mask_blend_ps(mask, b, a);
}

LANES_INLINE lanes lanes_keep(lanes_mask mask, lanes v)
{
    return _mm512_maskz_mov_ps(mask, v);
}

LANES_INLINE lanes lanes_clear(lanes_mask mask, lanes v)
{
    return _mm512_maskz_mov_ps((lanes_mask)~mask, v);
}

// ---- Lanes that change places. ----

LANES_INLINE lanes lanes_swap(lanes v, int distance)
{
    if (distance == 8)
        return _mm512_maskz_shuffle_f32x4(LANES_ALL, v, v, 0x4e);
    if (distance == 4)
        return _mm512_maskz_shuffle_f32x4(LANES_ALL, v, v, 0xb1);
    if (distance == 2)
        return _mm512_maskz_permute_ps(LANES_ALL, v, 0x4e);
    return _mm512_maskz_permute_ps(LANES_ALL, v, 0xb1);
}

// ---- The first `count` lanes, 0 to 16. Memory from p + count on is neither read nor written. ----

LANES_INLINE lanes lanes_load_part(const float *p, int count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
}

LANES_INLINE void lanes_store_part(float *p, lanes v, int count)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), v);
}

// ---- Half types; the scalar definitions are in half.h. ----

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)p);
    __m512i words = _mm512_maskz_cvtepu16_epi32(LANES_ALL, halves);
    return lanes_from_bits(lanes_int_shl(words, 16));
}

LANES_INLINE lanes lanes_load_f16(const uint16_t *p)
{
    return _mm512_maskz_cvtph_ps(LANES_ALL, _mm256_loadu_si256((const __m256i *)p));
}

LANES_INLINE void lanes_load_bf16_pairs(const uint16_t *p, lanes *even, lanes *odd)
{
    lanes_int words = _mm512_loadu_si512(p);
    *even = lanes_from_bits(lanes_int_shl(words, 16));
    *odd = lanes_from_bits(lanes_int_and(words, lanes_int_set((int32_t)0xffff0000u)));
}

LANES_INLINE void lanes_store_bf16(uint16_t *p, lanes v)
{
    lanes_int bits = lanes_bits(v);
    lanes_int upper = lanes_int_shr_logical(bits, 16);
    lanes_int tie = lanes_int_add(lanes_int_and(upper, lanes_int_set(1)), lanes_int_set(0x7fff));
    lanes_int rounded = lanes_int_shr_logical(lanes_int_add(bits, tie), 16);
    lanes_int quiet = lanes_int_or(upper, lanes_int_set(0x40));
    lanes_int halves = _mm512_mask_blend_epi32(lanes_isnan(v), rounded, quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtepi32_epi16(LANES_ALL, halves));
}

LANES_INLINE void lanes_store_f16(uint16_t *p, lanes v)
{
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_maskz_cvtps_ph(LANES_ALL, v, _MM_FROUND_TO_NEAREST_INT));
}

// ---- The canonical tree over 16 lanes; sum.h defines it in plain C. ----

// Quarters of a and b that meet: those of lanes i and i + 8, then of lanes i and i + 4.
#define LANES_MEET8(f, a, b)                                                                       \
    f(_mm512_maskz_shuffle_f32x4(LANES_ALL, a, b, 0x44),                                           \
      _mm512_maskz_shuffle_f32x4(LANES_ALL, a, b, 0xee))
#define LANES_MEET4(f, a, b)                                                                       \
    f(_mm512_maskz_shuffle_f32x4(LANES_ALL, a, b, 0x88),                                           \
      _mm512_maskz_shuffle_f32x4(LANES_ALL, a, b, 0xdd))
#define LANES_TREE_EACH(f)                                                                         \
    lanes r4 = LANES_MEET4(f, LANES_MEET8(f, v[0], v[1]), LANES_MEET8(f, v[2], v[3]));             \
    lanes r2 = f(r4, _mm512_maskz_permute_ps(LANES_ALL, r4, 0x4e));                                \
    lanes r1 = f(r2, _mm512_maskz_permute_ps(LANES_ALL, r2, 0xb1));                                \
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, r1)))

LANES_INLINE void lanes_sum_each(const lanes v[4], float *out)
{
    LANES_TREE_EACH(lanes_add);
}

LANES_INLINE void lanes_largest_each(const lanes v[4], float *out)
{
    LANES_TREE_EACH(lanes_max);
}

#undef LANES_TREE_EACH
#undef LANES_MEET4
#undef LANES_MEET8
#undef LANES_ALL

#endif
