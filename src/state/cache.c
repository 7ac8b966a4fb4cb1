// SPDX-License-Identifier: MIT
#include "src/state/cache.h"

#include "src/base/assert.h"
#include "src/base/fail.h"

#include <inttypes.h>
#include <string.h>

// ---- Life ----

// A cache that stands alone has its batch right behind it.
static size_t cache_bytes(void)
{
    return sizeof(kvern_cache) + sizeof(kvern_batch);
}

void kvern_cache_find_rows(kvern_cache *cache)
{
    KVERN_ASSERT(cache->number < cache->batch->caches);
    cache->rows = kvern_batch_rows(cache->batch, cache->number).rows;
}

kvern_status kvern_cache_create(kvern_composition *composition, size_t layer, size_t rows,
                                kvern_cache **out)
{
    if (out)
        *out = NULL;
    if (!composition || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "composition or out is NULL");
    if (layer >= composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, composition->count);
    if (rows > KVERN_MAX_ROWS)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows, more than %d", rows, KVERN_MAX_ROWS);
    if (kvern_layer_is_shared(&composition->layers[layer]))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: %s, which is read in the steps of a state and has no rows of "
                          "its own",
                          layer, composition->layers[layer].signature);
    kvern_heap *heap = &composition->context->heap;
    void *memory;
    kvern_status status = kvern_heap_take_zeroed(heap, cache_bytes(), &memory);
    if (status)
        return status;
    kvern_cache *cache = memory;
    cache->batch = (kvern_batch *)(cache + 1);
    const size_t sets = composition->layers[layer].coded_set ? 2 : 1;
    if ((status = kvern_batch_create(heap, 1, sets, rows, cache->batch))) {
        kvern_heap_give(heap, cache, cache_bytes(), KVERN_HEAP_ALIGNMENT);
        return status;
    }
    kvern_composition_retain(composition);
    cache->composition = composition;
    cache->layer = layer;
    cache->coded_set = sets - 1;
    kvern_cache_find_rows(cache);
    *out = cache;
    return KVERN_OK;
}

void kvern_cache_reset_row(kvern_cache *cache, size_t row)
{
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_row_reset(&rows.rows[row]);
    if (rows.coded)
        kvern_row_reset(&rows.coded[row]);
}

void kvern_cache_destroy(kvern_cache *cache)
{
    if (!cache)
        return;
    KVERN_ASSERT(!cache->batch->of_state);
    for (size_t r = 0; r < cache->batch->row_count; r++)
        kvern_cache_reset_row(cache, r);
    kvern_composition *composition = cache->composition;
    kvern_heap *heap = &composition->context->heap;
    kvern_reservation_end(composition->context, cache->batch->reservation);
    kvern_batch_free(heap, cache->batch);
    kvern_heap_give(heap, cache, cache_bytes(), KVERN_HEAP_ALIGNMENT);
    kvern_composition_release(composition);
}

kvern_status kvern_cache_check_alone(const kvern_cache *cache)
{
    if (!cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
    if (cache->batch->of_state)
        return kvern_fail(KVERN_ERR_BUSY, "the cache belongs to a state");
    return KVERN_OK;
}

kvern_status kvern_cache_check_idle(const kvern_cache *cache)
{
    if (!cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
    return kvern_batch_check_idle(cache->batch);
}

// ---- Looking ----

const kvern_layer *kvern_cache_layer(const kvern_cache *cache)
{
    return &kvern_cache_planned(cache)->plan;
}

const char *kvern_cache_signature(const kvern_cache *cache)
{
    return kvern_cache_planned(cache)->signature;
}

bool kvern_cache_can(const kvern_cache *cache, kvern_capability capability)
{
    return kvern_composition_can(cache->composition, cache->layer, capability);
}

size_t kvern_cache_rows(const kvern_cache *cache)
{
    return cache->batch->row_count;
}

// A shared layer answers for the rows that it reads.
static kvern_layer_rows read_rows(const kvern_cache *cache)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const size_t behind = layer->index - layer->donor->index;
    return kvern_cache_layer_rows(cache - behind);
}

int64_t kvern_cache_length(const kvern_cache *cache, size_t row)
{
    const kvern_layer_rows rows = read_rows(cache);
    return row < rows.count ? rows.rows[row].length : -1;
}

uint64_t kvern_cache_bytes(const kvern_cache *cache)
{
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    uint64_t bytes = 0;
    for (size_t r = 0; r < rows.count; r++)
        bytes +=
            kvern_row_bytes(&rows.rows[r]) + (rows.coded ? kvern_row_bytes(&rows.coded[r]) : 0);
    return bytes;
}

// ---- Precision and reuse ----

bool kvern_cache_converted(const kvern_cache *cache, size_t row)
{
    const kvern_layer_rows rows = read_rows(cache);
    return row < rows.count &&
           !kvern_layer_row_waits(kvern_cache_planned(cache)->donor, &rows, row);
}

int64_t kvern_cache_max_append(const kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache)->donor;
    const kvern_layer_rows rows = read_rows(cache);
    return row < rows.count ? layer->ops->max_append(layer, &rows, row) : -1;
}

int64_t kvern_cache_trimmable(const kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache)->donor;
    const kvern_layer_rows rows = read_rows(cache);
    return row < rows.count ? layer->ops->trimmable(layer, &rows, row) : -1;
}

