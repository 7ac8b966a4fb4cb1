// SPDX-License-Identifier: MIT
// The definition of the kernels (docs/arithmetic.md, "Affine codes"): every vector kernel gives
// these bits.
#include "src/codec/affine/affine.h"
#include "src/codec/rotation/rotation.h"

#include "src/base/assert.h"
#include "src/math/element.h"
#include "src/math/sum.h"

#include <math.h>

// ---- Encoding ----

// To the nearest point of the grid, ties to even. A NaN, from 0 / 0 where the scale rounds to 0,
// becomes 0.
static uint8_t code_of(uint32_t bits, kvern_affine_line line, float value)
{
    const float most = (float)((1u << bits) - 1);
    const float code = rintf((value - line.bias) / line.scale);
    return code > 0 ? (uint8_t)(code < most ? code : most) : 0;
}

// Codes of a group; returns its line.
static kvern_affine_line encode_group(uint32_t bits, size_t group, const float *values,
                                      uint8_t *codes)
{
    float lo = values[0], hi = values[0];
    KVERN_ASSERT(group > 0);
    bool finite = true;
    for (size_t i = 0; i < group; i++) {
        lo = values[i] < lo ? values[i] : lo;
        hi = values[i] > hi ? values[i] : hi;
        finite = finite && isfinite(values[i]);
    }
    if (!finite) {
        memset(codes, 0, group * sizeof *codes);
        return kvern_affine_no_line();
    }
    const kvern_affine_line line = kvern_affine_line_of(bits, lo, hi);
    for (size_t i = 0; i < group; i++)
        codes[i] = code_of(bits, line, values[i]);
    return line;
}

// The numbers are rounded to the type of the scales here, and used up.
static void encode_wide(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                        size_t slot, float *wide)
{
    uint8_t codes[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(dim % codec->group == 0 && dim <= KVERN_MAX_STREAM_DIM);
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS);
    for (size_t d = 0; d < dim; d++)
        wide[d] = kvern_round_element(codec->scales, wide[d]);
    for (size_t g = 0; g < dim / codec->group; g++) {
        const size_t d = g * codec->group;
        kvern_affine_place_line(codec, block, slot, g,
                                encode_group(codec->bits, codec->group, wide + d, codes + d));
    }
    uint32_t *words = kvern_affine_words(codec, block, dim);
    kvern_codes_place(codec->bits, stream, words, dim, slot, codes);
}

static void encode(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                   size_t slot, kvern_type type, const void *values)
{
    float wide[KVERN_MAX_STREAM_DIM];
    for (size_t d = 0; d < dim; d++)
        wide[d] = kvern_load_element(type, values, d);
    encode_wide(codec, stream, block, dim, slot, wide);
}

static void encode_rotated(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                           size_t slot, kvern_type type, const void *values)
{
    float wide[KVERN_MAX_STREAM_DIM];
    for (size_t d = 0; d < dim; d++)
        wide[d] = kvern_load_element(type, values, d);
    kvern_rotate_plain(dim, wide);
    encode_wide(codec, stream, block, dim, slot, wide);
}

// ---- Reading ----

static float scale_of(const kvern_codec *codec, const void *block, size_t slot, size_t group)
{
    return kvern_load_element(codec->scales, block, kvern_affine_scale_at(slot, group));
}

static float bias_of(const kvern_codec *codec, const void *block, size_t slot, size_t group)
{
    return kvern_load_element(codec->scales, block, kvern_affine_bias_at(slot, group));
}

// The codes of a slot, as floats.
static void load_codes(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                       size_t slot, float *codes)
{
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    KVERN_ASSERT(dim <= KVERN_MAX_STREAM_DIM);
    for (size_t d = 0; d < dim; d++)
        codes[d] = (float)kvern_codes_find(codec->bits, stream, words, dim, slot, d);
}

