// SPDX-License-Identifier: MIT
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/state/cache.h"

#include <inttypes.h>
#include <kvern/state.h>
#include <string.h>

struct kvern_state {
    kvern_composition *composition;
    size_t row_count;
    int64_t *lengths;     // [row_count], the tokens of an open step excluded
    int64_t *counts;      // [row_count], of the open step
    bool *appended;       // [layers], in the open step
    kvern_cache **caches; // [layers]
    bool step_open;
};

// ---- Life ----

static size_t state_bytes(size_t layers, size_t rows)
{
    return sizeof(kvern_state) + layers * (sizeof(kvern_cache *) + sizeof(bool)) +
           rows * 2 * sizeof(int64_t);
}

static void place_arrays(kvern_state *state, size_t layers, size_t rows)
{
    state->caches = (kvern_cache **)(state + 1);
    state->lengths = (int64_t *)(state->caches + layers);
    state->counts = state->lengths + rows;
    state->appended = (bool *)(state->counts + rows);
}

// A state without caches yet.
static kvern_status create_shell(kvern_composition *composition, size_t rows, kvern_state **out)
{
    *out = NULL;
    if (rows > KVERN_MAX_ROWS)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows, more than %d", rows, KVERN_MAX_ROWS);
    const size_t layers = composition->count;
    void *block;
    kvern_status status =
        kvern_heap_take_zeroed(&composition->context->heap, state_bytes(layers, rows), &block);
    if (status)
        return status;
    kvern_state *state = block;
    kvern_composition_retain(composition);
    state->composition = composition;
    state->row_count = rows;
    place_arrays(state, layers, rows);
    *out = state;
    return KVERN_OK;
}

kvern_status kvern_state_create(kvern_composition *composition, size_t rows, kvern_state **out)
{
    if (out)
        *out = NULL;
    if (!composition || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "composition or out is NULL");
    kvern_state *state;
    kvern_status status = create_shell(composition, rows, &state);
    for (size_t i = 0; !status && i < composition->count; i++) {
        status = kvern_cache_create(composition, i, rows, &state->caches[i]);
        if (!status)
            state->caches[i]->owned = true;
    }
    if (status)
        kvern_state_destroy(state);
    else
        *out = state;
    return status;
}

void kvern_state_destroy(kvern_state *state)
{
    if (!state)
        return;
    kvern_composition *composition = state->composition;
    for (size_t i = 0; i < composition->count; i++)
        kvern_cache_destroy(state->caches[i]);
    kvern_heap_give(&composition->context->heap, state,
                    state_bytes(composition->count, state->row_count), KVERN_HEAP_ALIGNMENT);
    kvern_composition_release(composition);
}

static kvern_status check_idle(const kvern_state *state)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (state->step_open)
        return kvern_fail(KVERN_ERR_BUSY, "a step is open");
    return KVERN_OK;
}

kvern_status kvern_state_fork(const kvern_state *state, const size_t *rows, size_t count,
                              kvern_state **out)
{
    if (out)
        *out = NULL;
    if (!out || (count && !rows))
        return kvern_fail(KVERN_ERR_ARGUMENT, "rows or out is NULL");
    kvern_status status = check_idle(state);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        if (rows[i] >= state->row_count)
            return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", rows[i], state->row_count);
    }
    kvern_state *fork;
    status = create_shell(state->composition, count, &fork);
    for (size_t l = 0; !status && l < state->composition->count; l++) {
        status = kvern_cache_share(state->caches[l], rows, count, &fork->caches[l]);
        if (!status)
            fork->caches[l]->owned = true;
    }
    if (status) {
        kvern_state_destroy(fork);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        fork->lengths[i] = state->lengths[rows[i]];
    *out = fork;
    return KVERN_OK;
}

// ---- Looking ----

kvern_composition *kvern_state_composition(const kvern_state *state)
{
    return state->composition;
}

size_t kvern_state_rows(const kvern_state *state)
{
    return state->row_count;
}

const kvern_cache *kvern_state_cache(const kvern_state *state, size_t layer)
{
    return layer < state->composition->count ? state->caches[layer] : NULL;
}

int64_t kvern_state_length(const kvern_state *state, size_t row)
{
    return row < state->row_count ? state->lengths[row] : -1;
}

int64_t kvern_state_trimmable(const kvern_state *state, size_t row)
{
    int64_t least = kvern_state_length(state, row);
    for (size_t l = 0; least > 0 && l < state->composition->count; l++)
        least = kvern_min_i64(least, kvern_cache_trimmable(state->caches[l], row));
    return least;
}

