// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_LANES_AVX2_H
#define KVERN_MATH_LANES_AVX2_H

// Sixteen lanes of 32 bits on AVX2 + FMA + F16C: two registers, lanes 0-7 and 8-15.
//
// lanes_avx2.h, lanes_avx512.h and lanes_neon.h define one identical set of names, so that a kernel
// template is written once and included by a *_avx2.c, a *_avx512.c and a *_neon.c file. Every
// operation is one IEEE operation per lane, so a template computes the same bits on each of them.
// Masks of comparisons are false where an operand is NaN, except lanes_isnan.

#include "src/math/strict.h"

#include <immintrin.h>
#include <stdint.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef struct {
    __m256 low, high;
} lanes;

typedef struct {
    __m256i low, high;
} lanes_int;

// All bits of a lane are set where the mask is true, clear where it is false.
typedef struct {
    __m256 low, high;
} lanes_mask;

// Applies one intrinsic to both halves.
#define LANES_MAP1(type, f, a)                                                                     \
    (type)                                                                                         \
    {                                                                                              \
        f((a).low), f((a).high)                                                                    \
    }
#define LANES_MAP2(type, f, a, b)                                                                  \
    (type)                                                                                         \
    {                                                                                              \
        f((a).low, (b).low), f((a).high, (b).high)                                                 \
    }

// ---- Loading, storing, setting. No alignment is needed beyond that of the element. ----

LANES_INLINE lanes lanes_load(const float *p)
{
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

LANES_INLINE void lanes_store(float *p, lanes v)
{
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
}

LANES_INLINE lanes lanes_set(float x)
{
    __m256 v = _mm256_set1_ps(x);
    return (lanes){v, v};
}

LANES_INLINE lanes lanes_zero(void)
{
    return (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

LANES_INLINE lanes_int lanes_int_set(int32_t x)
{
    __m256i v = _mm256_set1_epi32(x);
    return (lanes_int){v, v};
}

LANES_INLINE lanes_int lanes_int_load(const int32_t *p)
{
    return (lanes_int){_mm256_loadu_si256((const __m256i *)p),
                       _mm256_loadu_si256((const __m256i *)(p + 8))};
}

LANES_INLINE void lanes_int_store(int32_t *p, lanes_int v)
{
    _mm256_storeu_si256((__m256i *)p, v.low);
    _mm256_storeu_si256((__m256i *)(p + 8), v.high);
}

// Into the first-level cache: a hint, at any address.
// Numbers of 0 to 255, from bytes and as bytes.
LANES_INLINE lanes_int lanes_int_load_bytes(const uint8_t *p)
{
    return (lanes_int){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                       _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}

LANES_INLINE void lanes_int_store_bytes(uint8_t *p, lanes_int v)
{
    __m256i halves = _mm256_packus_epi32(v.low, v.high); // interleaves 128-bit parts
    halves = _mm256_permute4x64_epi64(halves, 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(_mm256_castsi256_si128(halves),
                                                    _mm256_extracti128_si256(halves, 1)));
}

LANES_INLINE void lanes_prefetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

// ---- The same 32 bits seen as float or as integer. ----

LANES_INLINE lanes_int lanes_bits(lanes v)
{
    return LANES_MAP1(lanes_int, _mm256_castps_si256, v);
}

LANES_INLINE lanes lanes_from_bits(lanes_int v)
{
    return LANES_MAP1(lanes, _mm256_castsi256_ps, v);
}

// ---- Float arithmetic. ----

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return LANES_MAP2(lanes, _mm256_add_ps, a, b);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return LANES_MAP2(lanes, _mm256_sub_ps, a, b);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return LANES_MAP2(lanes, _mm256_mul_ps, a, b);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return LANES_MAP2(lanes, _mm256_div_ps, a, b);
}

// a * b + c with one rounding.
LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

// a > b ? a : b, so b when they are equal or one of them is NaN.
LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return LANES_MAP2(lanes, _mm256_max_ps, a, b);
}

// a < b ? a : b, so b when they are equal or one of them is NaN.
LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return LANES_MAP2(lanes, _mm256_min_ps, a, b);
}

LANES_INLINE lanes lanes_sqrt(lanes v)
{
    return LANES_MAP1(lanes, _mm256_sqrt_ps, v);
}

// To the nearest integer, ties to even.
LANES_INLINE lanes lanes_rint(lanes v)
{
    return (lanes){_mm256_round_ps(v.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                   _mm256_round_ps(v.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

LANES_INLINE lanes lanes_neg(lanes v)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_xor_ps(v.low, sign), _mm256_xor_ps(v.high, sign)};
}

LANES_INLINE lanes lanes_abs(lanes v)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_andnot_ps(sign, v.low), _mm256_andnot_ps(sign, v.high)};
}

LANES_INLINE lanes lanes_copysign(lanes magnitude, lanes sign)
{
    __m256 mask = _mm256_set1_ps(-0.0f);
    return (lanes){
        _mm256_or_ps(_mm256_andnot_ps(mask, magnitude.low), _mm256_and_ps(mask, sign.low)),
        _mm256_or_ps(_mm256_andnot_ps(mask, magnitude.high), _mm256_and_ps(mask, sign.high))};
}

// p * 2^n for p in [0.5, 2] and a whole n in [-126, 127], where `biased` is n + 127 + 1.5 * 2^23; a
// NaN p stays NaN. Both forms of n are at hand after rounding by addition.
LANES_INLINE lanes lanes_scale(lanes p, lanes n, lanes biased)
{
    (void)n;
    return (lanes){
        _mm256_mul_ps(p.low,
                      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(biased.low), 23))),
        _mm256_mul_ps(
            p.high, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(biased.high), 23)))};
}

