// SPDX-License-Identifier: MIT
// Looking at what a row stores: its values, and the codes they are made of.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/codec/codec.h"
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
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    const int64_t keep = kvern_cache_planned(cache)->window.keep;
    const int64_t held = kvern_attention_held(kvern_cache_planned(cache), &rows, row);
    if (count > 0 && position < held && position + count > keep)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: positions %" PRId64 " to %" PRId64 " are not held any more",
                          row, position > keep ? position : keep, held - 1);
    return KVERN_OK;
}

// Where a row lies.
typedef struct place {
    const kvern_planned_layer *layer;
    kvern_layer_rows rows;
    size_t row;
} place;

static place place_of(const kvern_cache *cache, size_t row)
{
    return (place){kvern_cache_planned(cache), kvern_cache_layer_rows(cache), row};
}

static kvern_formed_page page_of(const place *from, int64_t position)
{
    return kvern_attention_page(from->layer, &from->rows, from->row, position);
}

// ---- Values ----

// All heads of stream number `s` of one position.
static void export_position(const kvern_formed_page *page, size_t s, size_t slot, float *to)
{
    const kvern_stream_plan *stream = &page->geometry->streams[s];
    for (size_t h = 0; h < stream->heads; h++)
        kvern_stream_decode(stream, page->data, h, slot, to + h * stream->dim);
}

static void export_stream(const place *from, size_t s, int64_t position, int64_t count, float *to)
{
    const kvern_stream_plan *stream = &from->layer->geometry.streams[s];
    for (int64_t i = 0; i < count; i++) {
        const kvern_formed_page page = page_of(from, position + i);
        export_position(&page, s, (size_t)(position + i) % KVERN_PAGE_POSITIONS,
                        to + (size_t)i * stream->heads * stream->dim);
    }
}

kvern_status kvern_cache_export(const kvern_cache *cache, size_t row, int64_t position,
                                int64_t count, float *k, float *v)
{
    kvern_status status = check_positions(cache, row, position, count);
    if (status)
        return status;
    const place from = place_of(cache, row);
    float *const to[] = {k, v};
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t s = 0; s < from.layer->geometry.stream_count; s++) {
        if (to[s])
            export_stream(&from, s, position, count, to[s]);
    }
    kvern_fp_leave(saved);
    return KVERN_OK;
}

// ---- Codes ----

static kvern_status check_affine(const kvern_stream_plan *stream, const kvern_affine_arrays *arrays)
{
    if (!arrays)
        return KVERN_OK;
    if (arrays->reserved[0] || arrays->reserved[1])
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: a reserved pointer is not NULL", stream->name);
    if (!arrays->words || !arrays->scales ||
        (!arrays->biases && kvern_codec_has_biases(&stream->codec)))
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: words, scales or biases is NULL", stream->name);
    if (stream->type->affine)
        return KVERN_OK;
    char stored[KVERN_CODEC_NAME_BYTES];
    stream->type->name(&stream->codec, stored);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s is stored in %s, not in codes", stream->name,
                      stored);
}

// What is not stored in the planned codecs yet is asked for as it is stored.
static const kvern_geometry *form_of(const place *from, int64_t position, int64_t count)
{
    const kvern_geometry *form =
        kvern_attention_form(from->layer, &from->rows.rows[from->row]).geometry;
    for (int64_t i = 0; i < count; i++) {
        form = page_of(from, position + i).geometry;
        if (form != &from->layer->geometry)
            break;
    }
    return form;
}

static void export_codes(const kvern_stream_plan *stream, const place *from, int64_t position,
                         int64_t count, const kvern_affine_arrays *to)
{
    for (size_t i = 0; i < (size_t)count * stream->heads; i++) {
        const int64_t at = position + (int64_t)(i / stream->heads);
        stream->type->affine->export(
            &stream->codec, kvern_stream_form(stream),
            kvern_page_block(stream, page_of(from, at).data, i % stream->heads), stream->dim,
            (size_t)at % KVERN_PAGE_POSITIONS, to, i);
    }
}

kvern_status kvern_cache_export_affine(const kvern_cache *cache, size_t row, int64_t position,
                                       int64_t count, const kvern_affine_arrays *k,
                                       const kvern_affine_arrays *v)
{
    kvern_status status = check_positions(cache, row, position, count);
    if (status)
        return status;
    const place from = place_of(cache, row);
    const kvern_geometry *g = form_of(&from, position, count);
    const kvern_affine_arrays *const to[] = {k, v};
    for (size_t s = 0; s < g->stream_count && !status; s++)
        status = check_affine(&g->streams[s], to[s]);
    for (size_t s = 0; s < g->stream_count && !status; s++) {
        if (to[s])
            export_codes(&g->streams[s], &from, position, count, to[s]);
    }
    return status;
}
