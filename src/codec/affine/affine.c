// SPDX-License-Identifier: MIT
// Sizes of affine blocks, the sums of a prepared query, and looking, one slot at a time.
#include "src/codec/affine/affine.h"

#include "src/math/half.h"
#include "src/math/sum.h"

#include <math.h>

bool kvern_affine_exists(const kvern_codec *codec)
{
    const bool bits = (codec->bits >= 2 && codec->bits <= 6) || codec->bits == 8;
    const bool group = codec->group == 32 || codec->group == 64 || codec->group == 128;
    return bits && group && kvern_type_bytes(codec->scales) != 0;
}

static size_t block_bytes(const kvern_codec *codec, size_t dim)
{
    return kvern_affine_sides(codec, dim) * kvern_type_bytes(codec->scales) +
           dim * codec->bits * KVERN_PAGE_POSITIONS / 8;
}

static size_t query_floats(const kvern_codec *codec, size_t dim)
{
    return dim + dim / codec->group;
}

// The sum of a group, by sixteen sums and the canonical tree.
static float group_sum(const float *q, size_t group)
{
    float sums[16];
    memcpy(sums, q, sizeof sums);
    for (size_t d = 16; d < group; d += 16) {
        for (size_t i = 0; i < 16; i++)
            sums[i] += q[d + i];
    }
    return kvern_sum16(sums);
}

static void prepare(const kvern_codec *codec, size_t dim, float *q)
{
    for (size_t g = 0; g < dim / codec->group; g++)
        q[dim + g] = group_sum(q + g * codec->group, codec->group);
}

// ---- Looking at a slot ----

static float load_side(kvern_type type, const void *sides, size_t at)
{
    if (type == KVERN_F32)
        return ((const float *)sides)[at];
    const uint16_t half = ((const uint16_t *)sides)[at];
    return type == KVERN_BF16 ? kvern_f32_from_bf16(half) : kvern_f32_from_f16(half);
}

void kvern_affine_store_side(kvern_type type, void *sides, size_t at, float value)
{
    if (type == KVERN_F32)
        ((float *)sides)[at] = value;
    else
        ((uint16_t *)sides)[at] =
            type == KVERN_BF16 ? kvern_bf16_from_f32(value) : kvern_f16_from_f32(value);
}

uint32_t kvern_affine_code_at(const kvern_codec *codec, kvern_stream stream, const void *block,
                              size_t dim, size_t slot, size_t d)
{
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    const size_t column = KVERN_AFFINE_COLUMN;
    if (stream == KVERN_STREAM_K)
        return kvern_affine_code(codec->bits,
                                 words + (d / column) * codec->bits * KVERN_PAGE_POSITIONS + slot,
                                 KVERN_PAGE_POSITIONS, (uint32_t)(d % column));
    const size_t first = d - d % KVERN_AFFINE_PANEL;
    words += kvern_affine_panel_at(codec->bits, dim, first, slot / column) + (d - first);
    return kvern_affine_code(codec->bits, words, kvern_affine_panel_width(dim, first),
                             (uint32_t)(slot % column));
}

static void decode(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, float *values)
{
    for (size_t d = 0; d < dim; d++) {
        const size_t g = d / codec->group;
        values[d] = fmaf(load_side(codec->scales, block, kvern_affine_scale_at(slot, g)),
                         (float)kvern_affine_code_at(codec, stream, block, dim, slot, d),
                         load_side(codec->scales, block, kvern_affine_bias_at(slot, g)));
    }
}

void kvern_affine_export(const kvern_codec *codec, kvern_stream stream, const void *block,
                         size_t dim, size_t slot, uint32_t *words, void *scales, void *biases)
{
    memset(words, 0, dim * codec->bits / 8);
    for (size_t d = 0; d < dim; d++) {
        const uint64_t code = kvern_affine_code_at(codec, stream, block, dim, slot, d);
        const size_t bit = d * codec->bits, word = bit / 32;
        const uint64_t placed = code << bit % 32;
        words[word] |= (uint32_t)placed;
        if (placed >> 32)
            words[word + 1] |= (uint32_t)(placed >> 32);
    }
    const size_t bytes = kvern_type_bytes(codec->scales);
    for (size_t g = 0; g < dim / codec->group; g++) {
        memcpy((char *)scales + g * bytes,
               (const char *)block + kvern_affine_scale_at(slot, g) * bytes, bytes);
        memcpy((char *)biases + g * bytes,
               (const char *)block + kvern_affine_bias_at(slot, g) * bytes, bytes);
    }
}

// The code number d of a stream of bits.
static uint32_t code_in_stream(uint32_t bits, const uint32_t *words, size_t d)
{
    const size_t bit = d * bits, word = bit / 32;
    uint64_t pair = words[word];
    if (bit % 32 + bits > 32)
        pair |= (uint64_t)words[word + 1] << 32;
    return (uint32_t)(pair >> bit % 32) & ((UINT32_C(1) << bits) - 1);
}

void kvern_affine_import(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                         size_t slot, const uint32_t *words, const void *scales, const void *biases)
{
    uint32_t codes[KVERN_MAX_HEAD_DIM];
    for (size_t d = 0; d < dim; d++)
        codes[d] = code_in_stream(codec->bits, words, d);
    uint32_t *to = kvern_affine_words(codec, block, dim);
    if (stream == KVERN_STREAM_K)
        kvern_affine_place_k(codec->bits, to, dim, slot, codes);
    else
        kvern_affine_place_v(codec->bits, to, dim, slot, codes);
    const size_t bytes = kvern_type_bytes(codec->scales);
    for (size_t g = 0; g < dim / codec->group; g++) {
        memcpy((char *)block + kvern_affine_scale_at(slot, g) * bytes,
               (const char *)scales + g * bytes, bytes);
        memcpy((char *)block + kvern_affine_bias_at(slot, g) * bytes,
               (const char *)biases + g * bytes, bytes);
    }
}

const kvern_codec_layout kvern_affine_layout = {block_bytes, query_floats, prepare, decode};
