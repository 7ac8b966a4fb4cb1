// SPDX-License-Identifier: MIT
#include "src/state/checkpoint.h"
#include "src/state/walk.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"

#include <inttypes.h>
#include <string.h>

// ---- Life ----

static size_t state_bytes(size_t layers)
{
    return sizeof(kvern_state) + layers * sizeof(kvern_cache);
}

size_t kvern_state_memory(const kvern_composition *composition, size_t rows)
{
    return state_bytes(composition->count) + kvern_batch_bytes(composition->sets, rows);
}

static void place_caches(kvern_state *state)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_cache *cache = &state->caches[l];
        cache->composition = state->composition;
        cache->layer = l;
        cache->batch = &state->batch;
        cache->number = l;
        cache->coded_set = state->composition->layers[l].coded_set;
        kvern_cache_find_rows(cache);
    }
}

kvern_status kvern_state_make(kvern_composition *composition, size_t rows, kvern_state **out)
{
    *out = NULL;
    if (rows > KVERN_MAX_ROWS)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows, more than %d", rows, KVERN_MAX_ROWS);
    kvern_heap *heap = &composition->context->heap;
    const size_t layers = composition->count;
    void *memory;
    kvern_status status = kvern_heap_take_zeroed(heap, state_bytes(layers), &memory);
    if (status)
        return status;
    kvern_state *state = memory;
    if ((status = kvern_batch_create(heap, layers, composition->sets, rows, &state->batch))) {
        kvern_heap_give(heap, state, state_bytes(layers), KVERN_HEAP_ALIGNMENT);
        return status;
    }
    kvern_composition_retain(composition);
    state->composition = composition;
    state->batch.of_state = true;
    place_caches(state);
    *out = state;
    return KVERN_OK;
}

kvern_status kvern_state_create(kvern_composition *composition, size_t rows, kvern_state **out)
{
    if (out)
        *out = NULL;
    if (!composition || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "composition or out is NULL");
    return kvern_state_make(composition, rows, out);
}

void kvern_state_destroy(kvern_state *state)
{
    if (!state)
        return;
    kvern_composition *composition = state->composition;
    kvern_heap *heap = &composition->context->heap;
    for (size_t r = 0; r < state->batch.row_count; r++)
        kvern_checkpoints_drop(state->caches, r, -1);
    for (size_t s = 0; s < state->batch.sets; s++) {
        const kvern_layer_rows rows = kvern_batch_rows(&state->batch, s);
        for (size_t r = 0; r < rows.count; r++) {
            kvern_row_reset(&rows.rows[r]);
            if (rows.undos)
                kvern_row_undo_clear(&rows.undos[r]);
        }
    }
    kvern_reservation_end(composition->context, state->batch.reservation);
    kvern_batch_free(heap, &state->batch);
    kvern_heap_give(heap, state, state_bytes(composition->count), KVERN_HEAP_ALIGNMENT);
    kvern_composition_release(composition);
}

kvern_status kvern_state_check_idle(const kvern_state *state)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    return kvern_batch_check_idle(&state->batch);
}

// ---- Looking ----

kvern_composition *kvern_state_composition(const kvern_state *state)
{
    return state->composition;
}

size_t kvern_state_rows(const kvern_state *state)
{
    return state->batch.row_count;
}

const kvern_cache *kvern_state_cache(const kvern_state *state, size_t layer)
{
    return layer < state->composition->count ? &state->caches[layer] : NULL;
}

int64_t kvern_state_length(const kvern_state *state, size_t row)
{
    return row < kvern_state_rows(state) ? state->batch.lengths[row] : -1;
}

int64_t kvern_state_trimmable(const kvern_state *state, size_t row)
{
    int64_t least = kvern_state_length(state, row);
    for (size_t l = 0; least > 0 && l < state->composition->count; l++)
        least = kvern_min_i64(least, kvern_cache_trimmable(&state->caches[l], row));
    return least;
}

int64_t kvern_state_min_reusable(const kvern_state *state, size_t row)
{
    int64_t most = row < kvern_state_rows(state) ? 0 : -1;
    for (size_t l = 0; l < state->composition->count; l++)
        most = kvern_max_i64(most, kvern_cache_min_reusable(&state->caches[l], row));
    return most;
}

int64_t kvern_state_max_append(const kvern_state *state, size_t row)
{
    int64_t least = row < kvern_state_rows(state) ? KVERN_MAX_POSITIONS : -1;
    for (size_t l = 0; l < state->composition->count; l++)
        least = kvern_min_i64(least, kvern_cache_max_append(&state->caches[l], row));
    return least;
}

