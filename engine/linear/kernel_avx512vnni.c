// SPDX-License-Identifier: MIT
// Sixteen lanes: one vector is a whole tile.
#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define ACCUMULATORS 16

typedef __m512 lanes_float;
typedef __m512i lanes_int;
typedef uint32_t lanes_u32 __attribute__((vector_size(64)));

static inline lanes_int load_int(const unsigned char *p)
{
    return _mm512_loadu_si512(p);
}

static inline lanes_int load_u8(const unsigned char *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

static inline lanes_int load_i8(const unsigned char *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

static inline lanes_float load_f32(const void *p)
{
    return _mm512_loadu_ps(p);
}

static inline lanes_float load_f16(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline lanes_float load_bf16(const unsigned char *p)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void store_f32(float *p, lanes_float a)
{
    _mm512_storeu_ps(p, a);
}

static inline lanes_int all_int(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline lanes_float all_float(float value)
{
    return _mm512_set1_ps(value);
}

static inline lanes_int bits_and(lanes_int a, lanes_int b)
{
    return _mm512_and_si512(a, b);
}

static inline lanes_int bits_or(lanes_int a, lanes_int b)
{
    return _mm512_or_si512(a, b);
}

static inline lanes_float to_float(lanes_int a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline lanes_float plus(lanes_float a, lanes_float b)
{
    return _mm512_add_ps(a, b);
}

static inline lanes_float times(lanes_float a, lanes_float b)
{
    return _mm512_mul_ps(a, b);
}

static inline lanes_float times_plus(lanes_float a, lanes_float b, lanes_float c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline lanes_float minus(lanes_float a)
{
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}

// The products go straight to 32-bit sums.
#define DOT_STEP(bits) 8
#define DOT_SIGNED_8_BITS 0

static inline lanes_int dot(int bits, lanes_int sum, lanes_int weights, lanes_int codes)
{
    (void)bits;
    return _mm512_dpbusd_epi32(sum, weights, codes);
}

static inline lanes_int dot_start(int bits, lanes_int sum)
{
    (void)bits;
    return sum;
}

static inline lanes_int dot_end(int bits, lanes_int sum, lanes_int part)
{
    (void)bits;
    (void)sum;
    return part;
}

#define LINEAR_TILE linear_tile_avx512vnni
#include "engine/linear/kernel_template.h"