static void score(const kvern_codec *codec, const void *block, size_t dim, size_t tile_begin,
                  size_t tile_end, size_t n, const float *q, size_t q_stride, float *scores,
                  const void *next)
{
    (void)next;
    float codes[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(tile_end * 16 <= KVERN_PAGE_POSITIONS && q_stride >= dim + dim / codec->group);
    for (size_t p = tile_begin * 16; p < tile_end * 16; p++) {
        load_codes(codec, KVERN_STREAM_K, block, dim, p, codes);
        for (size_t i = 0; i < n; i++) {
            const float *query = q + i * q_stride;
            float s = 0;
            for (size_t g = 0; g < dim / codec->group; g++) {
                float t = 0;
                for (size_t d = g * codec->group; d < (g + 1) * codec->group; d++)
                    t = fmaf(query[d], codes[d], t);
                s = fmaf(scale_of(codec, block, p, g), t, s);
                s = fmaf(bias_of(codec, block, p, g), query[dim + g], s);
            }
            scores[i * KVERN_PAGE_POSITIONS + p] = s;
        }
    }
}

// The sum of weight times bias over the slots [begin, end), by sixteen sums and the canonical tree.
static float sum_of_biases(const kvern_codec *codec, const void *block, size_t group, size_t begin,
                           size_t end, const float *w)
{
    float sums[16] = {0};
    KVERN_ASSERT(begin < end && end <= KVERN_PAGE_POSITIONS);
    for (size_t p = 0; p < KVERN_PAGE_POSITIONS; p++) {
        const bool inside = p >= begin && p < end;
        sums[p % 16] =
            fmaf(inside ? w[p] : 0, inside ? bias_of(codec, block, p, group) : 0, sums[p % 16]);
    }
    return kvern_sum16(sums);
}

static void add_biases(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                       size_t end, const float *w, float *acc)
{
    for (size_t g = 0; g < dim / codec->group; g++) {
        const float bias = sum_of_biases(codec, block, g, begin, end, w);
        for (size_t d = g * codec->group; d < (g + 1) * codec->group; d++)
            acc[d] += bias;
    }
}

static void accumulate(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                       size_t end, size_t n, const float *w, float *acc, const void *next)
{
    (void)next;
    float codes[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(end <= KVERN_PAGE_POSITIONS);
    for (size_t p = begin; p < end; p++) {
        load_codes(codec, KVERN_STREAM_V, block, dim, p, codes);
        for (size_t d = 0; d < dim; d++) {
            const float scale = scale_of(codec, block, p, d / codec->group);
            for (size_t i = 0; i < n; i++)
                acc[i * dim + d] =
                    fmaf(w[i * KVERN_PAGE_POSITIONS + p] * scale, codes[d], acc[i * dim + d]);
        }
    }
    for (size_t i = 0; i < n && begin < end; i++)
        add_biases(codec, block, dim, begin, end, w + i * KVERN_PAGE_POSITIONS, acc + i * dim);
}

static void decode_block(const kvern_codec *codec, const void *block, size_t dim, size_t begin,
                         size_t end, float *to)
{
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    KVERN_ASSERT(begin <= end && end <= dim);
    for (size_t d = begin; d < end; d++) {
        const size_t group = d / codec->group;
        for (size_t p = 0; p < KVERN_PAGE_POSITIONS; p++) {
            const uint32_t code = kvern_codes_find(codec->bits, KVERN_STREAM_K, words, dim, p, d);
            to[(d - begin) * KVERN_PAGE_POSITIONS + p] = fmaf(
                scale_of(codec, block, p, group), (float)code, bias_of(codec, block, p, group));
        }
    }
}

const kvern_codec_kernels kvern_affine_plain = {.encode = encode,
                                                .score = score,
                                                .accumulate = accumulate,
                                                .decode_block = decode_block,
                                                .prepare = kvern_affine_prepare};

// ---- Rotated vectors ----

static void prepare_rotated(const kvern_codec *codec, size_t dim, float *q)
{
    kvern_rotate_plain(dim, q);
    kvern_affine_prepare(codec, dim, q);
}

static void finish_rotated(const kvern_codec *codec, size_t dim, float *sums)
{
    (void)codec;
    kvern_rotate_back_plain(dim, sums);
}

const kvern_codec_kernels kvern_rotated_plain = {.encode = encode_rotated,
                                                 .score = score,
                                                 .accumulate = accumulate,
                                                 .decode_block = decode_block,
                                                 .prepare = prepare_rotated,
                                                 .finish = finish_rotated,
                                                 .rotate = kvern_rotate_plain};
