// SPDX-License-Identifier: MIT
// The definition of the kernels (docs/arithmetic.md, steps 2 and 4): every vector kernel gives
// these bits.
#include "src/codec/dense/dense.h"

#include "src/base/assert.h"
#include "src/math/element.h"

#include <math.h>

static inline void score(kvern_type type, const void *block, size_t dim, size_t tile_begin,
                         size_t tile_end, size_t n, const float *q, size_t q_stride, float *scores)
{
    KVERN_ASSERT(tile_end * 16 <= KVERN_PAGE_POSITIONS && q_stride >= dim);
    for (size_t i = 0; i < n; i++) {
        for (size_t p = tile_begin * 16; p < tile_end * 16; p++) {
            float s = 0;
            for (size_t d = 0; d < dim; d++)
                s = fmaf(q[i * q_stride + d],
                         kvern_load_element(type, block, kvern_dense_k_offset(type, p, d)), s);
            scores[i * KVERN_PAGE_POSITIONS + p] = s;
        }
    }
}

static inline void accumulate(kvern_type type, const void *block, size_t dim, size_t begin,
                              size_t end, size_t n, const float *w, float *acc)
{
    KVERN_ASSERT(end <= KVERN_PAGE_POSITIONS);
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d < dim; d++) {
            float sum = acc[i * dim + d];
            for (size_t p = begin; p < end; p++)
                sum = fmaf(w[i * KVERN_PAGE_POSITIONS + p],
                           kvern_load_element(type, block, kvern_dense_v_offset(type, dim, p, d)),
                           sum);
            acc[i * dim + d] = sum;
        }
    }
}

static inline void encode(kvern_type stored, kvern_stream stream, void *block, size_t dim,
                          size_t slot, kvern_type type, const void *values)
{
    float wide[KVERN_MAX_STREAM_DIM];
    uint16_t half[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(dim % 8 == 0 && dim <= KVERN_MAX_STREAM_DIM && slot < KVERN_PAGE_POSITIONS);
    for (size_t d = 0; d < dim; d++) {
        wide[d] = kvern_load_element(type, values, d);
        half[d] = stored == KVERN_BF16 ? kvern_bf16_from_f32(wide[d]) : kvern_f16_from_f32(wide[d]);
    }
    kvern_dense_place(stored, stream, block, dim, slot, stored == KVERN_F32 ? (void *)wide : half);
}

static inline void decode_block(kvern_type type, const void *block, size_t begin, size_t end,
                                float *to)
{
    KVERN_ASSERT(begin % 8 == 0 && begin <= end && end <= KVERN_MAX_STREAM_DIM);
    for (size_t d = begin; d < end; d++)
        for (size_t p = 0; p < KVERN_PAGE_POSITIONS; p++)
            to[(d - begin) * KVERN_PAGE_POSITIONS + p] =
                kvern_load_element(type, block, kvern_dense_k_offset(type, p, d));
}

// Four functions per type; `next` is of no use without prefetching.
#define DENSE_PLAIN(name, type)                                                                    \
    static void encode_##name(const kvern_codec *codec, kvern_stream stream, void *block,          \
                              size_t dim, size_t slot, kvern_type from, const void *values)        \
    {                                                                                              \
        (void)codec;                                                                               \
        encode(type, stream, block, dim, slot, from, values);                                      \
    }                                                                                              \
    static void score_##name(const kvern_codec *codec, const void *block, size_t dim,              \
                             size_t tile_begin, size_t tile_end, size_t n, const float *q,         \
                             size_t q_stride, float *scores, const void *next)                     \
    {                                                                                              \
        (void)codec;                                                                               \
        (void)next;                                                                                \
        score(type, block, dim, tile_begin, tile_end, n, q, q_stride, scores);                     \
    }                                                                                              \
    static void accumulate_##name(const kvern_codec *codec, const void *block, size_t dim,         \
                                  size_t begin, size_t end, size_t n, const float *w, float *acc,  \
                                  const void *next)                                                \
    {                                                                                              \
        (void)codec;                                                                               \
        (void)next;                                                                                \
        accumulate(type, block, dim, begin, end, n, w, acc);                                       \
    }                                                                                              \
    static void decode_block_##name(const kvern_codec *codec, const void *block, size_t dim,       \
                                    size_t begin, size_t end, float *to)                           \
    {                                                                                              \
        (void)codec;                                                                               \
        (void)dim;                                                                                 \
        decode_block(type, block, begin, end, to);                                                 \
    }                                                                                              \
    const kvern_codec_kernels kvern_dense_##name##_plain = {.encode = encode_##name,               \
                                                            .score = score_##name,                 \
                                                            .accumulate = accumulate_##name,       \
                                                            .decode_block = decode_block_##name};

DENSE_PLAIN(f32, KVERN_F32)
DENSE_PLAIN(bf16, KVERN_BF16)
DENSE_PLAIN(f16, KVERN_F16)
