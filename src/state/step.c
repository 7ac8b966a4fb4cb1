// SPDX-License-Identifier: MIT
// Steps: one forward pass of a state. What it needs is taken when it begins, for all layers; each
// layer appends once; when it ends the rows settle, and their new length counts.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/residual.h"
#include "src/state/append.h"
#include "src/state/settle.h"
#include "src/state/walk.h"

#include <inttypes.h>
#include <string.h>

static void set_step_open(kvern_state *state, bool open)
{
    state->batch.step_open = open;
    for (size_t l = 0; l < state->composition->count; l++)
        state->caches[l].appended = false;
}

// The row's pages for `length` positions stay with it.
static void promise(kvern_row *row, int64_t length)
{
    row->promised = kvern_max_size(row->promised, kvern_table_used(row->table, length));
}

// The room of a step stays with the rows until the layers have appended.
static void promise_room(kvern_state *state)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        KVERN_ASSERT(!state->caches[l].appended);
        kvern_cache_commit(&state->caches[l]);
        const kvern_planned_layer *layer = &state->composition->layers[l];
        const kvern_layer_rows rows = kvern_cache_layer_rows(&state->caches[l]);
        if (kvern_layer_is_shared(layer))
            continue;
        for (size_t r = 0; r < rows.count; r++) {
            const int64_t length = state->batch.lengths[r] + state->batch.counts[r];
            if (state->batch.counts[r] == 0)
                continue;
            promise(&rows.rows[r], length);
            if (rows.coded)
                promise(&rows.coded[r], kvern_residual_length(layer, &rows, r, length));
        }
    }
}

// Whether the open round leaves room for the tokens.
static kvern_status check_round(const kvern_state *state, const int64_t *counts)
{
    const kvern_batch *b = &state->batch;
    for (size_t r = 0; b->round_open && r < kvern_state_rows(state); r++) {
        const int64_t left = b->round_begin[r] + b->round_most[r] - b->lengths[r];
        if (counts[r] > left)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " tokens, but the round is for %" PRId64
                              " more at most",
                              r, counts[r], left);
    }
    return KVERN_OK;
}

static kvern_status check_step(const kvern_state *state, kvern_phase phase, const int64_t *counts)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "a step is open");
    kvern_status status = kvern_batch_check_counts(&state->batch, phase, counts);
    for (size_t l = 0; l < state->composition->count && !status; l++)
        status = kvern_layer_check_phase(&state->composition->layers[l], phase);
    if (!status && state->batch.round_open && kvern_phase_is_both_ways(phase))
        status = kvern_fail(KVERN_ERR_UNSUPPORTED,
                            "a round of tokens that see each other both ways, which cannot be "
                            "taken back one by one");
    return status ? status : check_round(state, counts);
}

kvern_status kvern_step_begin(kvern_state *state, kvern_phase phase, const int64_t *counts)
{
    kvern_status status = check_step(state, phase, counts);
    if (status)
        return status;
    if ((status = kvern_state_prepare(state, counts, 0, 0)))
        return status;
    if (kvern_state_rows(state))
        memcpy(state->batch.counts, counts, kvern_state_rows(state) * sizeof counts[0]);
    promise_room(state);
    state->batch.phase = phase;
    set_step_open(state, true);
    KVERN_ASSERT(!kvern_state_walk(state));
    return KVERN_OK;
}

int64_t kvern_step_position(const kvern_state *state, size_t row)
{
    return state->batch.step_open && row < kvern_state_rows(state) ? state->batch.lengths[row] : -1;
}

int64_t kvern_step_count(const kvern_state *state, size_t row)
{
    return state->batch.step_open && row < kvern_state_rows(state) ? state->batch.counts[row] : -1;
}

kvern_status kvern_step_check_append(const kvern_state *state, size_t layer, kvern_lane lane,
                                     const int64_t *counts)
{
    if (!state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    if (state->caches[layer].appended)
        return kvern_fail(KVERN_ERR_BUSY, "layer %zu has appended in this step", layer);
    for (size_t r = 0; counts && r < kvern_state_rows(state); r++) {
        if (counts[r] != state->batch.counts[r])
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " tokens, but the step has %" PRId64, r,
                              counts[r], state->batch.counts[r]);
    }
    return kvern_layer_check_lane(&state->composition->layers[layer], lane);
}

kvern_status kvern_step_append_lanes(kvern_state *state, size_t layer,
                                     const kvern_lane_views *views, kvern_read **read)
{
    kvern_cache *cache = &state->caches[layer];
    kvern_status status = kvern_cache_store(cache, views, state->batch.counts, false, read);
    if (!status)
        cache->appended = true;
    return status;
}

kvern_status kvern_step_append(kvern_state *state, size_t layer, const kvern_tokens *tokens,
                               kvern_read **read)
{
    if (read)
        *read = NULL;
    if (!state || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or tokens is NULL");
    kvern_tokens known;
    kvern_status status = kvern_sized_read(&kvern_tokens_sizes, tokens, &known);
    if (!status)
        status = kvern_step_check_append(state, layer, KVERN_LANE_K, known.counts);
    if (status)
        return status;
    const kvern_lane_views views = kvern_tokens_views(&known, state->batch.phase);
    return kvern_step_append_lanes(state, layer, &views, read);
}

// Rows drop what the step promised but did not use, and what lies beyond `lengths`.
static void close_step(kvern_state *state)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_planned_layer *layer = &state->composition->layers[l];
        const kvern_layer_rows rows = kvern_cache_layer_rows(&state->caches[l]);
        for (size_t r = 0; r < rows.count; r++) {
            kvern_row *row = &rows.rows[r];
            row->promised = 0;
            if (rows.coded)
                rows.coded[r].promised = 0;
            row->slotted = row->handed_out = false;
            layer->ops->truncate(layer, &rows, r, state->batch.lengths[r]);
        }
    }
    set_step_open(state, false);
    KVERN_ASSERT(!kvern_state_walk(state));
}

static kvern_status check_step_end(const kvern_state *state)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (!state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    for (size_t l = 0; l < state->composition->count; l++) {
        if (!state->caches[l].appended && !kvern_layer_is_shared(&state->composition->layers[l]))
            return kvern_fail(KVERN_ERR_BUSY, "layer %zu has not appended", l);
    }
    return KVERN_OK;
}

// Within a round, rows settle when it ends.
kvern_status kvern_step_end(kvern_state *state)
{
    kvern_status status = check_step_end(state);
    if (status)
        return status;
    kvern_batch *batch = &state->batch;
    kvern_settling settling;
    if (!batch->round_open) {
        status = kvern_settling_prepare(state->caches, batch->caches, batch->counts, false, false,
                                        &settling);
        if (status)
            return status;
        kvern_settling_commit(&settling);
    }
    for (size_t r = 0; r < batch->row_count; r++)
        batch->lengths[r] += batch->counts[r];
    close_step(state);
    return KVERN_OK;
}

void kvern_step_abandon(kvern_state *state)
{
    if (state && state->batch.step_open)
        close_step(state);
}