uint64_t kvern_state_bytes(const kvern_state *state)
{
    uint64_t bytes = 0;
    for (size_t l = 0; l < state->composition->count; l++)
        bytes += kvern_cache_bytes(&state->caches[l]);
    return bytes;
}

// ---- Preparing all layers together ----

static void cancel_layers(kvern_state *state, size_t count)
{
    for (size_t l = 0; l < count; l++)
        kvern_cache_cancel(&state->caches[l]);
}

kvern_status kvern_state_prepare(kvern_state *state, const int64_t *counts, size_t row,
                                 int64_t tokens)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_status status = kvern_cache_prepare(&state->caches[l], counts, row, tokens);
        if (status) {
            cancel_layers(state, l);
            return status;
        }
    }
    return KVERN_OK;
}

// A read of every layer may be open; attends of layers share their scratch.
static kvern_status reserve_reads(kvern_state *state, size_t query_vectors, int64_t tokens)
{
    kvern_plan plan = kvern_plan_default();
    plan.tokens = tokens;
    plan.query_vectors = query_vectors;
    plan = kvern_batch_plan(&state->batch, &plan);
    size_t most = 0;
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_planned_layer *layer = &state->composition->layers[l];
        most = kvern_max_size(
            most, layer->ops->scratch_bytes(layer, plan.rows, plan.query_vectors, plan.tokens));
    }
    kvern_status status = kvern_read_reserve(state->composition->context, &state->batch.reservation,
                                             state->composition->count, plan.rows, most);
    if (!status)
        state->batch.reserved = plan;
    return status;
}

kvern_status kvern_state_reserve(kvern_state *state, size_t row, int64_t tokens,
                                 size_t query_vectors)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (row >= kvern_state_rows(state) || tokens < 0 || tokens > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu, %" PRId64 " tokens", row,
                          kvern_state_rows(state), tokens);
    if ((status = kvern_state_prepare(state, NULL, row, tokens)))
        return status;
    if ((status = reserve_reads(state, query_vectors, tokens))) {
        cancel_layers(state, state->composition->count);
        return status;
    }
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_cache *cache = &state->caches[l];
        const kvern_planned_layer *layer = kvern_cache_planned(cache);
        kvern_cache_commit(cache);
        const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
        layer->ops->keep_room(layer, &rows, row, tokens);
    }
    return KVERN_OK;
}

// ---- Row operations ----

// To the length that the batch has for it.
static void cut_row(kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    KVERN_ASSERT(row < cache->batch->row_count && !cache->appended);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    layer->ops->truncate(layer, &rows, row, cache->batch->lengths[row]);
}

// Layers may have been given other ranges.
int64_t kvern_state_trim_length(const kvern_state *state, size_t row, int64_t length)
{
    int64_t left = length, before;
    do {
        before = left;
        for (size_t l = 0; l < state->composition->count && left > 0; l++)
            left = kvern_cache_trim_length(&state->caches[l], row, left);
    } while (left > 0 && left < before);
    return row < kvern_state_rows(state) && length >= 0 ? left : -1;
}

kvern_status kvern_state_trim(kvern_state *state, size_t row, int64_t tokens)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (row >= kvern_state_rows(state))
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, kvern_state_rows(state));
    if (tokens < 0 || tokens > state->batch.lengths[row])
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: trim %" PRId64 " of %" PRId64 " positions",
                          row, tokens, state->batch.lengths[row]);
    for (size_t l = 0; l < state->composition->count; l++) {
        if ((status = kvern_cache_check_trim(&state->caches[l], row, tokens)))
            return status;
    }
    state->batch.lengths[row] -= tokens;
    kvern_checkpoints_drop(state->caches, row, state->batch.lengths[row]);
    for (size_t l = 0; l < state->composition->count; l++)
        cut_row(&state->caches[l], row);
    KVERN_ASSERT(!kvern_state_walk(state));
    return KVERN_OK;
}

kvern_status kvern_state_plan_boundary(kvern_state *state, size_t row, int64_t position)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (row >= kvern_state_rows(state) || position < 0 || position > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu: a boundary at %" PRId64, row,
                          kvern_state_rows(state), position);
    for (size_t l = 0; l < state->composition->count; l++)
        state->caches[l].rows[row].boundary = position;
    return KVERN_OK;
}

kvern_status kvern_state_reset(kvern_state *state, size_t row)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (row >= kvern_state_rows(state))
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, kvern_state_rows(state));
    state->batch.lengths[row] = 0;
    kvern_checkpoints_drop(state->caches, row, -1);
    for (size_t l = 0; l < state->composition->count; l++)
        kvern_cache_reset_row(&state->caches[l], row);
    kvern_batch_unreserve(state->composition->context, &state->batch);
    return KVERN_OK;
}
