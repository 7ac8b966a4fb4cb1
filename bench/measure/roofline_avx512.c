// SPDX-License-Identifier: MIT
#include "bench/measure/roofline.h"

#include <immintrin.h>

float roofline_read_avx512(const float *data, size_t count)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i + 64 <= count; i += 64) {
        for (int j = 0; j < 4; j++)
            _mm_prefetch((const char *)(data + i + 1024 + 16 * j), _MM_HINT_T0);
        a = _mm512_xor_si512(a, _mm512_load_si512(data + i));
        b = _mm512_xor_si512(b, _mm512_load_si512(data + i + 16));
        c = _mm512_xor_si512(c, _mm512_load_si512(data + i + 32));
        d = _mm512_xor_si512(d, _mm512_load_si512(data + i + 48));
    }
    a = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
    return (float)_mm512_reduce_add_epi32(a);
}

void roofline_update_avx512(float factor, float *data, size_t count)
{
    const __m512 f = _mm512_set1_ps(factor);
    for (size_t i = 0; i + 64 <= count; i += 64) {
#pragma GCC unroll 4
        for (size_t j = 0; j < 64; j += 16)
            _mm512_store_ps(data + i + j, _mm512_mul_ps(_mm512_load_ps(data + i + j), f));
    }
}

size_t roofline_fma_avx512(size_t rounds, float *result)
{
    __m512 s[12];
    const __m512 f = _mm512_set1_ps(0.5f);
#pragma GCC unroll 12
    for (int j = 0; j < 12; j++)
        s[j] = _mm512_set1_ps((float)j);
    for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            s[j] = _mm512_fmadd_ps(s[j], f, f);
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            __asm__ volatile("" : "+v"(s[j]));
    }
#pragma GCC unroll 12
    for (int j = 0; j < 12; j++)
        *result += _mm512_reduce_add_ps(s[j]);
    return 12 * 16;
}
