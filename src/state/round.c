// SPDX-License-Identifier: MIT
// Rounds. The rows are not settled while one is open: no position falls out of a window, nothing is
// converted. So everything that the tokens which stay need is there when it ends.
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/state/state.h"

#include <inttypes.h>
#include <kvern/round.h>
#include <string.h>

// ---- Begin ----

// Only the last token of a round may be the one that a conversion waits for: those behind it would
// have been stored in the planned codecs.
static kvern_status check_conversion(const kvern_cache *cache, size_t r, int64_t count)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_row *row = &cache->rows[r];
    if (!layer->first_pool || row->converted)
        return KVERN_OK;
    const int64_t due = kvern_max_i64(layer->plan.start, row->boundary) - row->length;
    if (count <= due)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: a round of %" PRId64 " tokens, but after %" PRId64
                      " the row is to be converted",
                      cache->layer, r, count, kvern_max_i64(due, 0));
}

// As many tokens as could be trimmed after an append of them.
static kvern_status check_slack(const kvern_cache *cache, size_t r, int64_t count)
{
    const kvern_window *window = &kvern_cache_planned(cache)->window;
    const kvern_row *row = &cache->rows[r];
    const int64_t length = row->length + count;
    const int64_t held = kvern_max_i64(row->held, kvern_window_held(window, length));
    if (held == 0 || count <= length - held - window->recent)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: a round of %" PRId64
                      " tokens, past the slack of its window, %" PRId64,
                      cache->layer, r, count, window->slack);
}

// As check_conversion.
static int64_t conversion_limit(const kvern_cache *cache, const kvern_row *row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    if (!layer->first_pool || row->converted)
        return KVERN_MAX_POSITIONS;
    return kvern_max_i64(kvern_max_i64(layer->plan.start, row->boundary) - row->length, 0);
}

// As check_slack. A window that has not passed anything yet may also stay like that.
static int64_t slack_limit(const kvern_cache *cache, const kvern_row *row)
{
    const kvern_window *window = &kvern_cache_planned(cache)->window;
    if (window->recent == KVERN_EVERY_POSITION)
        return KVERN_MAX_POSITIONS;
    if (row->held > 0)
        return row->held <= row->length - window->recent ? window->slack : 0;
    const int64_t unpassed = window->keep + window->recent + window->slack - row->length;
    return kvern_max_i64(window->slack, unpassed);
}

int64_t kvern_state_round_limit(const kvern_state *state, size_t row)
{
    if (!state || row >= kvern_state_rows(state))
        return -1;
    int64_t least = KVERN_MAX_POSITIONS - state->batch.lengths[row];
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_cache *cache = &state->caches[l];
        const kvern_row *r = &cache->rows[row];
        least = kvern_min_i64(least, conversion_limit(cache, r));
        least = kvern_min_i64(least, slack_limit(cache, r));
    }
    return least;
}

static kvern_status check_layer(const kvern_cache *cache, const int64_t *counts)
{
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        if (counts[r] == 0)
            continue;
        kvern_status status = check_conversion(cache, r, counts[r]);
        if (!status)
            status = check_slack(cache, r, counts[r]);
        if (status)
            return status;
    }
    return KVERN_OK;
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
static kvern_status prepare_end(kvern_state *state, const int64_t *keep)
{
    int64_t *counts = state->batch.counts; // where `keep` of a commit lies, too
    for (size_t r = 0; r < kvern_state_rows(state); r++)
        counts[r] = keep[r] == kvern_round_appended(state, r) ? keep[r] : 0;
    return kvern_state_prepare_settling(state, counts);
}

static void take_back(kvern_cache *cache, const int64_t *lengths)
{
    for (size_t r = 0; r < cache->batch->row_count; r++)
        kvern_row_take_back(&cache->rows[r], &cache->undos[r], cache->batch->round_begin[r],
                            lengths[r]);
}

static void end_round(kvern_state *state, const int64_t *keep)
{
    for (size_t r = 0; r < kvern_state_rows(state); r++)
        state->batch.lengths[r] = state->batch.round_begin[r] + keep[r];
    for (size_t l = 0; l < state->composition->count; l++)
        take_back(&state->caches[l], state->batch.lengths);
    kvern_state_commit_settling(state, keep);
    state->batch.round_open = false;
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
    if ((status = prepare_end(state, keep)))
        return status;
    end_round(state, keep);
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
