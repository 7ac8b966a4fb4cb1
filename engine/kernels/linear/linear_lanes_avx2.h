// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LINEAR_LANES_AVX2_H
#define KVERN_ENGINE_LINEAR_LANES_AVX2_H

// Eight lanes, a quarter of a tile, for kernel_template.h. What is special to a product of bytes is
// in the files that include this one.

#include "engine/kernels/linear/linear_inline.h"
#include "engine/kernels/linear/linear_layout.h"

#include <immintrin.h>
#include <stdint.h>

#define LANES 8

typedef __m256 lanes_float;
typedef __m256i lanes_int;
typedef uint32_t lanes_u32 __attribute__((vector_size(32)));

INLINE lanes_int load_int(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE lanes_int load_u8(const unsigned char *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

INLINE lanes_int load_i8(const unsigned char *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

INLINE lanes_float load_f32(const void *p)
{
    return _mm256_loadu_ps(p);
}

INLINE lanes_float load_f16(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE lanes_float load_bf16(const unsigned char *p)
{
    const __m128i half = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

INLINE void store_f32(float *p, lanes_float a)
{
    _mm256_storeu_ps(p, a);
}

INLINE lanes_int all_int(int32_t value)
{
    return _mm256_set1_epi32(value);
}

INLINE lanes_float all_float(float value)
{
    return _mm256_set1_ps(value);
}

INLINE lanes_int bits_and(lanes_int a, lanes_int b)
{
    return _mm256_and_si256(a, b);
}

INLINE lanes_int bits_or(lanes_int a, lanes_int b)
{
    return _mm256_or_si256(a, b);
}

INLINE lanes_float to_float(lanes_int a)
{
    return _mm256_cvtepi32_ps(a);
}

INLINE lanes_int add_int(lanes_int a, lanes_int b)
{
    return _mm256_add_epi32(a, b);
}

INLINE lanes_int max_int(lanes_int a, lanes_int b)
{
    return _mm256_max_epi32(a, b);
}

INLINE lanes_float as_float(lanes_int a)
{
    return _mm256_castsi256_ps(a);
}

// table[a] of every byte, which is below 16.
INLINE lanes_int look_up(const uint8_t table[16], lanes_int a)
{
    const __m128i entries = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), a);
}

INLINE lanes_float plus(lanes_float a, lanes_float b)
{
    return _mm256_add_ps(a, b);
}

INLINE lanes_float times(lanes_float a, lanes_float b)
{
    return _mm256_mul_ps(a, b);
}

INLINE lanes_float times_plus(lanes_float a, lanes_float b, lanes_float c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE lanes_float minus(lanes_float a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

#endif