int64_t kvern_cache_min_reusable(const kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache)->donor;
    const kvern_layer_rows rows = read_rows(cache);
    return row < rows.count ? layer->ops->min_reusable(layer, &rows, row) : -1;
}

// ---- Changes of rows ----

kvern_status kvern_cache_prepare(kvern_cache *cache, const int64_t *counts, size_t reserve_row,
                                 int64_t reserve_tokens)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    return layer->ops->prepare(layer, &rows, counts, reserve_row, reserve_tokens);
}

void kvern_cache_commit(kvern_cache *cache)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    layer->ops->commit(layer, &rows);
}

void kvern_cache_cancel(kvern_cache *cache)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    layer->ops->cancel(layer, &rows);
}

// ---- Row operations ----

static kvern_status check_row(const kvern_cache *cache, size_t row)
{
    kvern_status status = kvern_cache_check_alone(cache);
    if (status)
        return status;
    if (row >= cache->batch->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, cache->batch->row_count);
    return KVERN_OK;
}

kvern_status kvern_cache_reserve(kvern_cache *cache, size_t row, int64_t tokens,
                                 size_t query_vectors)
{
    kvern_status status = check_row(cache, row);
    if (status)
        return status;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    if (tokens < 0 || tokens > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "%" PRId64 " tokens", tokens);
    if ((status = kvern_cache_prepare(cache, NULL, row, tokens)))
        return status;
    kvern_plan plan = kvern_plan_default();
    plan.tokens = tokens;
    plan.query_vectors = query_vectors;
    plan = kvern_batch_plan(cache->batch, &plan);
    const size_t scratch =
        layer->ops->scratch_bytes(layer, plan.rows, plan.query_vectors, plan.tokens);
    if ((status = kvern_read_reserve(layer->context, &cache->batch->reservation, 1, rows.count,
                                     scratch))) {
        kvern_cache_cancel(cache);
        return status;
    }
    cache->batch->reserved = plan;
    kvern_cache_commit(cache);
    layer->ops->keep_room(layer, &rows, row, tokens);
    return KVERN_OK;
}

kvern_status kvern_cache_check_trim(const kvern_cache *cache, size_t row, int64_t tokens)
{
    const int64_t length = kvern_cache_length(cache, row), most = kvern_cache_trimmable(cache, row);
    KVERN_ASSERT(row < cache->batch->row_count && most <= length);
    if (tokens < 0 || tokens > length)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: trim %" PRId64 " of %" PRId64 " positions",
                          row, tokens, length);
    if (tokens > most && tokens < length && kvern_cache_planned(cache)->geometry.whole)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu, row %zu: trim %" PRId64 " positions of %s, which is not "
                          "trimmable: a recurrent state cannot be cut back",
                          cache->layer, row, tokens, kvern_cache_signature(cache));
    if (tokens > most && tokens < length && cache->coded_set)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu, row %zu: trim %" PRId64 " positions of %s, past what is "
                          "still precise: %" PRId64 " can be",
                          cache->layer, row, tokens, kvern_cache_signature(cache), most);
    if (tokens > most && tokens < length)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu, row %zu: trim %" PRId64 " positions, past the slack of its "
                          "window: %" PRId64 " can be",
                          cache->layer, row, tokens, most);
    const kvern_row *r = &cache->rows[row];
    const kvern_range *cut = kvern_ranges_cut(r->ranges, r->range_count, length - tokens);
    if (cut)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu, row %zu: trim %" PRId64
                          " positions, which cuts positions %" PRId64 " to %" PRId64
                          " in two: they see each other both ways",
                          cache->layer, row, tokens, cut->begin, cut->end - 1);
    return KVERN_OK;
}

int64_t kvern_cache_trim_length(const kvern_cache *cache, size_t row, int64_t length)
{
    const kvern_layer_rows rows = read_rows(cache);
    if (row >= rows.count || length < 0)
        return -1;
    const kvern_row *r = &rows.rows[row];
    const int64_t most = kvern_min_i64(length, r->length);
    const int64_t least = r->length - kvern_cache_trimmable(cache, row);
    const kvern_range *cut = kvern_ranges_cut(r->ranges, r->range_count, most);
    const int64_t left = cut ? cut->begin : most;
    return left >= least ? left : 0;
}

kvern_status kvern_cache_trim(kvern_cache *cache, size_t row, int64_t tokens)
{
    kvern_status status = check_row(cache, row);
    if (status)
        return status;
    if ((status = kvern_cache_check_trim(cache, row, tokens)))
        return status;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    cache->batch->lengths[row] -= tokens;
    layer->ops->truncate(layer, &rows, row, cache->batch->lengths[row]);
    return KVERN_OK;
}

kvern_status kvern_cache_plan_boundary(kvern_cache *cache, size_t row, int64_t position)
{
    kvern_status status = check_row(cache, row);
    if (status)
        return status;
    if (position < 0 || position > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: a boundary at %" PRId64, row, position);
    cache->rows[row].boundary = position;
    return KVERN_OK;
}

kvern_status kvern_cache_reset(kvern_cache *cache, size_t row)
{
    kvern_status status = check_row(cache, row);
    if (status)
        return status;
    cache->batch->lengths[row] = 0;
    kvern_cache_reset_row(cache, row);
    kvern_batch_unreserve(kvern_cache_context(cache), cache->batch);
    return KVERN_OK;
}
