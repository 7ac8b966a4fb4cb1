// SPDX-License-Identifier: MIT
// The definition of how vectors become turbo codes, and of both kernels over blocks of them.
#include "src/codec/rotation/rotation.h"
#include "src/codec/turbo/turbo.h"
#include "src/math/element.h"
#include "src/math/sum.h"

#include <string.h>

// ---- Storing ----

// The largest magnitude; NaN where a number is not finite.
static float largest_of(size_t dim, const float *x)
{
    float largest = 0;
    for (size_t d = 0; d < dim; d++) {
        if (!isfinite(x[d]))
            return NAN;
        largest = kvern_larger(fabsf(x[d]), largest);
    }
    return largest;
}

// By sixteen sums and the canonical tree.
static float sum_of_products(size_t dim, const float *a, const float *b)
{
    float sums[16] = {0};
    for (size_t d = 0; d < dim; d++)
        sums[d % 16] = fmaf(a[d], b[d], sums[d % 16]);
    return kvern_sum16(sums);
}

// The code of a number of a vector whose variance is 1. On an edge the larger magnitude wins.
static uint8_t code_of(uint32_t bits, float y)
{
    const uint32_t half = UINT32_C(1) << (bits - 1);
    uint32_t above = 0;
    for (uint32_t i = 0; i + 1 < half; i++)
        above += fabsf(y) >= kvern_turbo_edges[bits][i];
    return (uint8_t)(signbit(y) ? half - 1 - above : half + above);
}

// Puts the scale and the codes of a slot into its block.
static void place(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                  size_t slot, uint16_t scale, const uint8_t *codes)
{
    ((uint16_t *)block)[slot] = scale;
    kvern_codes_place(codec->bits, stream, kvern_turbo_words(block), dim, slot, codes);
}

static void encode(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                   size_t slot, kvern_type type, const void *values)
{
    float z[KVERN_MAX_STREAM_DIM], c[KVERN_MAX_STREAM_DIM];
    uint8_t codes[KVERN_MAX_STREAM_DIM] = {0};
    KVERN_ASSERT(dim % 16 == 0 && dim <= KVERN_MAX_STREAM_DIM && slot < KVERN_PAGE_POSITIONS);
    for (size_t d = 0; d < dim; d++)
        z[d] = kvern_load_element(type, values, d);
    const float largest = largest_of(dim, z);
    if (!(largest > 0)) {
        place(codec, stream, block, dim, slot, largest == 0 ? KVERN_TURBO_ZERO : KVERN_TURBO_NAN,
              codes);
        return;
    }
    const kvern_turbo_unit unit = kvern_turbo_unit_of(largest);
    for (size_t d = 0; d < dim; d++)
        z[d] *= unit.factor;
    kvern_rotate_plain(dim, z);
    kvern_turbo_sums sums = {.zz = sum_of_products(dim, z, z)};
    const float to_unit = sqrtf((float)dim / sums.zz);
    for (size_t d = 0; d < dim; d++) {
        codes[d] = code_of(codec->bits, z[d] * to_unit);
        c[d] = kvern_turbo_levels[codec->bits][codes[d]];
    }
    sums.zc = sum_of_products(dim, z, c);
    sums.cc = sum_of_products(dim, c, c);
    place(codec, stream, block, dim, slot, kvern_turbo_scale_of(stream, &sums, unit.inverse),
          codes);
}

// ---- Reading ----

// What the codes of a slot mean.
static void load_values(const kvern_codec *codec, kvern_stream stream, const void *block,
                        size_t dim, size_t slot, float *c)
{
    const uint32_t *words = kvern_turbo_words(block);
    for (size_t d = 0; d < dim; d++)
        c[d] = kvern_turbo_levels[codec->bits]
                                 [kvern_codes_find(codec->bits, stream, words, dim, slot, d)];
}

static void score(const kvern_codec *codec, const void *block, size_t dim, size_t tile_begin,
                  size_t tile_end, size_t n, const float *q, size_t q_stride, float *scores,
                  const void *next)
{
    (void)next;
    float c[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(tile_end * 16 <= KVERN_PAGE_POSITIONS && q_stride >= dim);
    for (size_t p = tile_begin * 16; p < tile_end * 16; p++) {
        load_values(codec, KVERN_STREAM_K, block, dim, p, c);
        for (size_t i = 0; i < n; i++) {
            float s = 0;
            for (size_t d = 0; d < dim; d++)
                s = fmaf(q[i * q_stride + d], c[d], s);
            scores[i * KVERN_PAGE_POSITIONS + p] = kvern_turbo_scale(block, p) * s;
        }
    }
}

static void accumulate(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                       size_t end, size_t n, const float *w, float *acc, const void *next)
{
    (void)next;
    float c[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(end <= KVERN_PAGE_POSITIONS);
    for (size_t p = begin; p < end; p++) {
        load_values(codec, KVERN_STREAM_V, block, dim, p, c);
        for (size_t i = 0; i < n; i++) {
            const float weight = w[i * KVERN_PAGE_POSITIONS + p] * kvern_turbo_scale(block, p);
            for (size_t d = 0; d < dim; d++)
                acc[i * dim + d] = fmaf(weight, c[d], acc[i * dim + d]);
        }
    }
}

static void decode_block(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                         size_t end, float *to)
{
    const uint32_t *words = kvern_turbo_words(block);
    KVERN_ASSERT(begin <= end && end <= dim);
    for (size_t d = begin; d < end; d++) {
        for (size_t p = 0; p < KVERN_PAGE_POSITIONS; p++) {
            const uint32_t code = kvern_codes_find(codec->bits, KVERN_STREAM_K, words, dim, p, d);
            to[(d - begin) * KVERN_PAGE_POSITIONS + p] =
                kvern_turbo_scale(block, p) * kvern_turbo_levels[codec->bits][code];
        }
    }
}

static void prepare(const kvern_codec *codec, size_t dim, float *q)
{
    (void)codec;
    kvern_rotate_plain(dim, q);
}

static void finish(const kvern_codec *codec, size_t dim, float *sums)
{
    (void)codec;
    kvern_rotate_back_plain(dim, sums);
}

const kvern_codec_kernels kvern_turbo_plain = {.encode = encode,
                                               .score = score,
                                               .accumulate = accumulate,
                                               .decode_block = decode_block,
                                               .prepare = prepare,
                                               .finish = finish,
                                               .rotate = kvern_rotate_plain};
