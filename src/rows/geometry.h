// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_GEOMETRY_H
#define KVERN_ROWS_GEOMETRY_H

// What a page of one layer looks like: the blocks of keys of all KV heads, then their blocks of
// values. A decode takes the heads of a page together (src/attend/tile.h), so it reads the page
// from front to back.

#include "src/codec/codec.h"

typedef struct kvern_geometry {
    size_t kv_heads;
    size_t k_dim, v_dim;
    kvern_codec k_codec, v_codec;
    const kvern_codec_layout *k_layout, *v_layout;
    kvern_codec_kernels k_kernels, v_kernels;
    size_t k_block_bytes, v_block_bytes;
    size_t query_floats; // of a prepared query
    size_t page_bytes;
} kvern_geometry;

static inline void *kvern_page_k(const kvern_geometry *g, void *page, size_t head)
{
    return (char *)page + head * g->k_block_bytes;
}

static inline void *kvern_page_v(const kvern_geometry *g, void *page, size_t head)
{
    return (char *)page + g->kv_heads * g->k_block_bytes + head * g->v_block_bytes;
}

#endif
