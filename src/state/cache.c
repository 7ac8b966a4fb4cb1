// SPDX-License-Identifier: MIT
#include "src/state/cache.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/math/fpenv.h"

#include <inttypes.h>
#include <string.h>

// ---- Life ----

// A cache that stands alone has its batch right behind it.
static size_t cache_bytes(void)
{
    return sizeof(kvern_cache) + sizeof(kvern_batch);
}

void kvern_cache_find_rows(kvern_cache *cache, size_t index)
{
    const kvern_batch_rows found = kvern_batch_rows_of(cache->batch, index);
    cache->rows = found.rows;
    cache->changes = found.changes;
    cache->conversions = found.conversions;
    cache->undos = found.undos;
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
    kvern_heap *heap = &composition->context->heap;
    void *memory;
    kvern_status status = kvern_heap_take_zeroed(heap, cache_bytes(), &memory);
    if (status)
        return status;
    kvern_cache *cache = memory;
    cache->batch = (kvern_batch *)(cache + 1);
    if ((status = kvern_batch_create(heap, 1, rows, cache->batch))) {
        kvern_heap_give(heap, cache, cache_bytes(), KVERN_HEAP_ALIGNMENT);
        return status;
    }
    kvern_composition_retain(composition);
    cache->composition = composition;
    cache->layer = layer;
    kvern_cache_find_rows(cache, 0);
    *out = cache;
    return KVERN_OK;
}

void kvern_cache_destroy(kvern_cache *cache)
{
    if (!cache)
        return;
    KVERN_ASSERT(!cache->batch->of_state);
    for (size_t r = 0; r < cache->batch->row_count; r++)
        kvern_row_reset(&cache->rows[r]);
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

int64_t kvern_cache_length(const kvern_cache *cache, size_t row)
{
    return row < cache->batch->row_count ? cache->rows[row].length : -1;
}

uint64_t kvern_cache_bytes(const kvern_cache *cache)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < cache->batch->row_count; r++)
        bytes += kvern_row_bytes(&cache->rows[r]);
    return bytes;
}

kvern_form kvern_cache_form(const kvern_cache *cache, const kvern_row *row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    if (layer->first_pool && !row->converted)
        return (kvern_form){&layer->first, layer->first_pool};
    return (kvern_form){&layer->geometry, layer->pool};
}

kvern_view kvern_planned_view(const kvern_planned_layer *layer, size_t row_count)
{
    return (kvern_view){
        .geometry = &layer->geometry,
        .query_floats = kvern_max_size(layer->geometry.query_floats, layer->first.query_floats),
        .window = layer->window,
        .row_count = row_count,
    };
}

kvern_view kvern_cache_view(const kvern_cache *cache)
{
    return kvern_planned_view(kvern_cache_planned(cache), cache->batch->row_count);
}

// ---- Precision and reuse ----

bool kvern_cache_converted(const kvern_cache *cache, size_t row)
{
    return row < cache->batch->row_count && kvern_cache_form(cache, &cache->rows[row]).geometry ==
                                                &kvern_cache_planned(cache)->geometry;
}

int64_t kvern_cache_max_append(const kvern_cache *cache, size_t row)
{
    if (row >= cache->batch->row_count)
        return -1;
    const kvern_row *r = &cache->rows[row];
    const int64_t room = KVERN_MAX_POSITIONS - r->length;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const int64_t until = kvern_max_i64(layer->plan.start, r->boundary) - r->length;
    return layer->first_pool && !r->converted && until > 0 ? until : room;
}

int64_t kvern_cache_trimmable(const kvern_cache *cache, size_t row)
{
    if (row >= cache->batch->row_count)
        return -1;
    const kvern_row *r = &cache->rows[row];
    if (r->held == 0)
        return r->length;
    return r->length - r->held - kvern_cache_planned(cache)->window.recent;
}

int64_t kvern_cache_min_reusable(const kvern_cache *cache, size_t row)
{
    if (row >= cache->batch->row_count)
        return -1;
    const kvern_row *r = &cache->rows[row];
    const int64_t least = r->length - kvern_cache_trimmable(cache, row);
    return kvern_max_i64(r->floor, least);
}

// ---- Changes of rows ----

void kvern_cache_cancel(kvern_cache *cache)
{
    for (size_t r = 0; r < cache->batch->row_count; r++)
        kvern_row_cancel(&cache->rows[r], &cache->changes[r]);
}