int64_t kvern_state_min_reusable(const kvern_state *state, size_t row)
{
    int64_t most = row < state->row_count ? 0 : -1;
    for (size_t l = 0; l < state->composition->count; l++)
        most = kvern_max_i64(most, kvern_cache_min_reusable(state->caches[l], row));
    return most;
}

int64_t kvern_state_max_append(const kvern_state *state, size_t row)
{
    int64_t least = row < state->row_count ? KVERN_MAX_POSITIONS : -1;
    for (size_t l = 0; l < state->composition->count; l++)
        least = kvern_min_i64(least, kvern_cache_max_append(state->caches[l], row));
    return least;
}

uint64_t kvern_state_bytes(const kvern_state *state)
{
    uint64_t bytes = 0;
    for (size_t l = 0; l < state->composition->count; l++)
        bytes += kvern_cache_bytes(state->caches[l]);
    return bytes;
}

// ---- Preparing all layers together ----

static void cancel_layers(kvern_state *state, size_t count)
{
    for (size_t l = 0; l < count; l++)
        kvern_cache_cancel(state->caches[l]);
}

// Room for counts[r] tokens in every row (NULL: none) and, in row `row`, for `tokens` positions.
static kvern_status prepare_layers(kvern_state *state, const int64_t *counts, size_t row,
                                   int64_t tokens)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_cache *cache = state->caches[l];
        size_t pages = 0;
        if (tokens)
            pages = kvern_reserved_pages(kvern_cache_planned(cache), cache->rows[row].converted,
                                         tokens);
        kvern_status status = kvern_cache_prepare(cache, counts, row, pages);
        if (status) {
            cancel_layers(state, l);
            return status;
        }
    }
    return KVERN_OK;
}

// A read of every layer may be open; attends of layers share their scratch.
static kvern_status reserve_reads(kvern_state *state, size_t query_heads, int64_t tokens)
{
    kvern_context *context = state->composition->context;
    size_t scratch = 0;
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_view view = kvern_cache_view(state->caches[l]);
        const kvern_geometry *g = view.geometry;
        if (query_heads % g->kv_heads != 0)
            return kvern_fail(KVERN_ERR_ARGUMENT,
                              "layer %zu: %zu query heads do not divide into %zu KV heads", l,
                              query_heads, g->kv_heads);
        scratch = kvern_max_size(scratch,
                                 kvern_attend_scratch_bytes(context, &view, query_heads, tokens));
    }
    return kvern_read_reserve(context, state->composition->count, state->row_count, scratch);
}

kvern_status kvern_state_reserve(kvern_state *state, size_t row, int64_t tokens, size_t query_heads)
{
    kvern_status status = check_idle(state);
    if (status)
        return status;
    if (row >= state->row_count || tokens < 0 || tokens > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu, %" PRId64 " tokens", row,
                          state->row_count, tokens);
    if ((status = prepare_layers(state, NULL, row, tokens)))
        return status;
    if ((status = reserve_reads(state, query_heads, tokens))) {
        cancel_layers(state, state->composition->count);
        return status;
    }
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_cache *cache = state->caches[l];
        kvern_row *r = &cache->rows[row];
        kvern_cache_commit(cache);
        r->reserved = kvern_max_size(
            r->reserved, kvern_reserved_pages(kvern_cache_planned(cache), r->converted, tokens));
    }
    return KVERN_OK;
}

// ---- Steps ----

static void set_step_open(kvern_state *state, bool open)
{
    state->step_open = open;
    for (size_t l = 0; l < state->composition->count; l++) {
        state->appended[l] = false;
        state->caches[l]->step_open = open;
    }
}

// The room of a step stays with the rows until the layers have appended.
static void promise_room(kvern_state *state)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_cache_commit(state->caches[l]);
        for (size_t r = 0; r < state->row_count; r++) {
            kvern_row *row = &state->caches[l]->rows[r];
            if (state->counts[r])
                row->promised = kvern_table_used(row->table, state->lengths[r] + state->counts[r]);
        }
    }
}

kvern_status kvern_step_begin(kvern_state *state, kvern_phase phase, const int64_t *counts)
{
    kvern_status status = check_idle(state);
    if (status)
        return status;
    if (phase != KVERN_PHASE_DECODE && phase != KVERN_PHASE_WINDOW && phase != KVERN_PHASE_KNOWN)
        return kvern_fail(KVERN_ERR_ARGUMENT, "phase %d is unknown", (int)phase);
    const int64_t most = phase == KVERN_PHASE_DECODE ? 1 : KVERN_MAX_POSITIONS;
    // All layers hold the same rows, so the first one speaks for all.
    if ((status = kvern_cache_check_counts(state->caches[0], counts, most)))
        return status;
    if ((status = prepare_layers(state, counts, 0, 0)))
        return status;
    if (state->row_count)
        memcpy(state->counts, counts, state->row_count * sizeof counts[0]);
    promise_room(state);
    set_step_open(state, true);
    return KVERN_OK;
}

