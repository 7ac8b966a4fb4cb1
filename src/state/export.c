// SPDX-License-Identifier: MIT
// Looking at what a row stores: its values, and the codes they are made of.
#include "src/base/fail.h"
#include "src/codec/affine/affine.h"
#include "src/math/fpenv.h"
#include "src/state/cache.h"

#include <inttypes.h>

// Kept positions, and those from row->held on, are there.
static kvern_status check_positions(const kvern_cache *cache, size_t row, int64_t position,
                                    int64_t count)
{
    if (!cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
    kvern_status status = kvern_cache_check_no_round(cache);
    if (status)
        return status;
    if (row >= cache->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, cache->row_count);
    if (position < 0 || count < 0 || count > cache->rows[row].length ||
        position > cache->rows[row].length - count)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: %" PRId64 " positions from %" PRId64
                          " on, and it holds %" PRId64,
                          row, count, position, cache->rows[row].length);
    const int64_t keep = kvern_cache_planned(cache)->window.keep, held = cache->rows[row].held;
    if (count > 0 && position < held && position + count > keep)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: positions %" PRId64 " to %" PRId64 " are not held any more",
                          row, position > keep ? position : keep, held - 1);
    return KVERN_OK;
}

static void *page_of(const kvern_row *row, int64_t position)
{
    return kvern_table_page(row->table, (size_t)position / KVERN_PAGE_POSITIONS)->data;
}

// ---- Values ----

static void export_position(const kvern_geometry *g, void *page, size_t slot, float *k, float *v)
{
    for (size_t h = 0; h < g->kv_heads; h++) {
        if (k)
            g->k_layout->decode(&g->k_codec, KVERN_STREAM_K, kvern_page_k(g, page, h), g->k_dim,
                                slot, k + h * g->k_dim);
        if (v)
            g->v_layout->decode(&g->v_codec, KVERN_STREAM_V, kvern_page_v(g, page, h), g->v_dim,
                                slot, v + h * g->v_dim);
    }
}

kvern_status kvern_cache_export(const kvern_cache *cache, size_t row, int64_t position,
                                int64_t count, float *k, float *v)
{
    kvern_status status = check_positions(cache, row, position, count);
    if (status)
        return status;
    const kvern_row *from = &cache->rows[row];
    const kvern_geometry *g = kvern_cache_form(cache, from).geometry;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (int64_t i = 0; i < count; i++)
        export_position(g, page_of(from, position + i),
                        (size_t)(position + i) % KVERN_PAGE_POSITIONS,
                        k ? k + (size_t)i * g->kv_heads * g->k_dim : NULL,
                        v ? v + (size_t)i * g->kv_heads * g->v_dim : NULL);
    kvern_fp_leave(saved);
    return KVERN_OK;
}

// ---- Affine codes ----

static kvern_status check_affine(const char *name, const kvern_codec *codec,
                                 const kvern_affine_arrays *arrays)
{
    if (!arrays)
        return KVERN_OK;
    if (!arrays->words || !arrays->scales || !arrays->biases)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: words, scales or biases is NULL", name);
    if (codec->kind == KVERN_CODEC_AFFINE)
        return KVERN_OK;
    char stored[KVERN_CODEC_NAME_BYTES];
    kvern_codec_name(codec, stored);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s is stored in %s, not in affine codes", name,
                      stored);
}

// One head of one position, the `index`th of the arrays.
static void export_head(const kvern_codec *codec, kvern_stream stream, const void *block,
                        size_t dim, size_t slot, size_t index, const kvern_affine_arrays *to)
{
    const size_t sides = dim / codec->group * kvern_type_bytes(codec->scales);
    kvern_affine_export(codec, stream, block, dim, slot, to->words + index * dim * codec->bits / 32,
                        (char *)to->scales + index * sides, (char *)to->biases + index * sides);
}

kvern_status kvern_cache_export_affine(const kvern_cache *cache, size_t row, int64_t position,
                                       int64_t count, const kvern_affine_arrays *k,
                                       const kvern_affine_arrays *v)
{
    kvern_status status = check_positions(cache, row, position, count);
    if (status)
        return status;
    const kvern_row *from = &cache->rows[row];
    const kvern_geometry *g = kvern_cache_form(cache, from).geometry;
    if ((status = check_affine("k", &g->k_codec, k)) ||
        (status = check_affine("v", &g->v_codec, v)))
        return status;
    for (size_t i = 0; i < (size_t)count * g->kv_heads; i++) {
        const int64_t at = position + (int64_t)(i / g->kv_heads);
        const size_t slot = (size_t)at % KVERN_PAGE_POSITIONS, head = i % g->kv_heads;
        void *page = page_of(from, at);
        if (k)
            export_head(&g->k_codec, KVERN_STREAM_K, kvern_page_k(g, page, head), g->k_dim, slot, i,
                        k);
        if (v)
            export_head(&g->v_codec, KVERN_STREAM_V, kvern_page_v(g, page, head), g->v_dim, slot, i,
                        v);
    }
    return KVERN_OK;
}