// ---- Integer arithmetic, modulo 2^32. ----

// The values must be integral and below 2^31 in magnitude; other lanes are unspecified.
LANES_INLINE lanes_int lanes_to_int(lanes v)
{
    return LANES_MAP1(lanes_int, _mm256_cvtps_epi32, v);
}

LANES_INLINE lanes lanes_from_int(lanes_int v)
{
    return LANES_MAP1(lanes, _mm256_cvtepi32_ps, v);
}

LANES_INLINE lanes_int lanes_int_add(lanes_int a, lanes_int b)
{
    return LANES_MAP2(lanes_int, _mm256_add_epi32, a, b);
}

LANES_INLINE lanes_int lanes_int_sub(lanes_int a, lanes_int b)
{
    return LANES_MAP2(lanes_int, _mm256_sub_epi32, a, b);
}

LANES_INLINE lanes_int lanes_int_and(lanes_int a, lanes_int b)
{
    return LANES_MAP2(lanes_int, _mm256_and_si256, a, b);
}

LANES_INLINE lanes_int lanes_int_or(lanes_int a, lanes_int b)
{
    return LANES_MAP2(lanes_int, _mm256_or_si256, a, b);
}

LANES_INLINE lanes_int lanes_int_xor(lanes_int a, lanes_int b)
{
    return LANES_MAP2(lanes_int, _mm256_xor_si256, a, b);
}

// Shifts take a constant from 0 to 31.
LANES_INLINE lanes_int lanes_int_shl(lanes_int v, int count)
{
    return (lanes_int){_mm256_slli_epi32(v.low, count), _mm256_slli_epi32(v.high, count)};
}

// The sign is shifted in.
LANES_INLINE lanes_int lanes_int_shr(lanes_int v, int count)
{
    return (lanes_int){_mm256_srai_epi32(v.low, count), _mm256_srai_epi32(v.high, count)};
}

// Zeros are shifted in.
LANES_INLINE lanes_int lanes_int_shr_logical(lanes_int v, int count)
{
    return (lanes_int){_mm256_srli_epi32(v.low, count), _mm256_srli_epi32(v.high, count)};
}

// ---- Masks. ----

