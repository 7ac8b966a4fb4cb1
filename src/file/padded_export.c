// SPDX-License-Identifier: MIT
// Rows to right-justified padded planes.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/padded_planes.h"
#include "src/math/element.h"
#include "src/math/fpenv.h"

#include <inttypes.h>
#include <string.h>

// Positions that a row holds.
static int64_t held_positions(const kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    const int64_t held = kvern_attention_held(layer, &rows, row), length = rows.rows[row].length;
    return held == 0 ? length : layer->window.keep + length - held;
}

int64_t kvern_cache_padded_width(const kvern_cache *cache)
{
    int64_t width = 0;
    for (size_t r = 0; r < cache->batch->row_count; r++)
        width = kvern_max_i64(width, held_positions(cache, r));
    return width;
}

static kvern_status check_export(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    kvern_status status = kvern_cache_check_idle(cache);
    if (!status)
        status = kvern_planes_check(cache, planes);
    if (status)
        return status;
    if (planes->width < kvern_cache_padded_width(cache))
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu: %" PRId64 " columns for rows of %" PRId64 " positions",
                          cache->layer, planes->width, kvern_cache_padded_width(cache));
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    for (size_t r = 0; r < cache->batch->row_count && kvern_planes_have_codes(&set); r++) {
        if (cache->rows[r].length && (cache->coded_set || !kvern_cache_converted(cache, r)))
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "layer %zu: row %zu is not stored in affine codes throughout, or not "
                              "yet",
                              cache->layer, r);
    }
    return KVERN_OK;
}

static void clear_vector(const kvern_stream_plan *stream, const kvern_plane *p, size_t index)
{
    if (p->numbers)
        memset(kvern_plane_numbers(p, index), 0, p->dim * kvern_type_bytes(p->type));
    if (kvern_plane_has_codes(p))
        stream->type->affine->clear(&stream->codec, p->dim, &p->codes, index);
}

// One head of one position, in the forms that are asked for.
static void export_vector(const kvern_stream_plan *stream, const kvern_plane *p, void *page,
                          size_t head, size_t slot, size_t index)
{
    if (p->numbers) {
        float values[KVERN_MAX_STREAM_DIM];
        kvern_stream_decode(stream, page, head, slot, values);
        for (size_t d = 0; d < p->dim; d++)
            kvern_store_element(p->type, kvern_plane_numbers(p, index), d, values[d]);
    }
    if (kvern_plane_has_codes(p))
        stream->type->affine->export(&stream->codec, kvern_stream_form(stream),
                                     kvern_page_block(stream, page, head), p->dim, slot, &p->codes,
                                     index);
}

// One head of one row: `left` columns of padding, then the row's.
static void export_head(const kvern_cache *cache, size_t row, const kvern_plane *p,
                        const kvern_columns *c, size_t head, size_t first, size_t left)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    for (size_t i = 0; i < left; i++)
        clear_vector(&layer->geometry.streams[p->stream], p, first + i);
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t position = kvern_columns_position(c, i);
        const kvern_formed_page page = kvern_attention_page(layer, &rows, row, position);
        export_vector(&page.geometry->streams[p->stream], p, page.data, head,
                      (size_t)position % KVERN_PAGE_POSITIONS, first + left + (size_t)i);
    }
}

static void export_row(const kvern_cache *cache, const kvern_padded_planes *planes, size_t r)
{
    const kvern_row *row = &cache->rows[r];
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    const int64_t count = held_positions(cache, r);
    const kvern_columns c = {count, row->length, layer->window.keep, row->length - count};
    const size_t heads = layer->geometry.kv_heads, width = (size_t)planes->width;
    KVERN_ASSERT(count <= row->length && (size_t)count <= width);
    for (size_t h = 0; h < heads; h++) {
        const size_t first = (r * heads + h) * width, left = width - (size_t)count;
        for (size_t s = 0; s < set.count; s++) {
            if (set.planes[s].numbers || kvern_plane_has_codes(&set.planes[s]))
                export_head(cache, r, &set.planes[s], &c, h, first, left);
        }
    }
    if (planes->left_padding)
        planes->left_padding[r] = planes->width - count;
    if (planes->offsets)
        planes->offsets[r] = row->length;
}

kvern_status kvern_cache_export_padded(const kvern_cache *cache, const kvern_padded_planes *given)
{
    kvern_padded_planes known;
    const kvern_padded_planes *planes = &known;
    kvern_status status = kvern_planes_read(given, &known);
    if (!status)
        status = check_export(cache, planes);
    if (status)
        return status;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0; r < cache->batch->row_count; r++)
        export_row(cache, planes, r);
    kvern_fp_leave(saved);
    return KVERN_OK;
}
