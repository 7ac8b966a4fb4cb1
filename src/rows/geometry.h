// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_GEOMETRY_H
#define KVERN_ROWS_GEOMETRY_H

// What a page of one layer looks like: for each of its streams (keys, values; latents) the blocks
// of all KV heads, stream after stream. A decode takes the heads of a page together
// (src/attend/tile.h), so it reads the page from front to back.

#include "src/base/assert.h"
#include "src/codec/codec_type.h"

#define KVERN_MAX_STREAMS 4

// What a read does with a stream; bits, for one stream may do for both.
typedef enum kvern_stream_role {
    KVERN_ROLE_SCORE = 1, // queries are scored against it
    KVERN_ROLE_VALUE = 2, // it is summed up by the weights of its positions
    KVERN_ROLE_BOTH = KVERN_ROLE_SCORE | KVERN_ROLE_VALUE,
    KVERN_ROLE_INDEX = 4 // positions are selected by it; attention does not read it
} kvern_stream_role;

// Which of the caller's tensors a stream stores.
typedef enum kvern_lane {
    KVERN_LANE_K,
    KVERN_LANE_V,
    KVERN_LANE_LATENT,
    KVERN_LANE_ROPE,
    KVERN_LANE_INDEX
} kvern_lane;
#define KVERN_LANES 5

// One stream of vectors: `heads` of `dim` numbers per position.
typedef struct kvern_stream_plan {
    const char *name; // in messages and signatures: "k"
    kvern_stream_role role;
    kvern_lane lane;
    size_t heads, dim, most_dim;
    kvern_codec codec;
    const kvern_codec_type *type; // of the codec
    kvern_codec_kernels kernels;
    size_t block_bytes; // of one head
    size_t offset;      // of the first head's block in a page
} kvern_stream_plan;

typedef struct kvern_geometry {
    bool whole;          // a page is all that a row holds, of page_bytes: there are no streams
    size_t stream_count; // 0 in others: there is no such form
    kvern_stream_plan streams[KVERN_MAX_STREAMS];
    size_t kv_heads;     // query heads divide into these
    size_t query_dim;    // numbers of a query: of all streams that it is scored against
    size_t query_floats; // of a prepared query
    size_t page_bytes;
    size_t record_bytes; // of a page that notes what a round puts into a whole row; 0: none
} kvern_geometry;

// The first stream with the role; NULL: there is none.
static inline const kvern_stream_plan *kvern_stream_find(const kvern_geometry *g,
                                                         kvern_stream_role role)
{
    for (size_t s = 0; s < g->stream_count; s++) {
        if (g->streams[s].role & role)
            return &g->streams[s];
    }
    return NULL;
}

// The first stream with the role.
static inline const kvern_stream_plan *kvern_stream_for(const kvern_geometry *g,
                                                        kvern_stream_role role)
{
    size_t s = 0;
    while (!(g->streams[s].role & role))
        s++;
    KVERN_ASSERT(s < g->stream_count);
    return &g->streams[s];
}

// Whether values are what queries are scored against: a latent is both, and stored once.
static inline bool kvern_values_are_keys(const kvern_geometry *g)
{
    return kvern_stream_for(g, KVERN_ROLE_VALUE)->role == KVERN_ROLE_BOTH;
}

// How the codec lays the stream's blocks out.
static inline kvern_stream kvern_stream_form(const kvern_stream_plan *stream)
{
    return stream->role == KVERN_ROLE_VALUE ? KVERN_STREAM_V : KVERN_STREAM_K;
}

static inline void *kvern_page_block(const kvern_stream_plan *stream, void *page, size_t head)
{
    KVERN_ASSERT(head < stream->heads);
    return (char *)page + stream->offset + head * stream->block_bytes;
}

// Stores `count` vectors of elements of `type`, `stride` bytes apart, in the slots from `slot` on
// of a block.
static inline void kvern_block_encode(const kvern_stream_plan *stream, void *block, size_t slot,
                                      size_t count, kvern_type type, const void *values,
                                      size_t stride)
{
    const kvern_codec_kernels *kernels = &stream->kernels;
    const kvern_stream form = kvern_stream_form(stream);
    const char *at = values;
    const size_t end = slot + count;
    KVERN_ASSERT(end <= KVERN_PAGE_POSITIONS);
    for (; kernels->encode_four && slot + 4 <= end; slot += 4, at += 4 * stride) {
        const void *const four[4] = {at, at + stride, at + 2 * stride, at + 3 * stride};
        kernels->encode_four(&stream->codec, form, block, stream->dim, slot, type, four);
    }
    for (; slot < end; slot++, at += stride)
        kernels->encode(&stream->codec, form, block, stream->dim, slot, type, at);
}

// Stores the numbers of one head, elements of `type`, in a slot of a page.
static inline void kvern_stream_encode(const kvern_stream_plan *stream, void *page, size_t head,
                                       size_t slot, kvern_type type, const void *values)
{
    kvern_block_encode(stream, kvern_page_block(stream, page, head), slot, 1, type, values, 0);
}

// The numbers that are stored there, exactly.
static inline void kvern_stream_decode(const kvern_stream_plan *stream, void *page, size_t head,
                                       size_t slot, float *values)
{
    stream->type->decode(&stream->codec, kvern_stream_form(stream),
                         kvern_page_block(stream, page, head), stream->dim, slot, values);
}

// Copies slots[0 .. count - 1], ascending, of one page to those from `at` on of another: all heads.
static inline void kvern_stream_gather(const kvern_stream_plan *stream, void *page,
                                       const uint8_t *slots, size_t count, void *to, size_t at)
{
    KVERN_ASSERT(at + count <= KVERN_PAGE_POSITIONS);
    for (size_t head = 0; head < stream->heads; head++)
        stream->type->gather(&stream->codec, kvern_stream_form(stream), stream->dim,
                             kvern_page_block(stream, page, head), slots, count,
                             kvern_page_block(stream, to, head), at);
}

#endif
