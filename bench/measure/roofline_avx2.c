// SPDX-License-Identifier: MIT
#include "bench/measure/roofline.h"

#include <immintrin.h>

static float sum_of(__m256 v)
{
    float lane[8], sum = 0;
    _mm256_storeu_ps(lane, v);
    for (int i = 0; i < 8; i++)
        sum += lane[i];
    return sum;
}

float roofline_read_avx2(const float *data, size_t count)
{
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    for (size_t i = 0; i + 32 <= count; i += 32) {
        _mm_prefetch((const char *)(data + i + 1024), _MM_HINT_T0);
        _mm_prefetch((const char *)(data + i + 1040), _MM_HINT_T0);
        a = _mm256_xor_ps(a, _mm256_load_ps(data + i));
        b = _mm256_xor_ps(b, _mm256_load_ps(data + i + 8));
        c = _mm256_xor_ps(c, _mm256_load_ps(data + i + 16));
        d = _mm256_xor_ps(d, _mm256_load_ps(data + i + 24));
    }
    return sum_of(_mm256_xor_ps(_mm256_xor_ps(a, b), _mm256_xor_ps(c, d)));
}

void roofline_update_avx2(float factor, float *data, size_t count)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (size_t i = 0; i + 32 <= count; i += 32) {
#pragma GCC unroll 4
        for (size_t j = 0; j < 32; j += 8)
            _mm256_store_ps(data + i + j, _mm256_mul_ps(_mm256_load_ps(data + i + j), f));
    }
}

// Twelve chains: enough for two units of four or five cycles of latency, within sixteen registers.
size_t roofline_fma_avx2(size_t rounds, float *result)
{
    __m256 s[12];
    const __m256 f = _mm256_set1_ps(0.5f);
#pragma GCC unroll 12
    for (int j = 0; j < 12; j++)
        s[j] = _mm256_set1_ps((float)j);
    for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            s[j] = _mm256_fmadd_ps(s[j], f, f);
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            __asm__ volatile("" : "+x"(s[j]));
    }
#pragma GCC unroll 12
    for (int j = 0; j < 12; j++)
        *result += sum_of(s[j]);
    return 12 * 8;
}
