// SPDX-License-Identifier: MIT
// Looking at what a row stores: its values, and the codes they are made of.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/layer/attention/attention.h"
#include "src/math/fpenv.h"
#include "src/state/cache.h"

#include <inttypes.h>

// Kept positions, and those from row->held on, are there.
static kvern_status check_positions(const kvern_cache *cache, size_t row, int64_t position,
                                    int64_t count)
{
    if (!cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
    kvern_status status = kvern_batch_check_no_round(cache->batch);
    if (!status)
        status = kvern_attention_check_kind(kvern_cache_planned(cache));
    if (status)
        return status;
    if (row >= cache->batch->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, cache->batch->row_count);
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
    KVERN_ASSERT(position >= 0 && position < row->length);
    return kvern_table_page(row->table, (size_t)position / KVERN_PAGE_POSITIONS)->data;
}

// ---- Values ----

// All heads of one position.
static void export_position(const kvern_stream_plan *stream, void *page, size_t slot, float *to)
{
    for (size_t h = 0; h < stream->heads; h++)
        kvern_stream_decode(stream, page, h, slot, to + h * stream->dim);
}

static void export_stream(const kvern_stream_plan *stream, const kvern_row *row, int64_t position,
                          int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        export_position(stream, page_of(row, position + i),
                        (size_t)(position + i) % KVERN_PAGE_POSITIONS,
                        to + (size_t)i * stream->heads * stream->dim);
}

kvern_status kvern_cache_export(const kvern_cache *cache, size_t row, int64_t position,
                                int64_t count, float *k, float *v)
{
    kvern_status status = check_positions(cache, row, position, count);
    if (status)
        return status;
    const kvern_row *from = &cache->rows[row];
    const kvern_geometry *g = kvern_attention_form(kvern_cache_planned(cache), from).geometry;
    float *const to[] = {k, v};
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t s = 0; s < g->stream_count; s++) {
        if (to[s])
            export_stream(&g->streams[s], from, position, count, to[s]);
    }
    kvern_fp_leave(saved);
    return KVERN_OK;
}

// ---- Affine codes ----

static kvern_status check_affine(const kvern_stream_plan *stream, const kvern_affine_arrays *arrays)
{
    if (!arrays)
        return KVERN_OK;
    if (arrays->reserved[0] || arrays->reserved[1])
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: a reserved pointer is not NULL", stream->name);
    if (!arrays->words || !arrays->scales || !arrays->biases)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: words, scales or biases is NULL", stream->name);
    if (stream->type->affine)
        return KVERN_OK;
    char stored[KVERN_CODEC_NAME_BYTES];
    stream->type->name(&stream->codec, stored);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s is stored in %s, not in affine codes",
                      stream->name, stored);
}

static void export_codes(const kvern_stream_plan *stream, const kvern_row *row, int64_t position,
                         int64_t count, const kvern_affine_arrays *to)
{
    for (size_t i = 0; i < (size_t)count * stream->heads; i++) {
        const int64_t at = position + (int64_t)(i / stream->heads);
        stream->type->affine->export(&stream->codec, kvern_stream_form(stream),
                                     kvern_page_block(stream, page_of(row, at), i % stream->heads),
                                     stream->dim, (size_t)at % KVERN_PAGE_POSITIONS, to, i);
    }
}

kvern_status kvern_cache_export_affine(const kvern_cache *cache, size_t row, int64_t position,
                                       int64_t count, const kvern_affine_arrays *k,
                                       const kvern_affine_arrays *v)
{
    kvern_status status = check_positions(cache, row, position, count);
    if (status)
        return status;
    const kvern_row *from = &cache->rows[row];
    const kvern_geometry *g = kvern_attention_form(kvern_cache_planned(cache), from).geometry;
    const kvern_affine_arrays *const to[] = {k, v};
    for (size_t s = 0; s < g->stream_count && !status; s++)
        status = check_affine(&g->streams[s], to[s]);
    for (size_t s = 0; s < g->stream_count && !status; s++) {
        if (to[s])
            export_codes(&g->streams[s], from, position, count, to[s]);
    }
    return status;
}