#define LANES_COMPARE(a, b, how)                                                                   \
    (lanes_mask)                                                                                   \
    {                                                                                              \
        _mm256_cmp_ps((a).low, (b).low, how), _mm256_cmp_ps((a).high, (b).high, how)               \
    }

LANES_INLINE lanes_mask lanes_lt(lanes a, lanes b)
{
    return LANES_COMPARE(a, b, _CMP_LT_OQ);
}

// not a < b: true where one of them is NaN
LANES_INLINE lanes_mask lanes_not_lt(lanes a, lanes b)
{
    return LANES_COMPARE(a, b, _CMP_NLT_UQ);
}

LANES_INLINE lanes_mask lanes_le(lanes a, lanes b)
{
    return LANES_COMPARE(a, b, _CMP_LE_OQ);
}

LANES_INLINE lanes_mask lanes_gt(lanes a, lanes b)
{
    return LANES_COMPARE(a, b, _CMP_GT_OQ);
}

LANES_INLINE lanes_mask lanes_ge(lanes a, lanes b)
{
    return LANES_COMPARE(a, b, _CMP_GE_OQ);
}

LANES_INLINE lanes_mask lanes_eq(lanes a, lanes b)
{
    return LANES_COMPARE(a, b, _CMP_EQ_OQ);
}

LANES_INLINE lanes_mask lanes_isnan(lanes v)
{
    return LANES_COMPARE(v, v, _CMP_UNORD_Q);
}

LANES_INLINE lanes_mask lanes_int_eq(lanes_int a, lanes_int b)
{
    return (lanes_mask){_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.low, b.low)),
                        _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.high, b.high))};
}

// Lane i is true where bit i is set; bits 16 and up are ignored.
LANES_INLINE lanes_mask lanes_mask_from_bits(uint32_t bits)
{
    lanes_int all = lanes_int_set((int32_t)bits);
    lanes_int one = {_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                     _mm256_setr_epi32(256, 512, 1024, 2048, 4096, 8192, 16384, 32768)};
    return lanes_int_eq(lanes_int_and(all, one), one);
}

// The inverse of lanes_mask_from_bits.
LANES_INLINE uint32_t lanes_mask_bits(lanes_mask m)
{
    return (uint32_t)_mm256_movemask_ps(m.low) | (uint32_t)_mm256_movemask_ps(m.high) << 8;
}

LANES_INLINE lanes_mask lanes_mask_and(lanes_mask a, lanes_mask b)
{
    return LANES_MAP2(lanes_mask, _mm256_and_ps, a, b);
}

LANES_INLINE lanes_mask lanes_mask_or(lanes_mask a, lanes_mask b)
{
    return LANES_MAP2(lanes_mask, _mm256_or_ps, a, b);
}

// mask ? a : b
LANES_INLINE lanes lanes_select(lanes_mask mask, lanes a, lanes b)
{
    return (lanes){_mm256_blendv_ps(b.low, a.low, mask.low),
                   _mm256_blendv_ps(b.high, a.high, mask.high)};
}

// mask ? v : 0
LANES_INLINE lanes lanes_keep(lanes_mask mask, lanes v)
{
    return LANES_MAP2(lanes, _mm256_and_ps, mask, v);
}

// mask ? 0 : v
LANES_INLINE lanes lanes_clear(lanes_mask mask, lanes v)
{
    return (lanes){_mm256_andnot_ps(mask.low, v.low), _mm256_andnot_ps(mask.high, v.high)};
}

// ---- Lanes that change places. ----

// Lane i becomes lane i ^ distance: 1, 2, 4 or 8, a constant.
LANES_INLINE lanes lanes_swap(lanes v, int distance)
{
    if (distance == 8)
        return (lanes){v.high, v.low};
    if (distance == 4)
        return (lanes){_mm256_permute2f128_ps(v.low, v.low, 1),
                       _mm256_permute2f128_ps(v.high, v.high, 1)};
    if (distance == 2)
        return (lanes){_mm256_permute_ps(v.low, 0x4e), _mm256_permute_ps(v.high, 0x4e)};
    return (lanes){_mm256_permute_ps(v.low, 0xb1), _mm256_permute_ps(v.high, 0xb1)};
}

