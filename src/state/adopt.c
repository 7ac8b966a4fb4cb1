// SPDX-License-Identifier: MIT
// Taking over rows that were filled elsewhere.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/codec/codec.h"
#include "src/layer/attention/attention.h"
#include "src/layer/latent/latent.h"
#include "src/rows/row_image.h"
#include "src/state/walk.h"

#include <string.h>

static bool same_codecs(const kvern_geometry *a, const kvern_geometry *b)
{
    bool same = true;
    for (size_t s = 0; s < a->stream_count; s++)
        same = same && kvern_codec_equal(&a->streams[s].codec, &b->streams[s].codec);
    return same;
}

static bool same_shape(const kvern_geometry *a, const kvern_geometry *b)
{
    bool same = a->stream_count == b->stream_count;
    for (size_t s = 0; same && s < a->stream_count; s++) {
        const kvern_stream_plan *x = &a->streams[s], *y = &b->streams[s];
        same = x->lane == y->lane && x->heads == y->heads && x->dim == y->dim;
    }
    return same;
}

static bool same_window(const kvern_window *a, const kvern_window *b)
{
    return a->recent == b->recent && a->keep == b->keep && a->slack == b->slack &&
           a->chunk == b->chunk;
}

static kvern_status check_places(const kvern_cache *cache, size_t row, const kvern_cache *from,
                                 size_t from_row)
{
    if (!cache || !from)
        return kvern_fail(KVERN_ERR_ARGUMENT, "a cache is NULL");
    if (kvern_cache_context(cache) != kvern_cache_context(from))
        return kvern_fail(KVERN_ERR_ARGUMENT, "the caches belong to two contexts");
    if (row >= cache->batch->row_count || from_row >= from->batch->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu from row %zu of %zu", row,
                          cache->batch->row_count, from_row, from->batch->row_count);
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = kvern_cache_check_idle(from);
    if (!status && cache->rows[row].length)
        return kvern_fail(KVERN_ERR_BUSY, "row %zu is not empty", row);
    return status;
}

// One of the rows that a layer has of each: with the same pages, and what is not for the row alone.
static void share_row(const kvern_row *taken, kvern_row *row)
{
    const kvern_row_image image = {
        .converted = taken->converted,
        .length = taken->length,
        .keep = (int64_t)taken->kept * KVERN_PAGE_POSITIONS,
        .held = taken->held,
        .floor = taken->floor,
    };
    if (taken->length > 0)
        kvern_row_image_share(row, &image, taken->table);
    else
        row->converted = taken->converted;
    kvern_row_give_back(row);
}

// A recurrent state, and a row of which some positions are kept precise, are what their layer's
// signature says.
static kvern_status adopt_alike(kvern_cache *cache, size_t row, const kvern_cache *from,
                                size_t from_row)
{
    const kvern_layer_rows old = kvern_cache_layer_rows(from), to = kvern_cache_layer_rows(cache);
    if (strcmp(kvern_cache_signature(cache), kvern_cache_signature(from)) != 0)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a row of %s cannot become one of %s",
                          kvern_cache_signature(from), kvern_cache_signature(cache));
    if (old.rows[from_row].length == 0)
        return KVERN_OK;
    share_row(&old.rows[from_row], &to.rows[row]);
    if (old.coded)
        share_row(&old.coded[from_row], &to.coded[row]);
    cache->batch->lengths[row] = to.rows[row].length;
    KVERN_ASSERT(!kvern_caches_walk(cache));
    return KVERN_OK;
}

// Whether the row's pages are what the layer stores; *converted: in its planned codecs.
static kvern_status check_form(const kvern_cache *cache, const kvern_cache *from,
                               const kvern_row *row, bool *converted)
{
    const kvern_planned_layer *to = kvern_cache_planned(cache);
    const kvern_geometry *form = kvern_attention_form(kvern_cache_planned(from), row).geometry;
    const bool fits = same_shape(form, &to->geometry);
    const bool first = fits && to->first_pool && !row->converted && same_codecs(form, &to->first);
    if (fits && (first || same_codecs(form, &to->geometry)) &&
        (row->held == 0 || same_window(&to->window, &kvern_cache_planned(from)->window))) {
        *converted = !first;
        return KVERN_OK;
    }
    const bool waits = kvern_cache_planned(from)->first_pool && !row->converted;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "a row of %s%s cannot become one of %s",
                      kvern_cache_signature(from), waits ? " that is not converted" : "",
                      kvern_cache_signature(cache));
}

static kvern_status make_image(const kvern_cache *cache, const kvern_row *to,
                               const kvern_cache *from, const kvern_row *taken,
                               kvern_row_image *image)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    *image = (kvern_row_image){.length = taken->length,
                               .keep = layer->window.keep,
                               .held = taken->held,
                               .floor = taken->floor,
                               .ranges = taken->ranges,
                               .range_count = taken->range_count};
    kvern_status status = check_form(cache, from, taken, &image->converted);
    image->is_other_form = layer->first_pool && image->converted != to->converted;
    // A row that grew here would have been in bf16 below the start.
    if (image->converted && layer->plan.start > image->floor)
        image->floor = kvern_min_i64(layer->plan.start, image->length);
    return status;
}

kvern_status kvern_cache_adopt(kvern_cache *cache, size_t row, const kvern_cache *from,
                               size_t from_row)
{
    kvern_status status = check_places(cache, row, from, from_row);
    if (status)
        return status;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    if (layer->geometry.whole || cache->coded_set || from->coded_set)
        return adopt_alike(cache, row, from, from_row);
    if ((status = kvern_latent_check_streams(layer)) ||
        (status = kvern_latent_check_streams(kvern_cache_planned(from))))
        return status;
    const kvern_row *taken = &from->rows[from_row];
    kvern_row *to = &cache->rows[row];
    KVERN_ASSERT(to->length == 0 && cache->batch->lengths[row] == 0);
    kvern_row_image image;
    status = make_image(cache, to, from, taken, &image);
    kvern_conversion conversion = {0};
    if (!status && !image.converted && image.length > 0 && image.length >= layer->plan.start)
        status = kvern_conversion_prepare(
            layer->pool, taken, kvern_table_used(taken->table, taken->length), true, &conversion);
    if (status || image.length == 0)
        return status;
    kvern_row_image_share(to, &image, taken->table);
    cache->batch->lengths[row] = to->length;
    if (conversion.pool)
        kvern_attention_convert(layer, to, &conversion);
    kvern_row_settle(to, layer->window.keep, kvern_window_held(&layer->window, to->length));
    KVERN_ASSERT(!kvern_caches_walk(cache));
    return KVERN_OK;
}