int64_t kvern_step_position(const kvern_state *state, size_t row)
{
    return state->step_open && row < state->row_count ? state->lengths[row] : -1;
}

int64_t kvern_step_count(const kvern_state *state, size_t row)
{
    return state->step_open && row < state->row_count ? state->counts[row] : -1;
}

static kvern_status check_step_append(const kvern_state *state, size_t layer,
                                      const kvern_tokens *tokens)
{
    if (!state || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or tokens is NULL");
    if (!state->step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    if (state->appended[layer])
        return kvern_fail(KVERN_ERR_BUSY, "layer %zu has appended in this step", layer);
    for (size_t r = 0; tokens->size == sizeof *tokens && tokens->counts && r < state->row_count;
         r++) {
        if (tokens->counts[r] != state->counts[r])
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " tokens, but the step has %" PRId64, r,
                              tokens->counts[r], state->counts[r]);
    }
    return KVERN_OK;
}

kvern_status kvern_step_append(kvern_state *state, size_t layer, const kvern_tokens *tokens,
                               kvern_read **read)
{
    if (read)
        *read = NULL;
    kvern_status status = check_step_append(state, layer, tokens);
    if (!status)
        status = kvern_cache_append(state->caches[layer], tokens, state->counts, false, read);
    if (!status)
        state->appended[layer] = true;
    return status;
}

// Rows drop what the step promised but did not use, and what lies beyond `lengths`.
static void close_step(kvern_state *state)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        for (size_t r = 0; r < state->row_count; r++) {
            state->caches[l]->rows[r].promised = 0;
            kvern_row_truncate(&state->caches[l]->rows[r], state->lengths[r]);
        }
    }
    set_step_open(state, false);
}

static kvern_status prepare_settling(kvern_state *state)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_status status =
            kvern_cache_prepare_settling(state->caches[l], state->counts, false, false);
        if (status) {
            while (l > 0)
                kvern_cache_cancel_settling(state->caches[--l]);
            return status;
        }
    }
    return KVERN_OK;
}

kvern_status kvern_step_end(kvern_state *state)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (!state->step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    for (size_t l = 0; l < state->composition->count; l++) {
        if (!state->appended[l])
            return kvern_fail(KVERN_ERR_BUSY, "layer %zu has not appended", l);
    }
    kvern_status status = prepare_settling(state);
    if (status)
        return status;
    for (size_t l = 0; l < state->composition->count; l++)
        kvern_cache_commit_settling(state->caches[l], state->counts);
    for (size_t r = 0; r < state->row_count; r++)
        state->lengths[r] += state->counts[r];
    close_step(state);
    return KVERN_OK;
}

void kvern_step_abandon(kvern_state *state)
{
    if (state && state->step_open)
        close_step(state);
}

// ---- Row operations ----

kvern_status kvern_state_trim(kvern_state *state, size_t row, int64_t tokens)
{
    kvern_status status = check_idle(state);
    if (status)
        return status;
    if (row >= state->row_count || tokens < 0 || tokens > state->lengths[row])
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu: trim %" PRId64 " positions", row,
                          state->row_count, tokens);
    for (size_t l = 0; l < state->composition->count; l++) {
        if ((status = kvern_cache_check_trim(state->caches[l], row, tokens)))
            return status;
    }
    state->lengths[row] -= tokens;
    for (size_t l = 0; l < state->composition->count; l++)
        kvern_row_truncate(&state->caches[l]->rows[row], state->lengths[row]);
    return KVERN_OK;
}

kvern_status kvern_state_plan_boundary(kvern_state *state, size_t row, int64_t position)
{
    kvern_status status = check_idle(state);
    if (status)
        return status;
    if (row >= state->row_count || position < 0 || position > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu: a boundary at %" PRId64, row,
                          state->row_count, position);
    for (size_t l = 0; l < state->composition->count; l++)
        state->caches[l]->rows[row].boundary = position;
    return KVERN_OK;
}

kvern_status kvern_state_reset(kvern_state *state, size_t row)
{
    kvern_status status = check_idle(state);
    if (status)
        return status;
    if (row >= state->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, state->row_count);
    state->lengths[row] = 0;
    for (size_t l = 0; l < state->composition->count; l++)
        kvern_row_reset(&state->caches[l]->rows[row]);
    return KVERN_OK;
}