// ---- The first `count` lanes, 0 to 16. Memory from p + count on is neither read nor written. ----

LANES_INLINE lanes_int lanes_first_(int count)
{
    __m256i n = _mm256_set1_epi32(count);
    return (lanes_int){_mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                       _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

// Lanes from `count` on are zero.
LANES_INLINE lanes lanes_load_part(const float *p, int count)
{
    lanes_int first = lanes_first_(count);
    return (lanes){_mm256_maskload_ps(p, first.low), _mm256_maskload_ps(p + 8, first.high)};
}

LANES_INLINE void lanes_store_part(float *p, lanes v, int count)
{
    lanes_int first = lanes_first_(count);
    _mm256_maskstore_ps(p, first.low, v.low);
    _mm256_maskstore_ps(p + 8, first.high, v.high);
}

// ---- Half types; the scalar definitions are in half.h. ----

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p)
{
    __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return lanes_from_bits(lanes_int_shl((lanes_int){low, high}, 16));
}

LANES_INLINE lanes lanes_load_f16(const uint16_t *p)
{
    return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

// Sixteen 32-bit words of two bf16 each: the low halves become *even, the high halves *odd.
LANES_INLINE void lanes_load_bf16_pairs(const uint16_t *p, lanes *even, lanes *odd)
{
    lanes_int words = lanes_int_load((const int32_t *)(const void *)p);
    *even = lanes_from_bits(lanes_int_shl(words, 16));
    *odd = lanes_from_bits(lanes_int_and(words, lanes_int_set((int32_t)0xffff0000u)));
}

LANES_INLINE void lanes_store_bf16(uint16_t *p, lanes v)
{
    lanes_int bits = lanes_bits(v);
    lanes_int upper = lanes_int_shr_logical(bits, 16);
    lanes_int tie = lanes_int_add(lanes_int_and(upper, lanes_int_set(1)), lanes_int_set(0x7fff));
    lanes rounded = lanes_from_bits(lanes_int_shr_logical(lanes_int_add(bits, tie), 16));
    lanes quiet = lanes_from_bits(lanes_int_or(upper, lanes_int_set(0x40)));
    lanes_int halves = lanes_bits(lanes_select(lanes_isnan(v), quiet, rounded));
    __m256i packed = _mm256_packus_epi32(halves.low, halves.high); // interleaves 128-bit parts
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}

LANES_INLINE void lanes_store_f16(uint16_t *p, lanes v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT));
}

// ---- The canonical tree over 16 lanes; sum.h defines it in plain C. ----

// The tree for four vectors at once: out[i] is that of v[i]. Lane i meets lane i + 8, then i + 4,
// then i + 2, then i + 1; along the way the vectors move together into one register.
#define LANES_TREE_EACH(f)                                                                         \
    __m256 a = f(v[0].low, v[0].high), b = f(v[1].low, v[1].high);                                 \
    __m256 c = f(v[2].low, v[2].high), d = f(v[3].low, v[3].high);                                 \
    __m256 ab = f(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));         \
    __m256 cd = f(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));         \
    __m256 r2 = f(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));               \
    __m256 r1 = f(_mm256_shuffle_ps(r2, r2, 0x88), _mm256_shuffle_ps(r2, r2, 0xdd));               \
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(r1), _mm256_extractf128_ps(r1, 1)))

LANES_INLINE void lanes_sum_each(const lanes v[4], float *out)
{
    LANES_TREE_EACH(_mm256_add_ps);
}

// Of ordinary numbers and infinities.
LANES_INLINE void lanes_largest_each(const lanes v[4], float *out)
{
    LANES_TREE_EACH(_mm256_max_ps);
}

#undef LANES_TREE_EACH
#undef LANES_MAP1
#undef LANES_MAP2
#undef LANES_COMPARE

#endif
