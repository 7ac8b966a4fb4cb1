// SPDX-License-Identifier: MIT
// Sixteen lanes: two vectors are a whole tile, and each activation that is loaded meets both.
#include "engine/kernels/linear/linear_inline.h"
#include "engine/kernels/linear/linear_layout.h"

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define VECTORS 2

typedef __m512 lanes_float;
typedef __m512i lanes_int;
typedef uint32_t lanes_u32 __attribute__((vector_size(64)));

INLINE lanes_int load_int(const unsigned char *p)
{
    return _mm512_loadu_si512(p);
}

INLINE lanes_int load_u8(const unsigned char *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE lanes_int load_i8(const unsigned char *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

INLINE lanes_float load_f32(const void *p)
{
    return _mm512_loadu_ps(p);
}

INLINE lanes_float load_f16(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE lanes_float load_bf16(const unsigned char *p)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE void store_f32(float *p, lanes_float a)
{
    _mm512_storeu_ps(p, a);
}

INLINE lanes_int all_int(int32_t value)
{
    return _mm512_set1_epi32(value);
}

INLINE lanes_float all_float(float value)
{
    return _mm512_set1_ps(value);
}

INLINE lanes_int bits_and(lanes_int a, lanes_int b)
{
    return _mm512_and_si512(a, b);
}

INLINE lanes_int bits_or(lanes_int a, lanes_int b)
{
    return _mm512_or_si512(a, b);
}

INLINE lanes_float to_float(lanes_int a)
{
    return _mm512_cvtepi32_ps(a);
}

INLINE lanes_int add_int(lanes_int a, lanes_int b)
{
    return _mm512_add_epi32(a, b);
}

INLINE lanes_int max_int(lanes_int a, lanes_int b)
{
    return _mm512_max_epi32(a, b);
}

INLINE lanes_float as_float(lanes_int a)
{
    return _mm512_castsi512_ps(a);
}

// table[a] of every byte, which is below 16.
INLINE lanes_int look_up(const uint8_t table[16], lanes_int a)
{
    const __m128i entries = _mm_loadu_si128((const __m128i *)table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), a);
}

INLINE lanes_float plus(lanes_float a, lanes_float b)
{
    return _mm512_add_ps(a, b);
}

INLINE lanes_float times(lanes_float a, lanes_float b)
{
    return _mm512_mul_ps(a, b);
}

INLINE lanes_float times_plus(lanes_float a, lanes_float b, lanes_float c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE lanes_float minus(lanes_float a)
{
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}

#define SIGNED_8_BITS 0
// A sum is a chain of instructions, each of which waits for the one before: eight of them keep the
// processor busy.
#define TOKENS_AT_ONCE 4
#define TOKENS_OF_TWO_SUMS 4

INLINE void dot_quads(int bits, int tokens, int unit, lanes_int *sums, const lanes_int *weights,
                      const unsigned char *codes, size_t stride, int quads)
{
    (void)bits;
    UNROLL
    for (int quad = 0; quad < quads; quad++) {
        UNROLL
        for (int i = 0; i < tokens * VECTORS; i++) {
            const lanes_int word = all_int(int_at(codes + i / VECTORS * stride + 4 * quad));
            sums[i] =
                _mm512_dpbusd_epi32(sums[i], weights[i % VECTORS * LINEAR_QUADS + quad], word);
        }
    }
    UNROLL
    for (int i = 0; i < tokens * VECTORS; i++)
        sums[i] = (lanes_int)((lanes_u32)sums[i] * (uint32_t)unit);
}

#define LINEAR_TILE linear_tile_avx512vnni
#include "engine/kernels/linear/linear_kernel_template.h"
