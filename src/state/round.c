// SPDX-License-Identifier: MIT
// Rounds. The rows are not settled while one is open: no position falls out of a window, nothing is
// converted. So everything that the tokens which stay need is there when it ends.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/state/settle.h"
#include "src/state/walk.h"

#include <inttypes.h>
#include <kvern/round.h>
#include <string.h>

// ---- Begin ----

int64_t kvern_state_round_limit(const kvern_state *state, size_t row)
{
    if (!state || row >= kvern_state_rows(state))
        return -1;
    int64_t least = KVERN_MAX_POSITIONS - state->batch.lengths[row];
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_planned_layer *layer = &state->composition->layers[l];
        const kvern_layer_rows rows = kvern_cache_layer_rows(&state->caches[l]);
        least = kvern_min_i64(least, layer->ops->round_limit(layer, &rows, row));
    }
    return least;
}

static kvern_status check_layer(const kvern_cache *cache, const int64_t *counts)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_status status = KVERN_OK;
    for (size_t r = 0; r < rows.count && !status; r++) {
        if (counts[r])
            status = layer->ops->check_round(layer, &rows, r, counts[r]);
    }
    return status;
}

kvern_status kvern_round_begin(kvern_state *state, const int64_t *counts)
{
    kvern_status status = kvern_state_check_idle(state);
    if (!status)
        status = kvern_batch_check_counts(&state->batch, KVERN_PHASE_WINDOW, counts);
    for (size_t l = 0; !status && l < state->composition->count; l++)
        status = check_layer(&state->caches[l], counts);
    if (status)
        return status;
    for (size_t r = 0; r < kvern_state_rows(state); r++) {
        state->batch.round_begin[r] = state->batch.lengths[r];
        state->batch.round_most[r] = counts[r];
    }
    KVERN_ASSERT(!state->batch.step_open);
    state->batch.round_open = true;
    return KVERN_OK;
}

// ---- Looking ----

bool kvern_round_open(const kvern_state *state)
{
    return state && state->batch.round_open;
}

int64_t kvern_round_appended(const kvern_state *state, size_t row)
{
    if (!state || !state->batch.round_open || row >= kvern_state_rows(state))
        return -1;
    return state->batch.lengths[row] - state->batch.round_begin[row];
}

// ---- End ----

static kvern_status check_end(const kvern_state *state)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "a step is open");
    if (!state->batch.round_open)
        return kvern_fail(KVERN_ERR_BUSY, "no round is open");
    return KVERN_OK;
}

// Takes what conversions need. A row that loses tokens does not reach its start: begin saw to that.
static kvern_status prepare_end(kvern_state *state, const int64_t *keep, kvern_settling *settling)
{
    int64_t *counts = state->batch.counts; // where `keep` of a commit lies, too
    KVERN_ASSERT(state->batch.round_open && !state->batch.step_open);
    for (size_t r = 0; r < kvern_state_rows(state); r++)
        counts[r] = keep[r] == kvern_round_appended(state, r) ? keep[r] : 0;
    return kvern_settling_prepare(state->caches, state->batch.caches, counts, false, false,
                                  settling);
}

static void end_round(kvern_state *state, const int64_t *keep, kvern_settling *settling)
{
    kvern_batch *batch = &state->batch;
    KVERN_ASSERT(batch->round_open && !batch->step_open);
    for (size_t r = 0; r < batch->row_count; r++)
        batch->lengths[r] = batch->round_begin[r] + keep[r];
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_planned_layer *layer = &state->composition->layers[l];
        const kvern_layer_rows rows = kvern_cache_layer_rows(&state->caches[l]);
        layer->ops->take_back(layer, &rows, batch->round_begin, batch->lengths);
    }
    batch->round_open = false;
    settling->counts = keep;
    kvern_settling_commit(settling);
    KVERN_ASSERT(!kvern_state_walk(state));
}

kvern_status kvern_round_rollback(kvern_state *state, const int64_t *keep)
{
    kvern_status status = check_end(state);
    if (status)
        return status;
    if (kvern_state_rows(state) && !keep)
        return kvern_fail(KVERN_ERR_ARGUMENT, "keep is NULL");
    for (size_t r = 0; r < kvern_state_rows(state); r++) {
        if (keep[r] < 0 || keep[r] > kvern_round_appended(state, r))
            return kvern_fail(KVERN_ERR_RANGE, "row %zu: keep %" PRId64 " of %" PRId64 " tokens", r,
                              keep[r], kvern_round_appended(state, r));
    }
    kvern_settling settling;
    if ((status = prepare_end(state, keep, &settling)))
        return status;
    end_round(state, keep, &settling);
    return KVERN_OK;
}

kvern_status kvern_round_commit(kvern_state *state)
{
    kvern_status status = check_end(state);
    if (status)
        return status;
    int64_t *keep = state->batch.counts; // no step is open
    for (size_t r = 0; r < kvern_state_rows(state); r++)
        keep[r] = kvern_round_appended(state, r);
    return kvern_round_rollback(state, keep);
}
