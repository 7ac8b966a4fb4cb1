// SPDX-License-Identifier: MIT
// Sizes of dense blocks, and decoding, one slot at a time.
#include "src/codec/dense/dense.h"

#include "src/math/half.h"

#include <string.h>

static float load_value(kvern_type type, const void *values, size_t i)
{
    uint16_t half;
    float value;
    if (type == KVERN_F32) {
        memcpy(&value, (const char *)values + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)values + i * sizeof half, sizeof half);
    return type == KVERN_BF16 ? kvern_f32_from_bf16(half) : kvern_f32_from_f16(half);
}

static size_t offset_of(kvern_stream stream, kvern_type type, size_t dim, size_t slot, size_t d)
{
    return stream == KVERN_STREAM_K ? kvern_dense_k_offset(type, slot, d)
                                    : kvern_dense_v_offset(type, dim, slot, d);
}

// Inlined with a constant `stored` below, so that each codec gets its own loop.
static inline void decode(kvern_type stored, kvern_stream stream, const void *block, size_t dim,
                          size_t slot, float *values)
{
    for (size_t d = 0; d < dim; d++)
        values[d] = load_value(stored, block, offset_of(stream, stored, dim, slot, d));
}

static size_t block_bytes_f32(const kvern_codec *codec, size_t dim)
{
    (void)codec;
    return dim * KVERN_PAGE_POSITIONS * sizeof(float);
}

static size_t block_bytes_half(const kvern_codec *codec, size_t dim)
{
    (void)codec;
    return dim * KVERN_PAGE_POSITIONS * sizeof(uint16_t);
}

static void decode_f32(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                       size_t slot, float *values)
{
    (void)codec;
    decode(KVERN_F32, stream, block, dim, slot, values);
}

static void decode_bf16(const kvern_codec *codec, kvern_stream stream, const void *block,
                        size_t dim, size_t slot, float *values)
{
    (void)codec;
    decode(KVERN_BF16, stream, block, dim, slot, values);
}

static void decode_f16(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                       size_t slot, float *values)
{
    (void)codec;
    decode(KVERN_F16, stream, block, dim, slot, values);
}

static size_t query_floats(const kvern_codec *codec, size_t dim)
{
    (void)codec;
    return dim;
}

const kvern_codec_layout kvern_dense_f32 = {block_bytes_f32, query_floats, NULL, decode_f32};
const kvern_codec_layout kvern_dense_bf16 = {block_bytes_half, query_floats, NULL, decode_bf16};
const kvern_codec_layout kvern_dense_f16 = {block_bytes_half, query_floats, NULL, decode_f16};
