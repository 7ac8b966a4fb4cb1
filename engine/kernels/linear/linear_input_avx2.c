// SPDX-License-Identifier: MIT
// The rounding of engine/kernels/linear/linear_input.c, a block of 32 in four vectors.
#include "engine/kernels/linear/linear_inline.h"
#include "engine/kernels/linear/linear_layout.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define VECTORS 4

typedef struct block {
    __m256 x[VECTORS];
} block;

static inline block load_block(const float *x)
{
    block out;
    UNROLL for (int i = 0; i < VECTORS; i++) out.x[i] = _mm256_loadu_ps(x + 8 * i);
    return out;
}

// The largest magnitude, compared as integers: infinities and NaNs are larger than any number.
static inline uint32_t peak_bits(const block *block)
{
    __m256i peak = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
        const __m256i bits = _mm256_castps_si256(block->x[i]);
        peak = _mm256_max_epu32(peak, _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MAX)));
    }
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(peak), _mm256_extracti128_si256(peak, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

// Four vectors of 32-bit codes as bytes, in order.
static inline __m256i narrow(const __m256i *codes)
{
    const __m256i first = _mm256_packs_epi32(codes[0], codes[1]);
    const __m256i second = _mm256_packs_epi32(codes[2], codes[3]);
    const __m256i bytes = _mm256_packs_epi16(first, second);
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// The sums of the first and the last 16 codes of a plane.
static inline void half_sums(__m256i codes, int32_t half[2])
{
    // Raised by 128 the codes are unsigned, which the instruction for sums of bytes wants.
    const __m256i raised = _mm256_xor_si256(codes, _mm256_set1_epi8(INT8_MIN));
    const __m256i eights = _mm256_sad_epu8(raised, _mm256_setzero_si256());
    const __m128i first = _mm256_castsi256_si128(eights);
    const __m128i last = _mm256_extracti128_si256(eights, 1);
    half[0] = _mm_cvtsi128_si32(first) + _mm_extract_epi32(first, 2) - 16 * 128;
    half[1] = _mm_cvtsi128_si32(last) + _mm_extract_epi32(last, 2) - 16 * 128;
}

static inline void put_tail(unsigned char *tail, float scale, const int32_t half[2])
{
    const int32_t sum = half[0] + half[1];
    const float values[4] = {scale, scale * (float)sum, scale * (float)half[0],
                             scale * (float)half[1]};
    memcpy(tail, values, sizeof values);
    memcpy(tail + LINEAR_TAIL_SUM, &sum, sizeof sum);
}

static void round_int8(const block *block, float peak, unsigned char *record)
{
    const __m256 to_code = _mm256_set1_ps((float)LINEAR_LARGEST_INT8 / peak);
    __m256i codes[VECTORS];
    UNROLL for (int i = 0; i < VECTORS; i++) codes[i] =
        _mm256_cvtps_epi32(_mm256_mul_ps(block->x[i], to_code));
    const __m256i plane = narrow(codes);
    int32_t half[2];
    half_sums(plane, half);
    _mm256_storeu_si256((__m256i *)record, plane);
    put_tail(record + LINEAR_PLANE_BYTES, peak / (float)LINEAR_LARGEST_INT8, half);
}

static void round_int16(const block *block, float peak, unsigned char *record)
{
    const __m256 to_code = _mm256_set1_ps((float)LINEAR_LARGEST_INT16 / peak);
    __m256i high[VECTORS], low[VECTORS];
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
        const __m256i code = _mm256_cvtps_epi32(_mm256_mul_ps(block->x[i], to_code));
        high[i] = _mm256_srai_epi32(_mm256_add_epi32(code, _mm256_set1_epi32(128)), 8);
        low[i] = _mm256_sub_epi32(code, _mm256_slli_epi32(high[i], 8));
    }
    const __m256i high_plane = narrow(high);
    const __m256i low_plane = _mm256_max_epi8(narrow(low), _mm256_set1_epi8(LINEAR_SMALLEST_LOW));
    int32_t high_half[2], low_half[2], half[2];
    half_sums(high_plane, high_half);
    half_sums(low_plane, low_half);
    for (int i = 0; i < 2; i++)
        half[i] = 256 * high_half[i] + low_half[i];
    _mm256_storeu_si256((__m256i *)record, high_plane);
    _mm256_storeu_si256((__m256i *)(record + LINEAR_PLANE_BYTES), low_plane);
    put_tail(record + 2 * LINEAR_PLANE_BYTES, peak / (float)LINEAR_LARGEST_INT16, half);
}

void linear_round_avx2(const float *x, size_t cols, linear_format format, unsigned char *records,
                       size_t stride)
{
    const size_t whole = cols / LINEAR_UNIT * LINEAR_UNIT;
    for (size_t col = 0; col < whole; col += LINEAR_UNIT, records += stride) {
        const block block = load_block(x + col);
        const uint32_t bits = peak_bits(&block);
        float peak;
        memcpy(&peak, &bits, sizeof peak);
        if (format == LINEAR_FORMAT_F32 || !(peak >= LINEAR_SMALLEST_PEAK && peak < INFINITY))
            linear_round_plain(x + col, LINEAR_UNIT, format, records, stride);
        else if (format == LINEAR_FORMAT_INT8)
            round_int8(&block, peak, records);
        else
            round_int16(&block, peak, records);
    }
    if (whole < cols)
        linear_round_plain(x + whole, cols - whole, format, records, stride);
}