kvern_status kvern_cache_prepare(kvern_cache *cache, const int64_t *counts, size_t reserve_row,
                                 size_t reserve_pages)
{
    memset(cache->changes, 0, cache->batch->row_count * sizeof cache->changes[0]);
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        const int64_t count = counts ? counts[r] : 0;
        const size_t reserve = r == reserve_row ? reserve_pages : 0;
        if (count == 0 && reserve == 0)
            continue;
        kvern_row *row = &cache->rows[r];
        kvern_status status = kvern_row_prepare(kvern_cache_form(cache, row).pool, row,
                                                row->length + count, reserve, &cache->changes[r]);
        if (status) {
            kvern_cache_cancel(cache);
            return status;
        }
    }
    return KVERN_OK;
}

void kvern_cache_commit(kvern_cache *cache)
{
    const bool in_round = cache->batch->round_open;
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        if (cache->changes[r].table)
            kvern_row_commit(&cache->rows[r], &cache->changes[r],
                             in_round ? &cache->undos[r] : NULL);
    }
}

// ---- Settling ----

bool kvern_cache_is_due(const kvern_cache *cache, const kvern_row *row, int64_t length)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    return layer->first_pool && !row->converted && length >= layer->plan.start &&
           length >= row->boundary;
}

kvern_status kvern_cache_prepare_settling(kvern_cache *cache, const int64_t *counts, bool pending,
                                          bool shared)
{
    memset(cache->conversions, 0, cache->batch->row_count * sizeof cache->conversions[0]);
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        const kvern_row *row = &cache->rows[r];
        const int64_t length = row->length + (pending ? counts[r] : 0);
        if (counts[r] == 0 || !kvern_cache_is_due(cache, row, length))
            continue;
        const kvern_table *table = pending ? cache->changes[r].table : row->table;
        kvern_status status = kvern_conversion_prepare(kvern_cache_planned(cache)->pool, row,
                                                       kvern_table_used(table, length), shared,
                                                       &cache->conversions[r]);
        if (status) {
            kvern_cache_cancel_settling(cache);
            return status;
        }
    }
    return KVERN_OK;
}

void kvern_cache_cancel_settling(kvern_cache *cache)
{
    for (size_t r = 0; r < cache->batch->row_count; r++)
        kvern_conversion_cancel(&cache->conversions[r]);
}

void kvern_cache_convert(const kvern_cache *cache, kvern_row *row, kvern_conversion *conversion)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_fp_saved saved = kvern_fp_enter();
    row->floor = layer->plan.start > 0 ? row->length : 0;
    kvern_conversion_commit(&layer->first, &layer->geometry, row, conversion);
    kvern_fp_leave(saved);
}

void kvern_cache_commit_settling(kvern_cache *cache, const int64_t *counts)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        kvern_row *row = &cache->rows[r];
        if (counts[r] == 0)
            continue;
        if (cache->conversions[r].pool)
            kvern_cache_convert(cache, row, &cache->conversions[r]);
        kvern_row_settle(row, layer->window.keep, kvern_window_held(&layer->window, row->length));
    }
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
    const kvern_view view = kvern_cache_view(cache);
    if (tokens < 0 || tokens > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "%" PRId64 " tokens", tokens);
    const size_t pages = kvern_reserved_pages(layer, cache->rows[row].converted, tokens);
    if ((status = kvern_cache_prepare(cache, NULL, row, pages)))
        return status;
    status = kvern_read_reserve(
        kvern_cache_context(cache), &cache->batch->reservation, 1, cache->batch->row_count,
        kvern_attend_scratch_bytes(kvern_cache_context(cache), &view,
                                   kvern_whole_heads(view.geometry, query_vectors), tokens));
    if (status) {
        kvern_cache_cancel(cache);
        return status;
    }
    kvern_cache_commit(cache);
    cache->rows[row].reserved = kvern_max_size(cache->rows[row].reserved, pages);
    return KVERN_OK;
}

kvern_status kvern_cache_check_trim(const kvern_cache *cache, size_t row, int64_t tokens)
{
    const int64_t length = cache->rows[row].length, most = kvern_cache_trimmable(cache, row);
    if (tokens < 0 || tokens > length)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: trim %" PRId64 " of %" PRId64 " positions",
                          row, tokens, length);
    if (tokens > most && tokens < length)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu, row %zu: trim %" PRId64 " positions, past the slack of its "
                          "window: %" PRId64 " can be",
                          cache->layer, row, tokens, most);
    return KVERN_OK;
}

kvern_status kvern_cache_trim(kvern_cache *cache, size_t row, int64_t tokens)
{
    kvern_status status = check_row(cache, row);
    if (status)
        return status;
    if ((status = kvern_cache_check_trim(cache, row, tokens)))
        return status;
    cache->batch->lengths[row] -= tokens;
    kvern_row_truncate(&cache->rows[row], cache->batch->lengths[row]);
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
    kvern_row_reset(&cache->rows[row]);
    kvern_batch_unreserve(kvern_cache_context(cache), cache->batch);
    return KVERN_OK;
}
