// SPDX-License-Identifier: MIT
// Tokens of recurrent layers, and what their rows are as data.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/layer/recurrent/recurrent.h"
#include "src/rows/whole_row.h"
#include "src/state/walk.h"

#include <inttypes.h>
#include <kvern/recurrent.h>
#include <math.h>

static const kvern_sized WEIGHTS_SIZES =
    KVERN_SIZED(kvern_recur_weights, KVERN_SIZE_TO(kvern_recur_weights, beta_factor));
static const kvern_sized TOKENS_SIZES =
    KVERN_SIZED(kvern_recur_tokens, KVERN_SIZE_TO(kvern_recur_tokens, weights));
static const kvern_sized STATE_SIZES =
    KVERN_SIZED(kvern_recur_state, KVERN_SIZE_TO(kvern_recur_state, lane));

void kvern_recur_weights_init(kvern_recur_weights *weights, size_t size, const kvern_layer *layer)
{
    const float k_dim = layer->k_dim ? (float)layer->k_dim : 1;
    const kvern_recur_weights defaults = {
        .dt_high = INFINITY,
        .q_factor = 1 / k_dim,
        .k_factor = 1 / sqrtf(k_dim),
        .norm_eps = 1e-6F,
        .beta_factor = 1,
    };
    kvern_sized_init(&WEIGHTS_SIZES, &defaults, weights, size);
}

void kvern_recur_tokens_init(kvern_recur_tokens *tokens, size_t size, const kvern_layer *layer)
{
    const size_t channels = 2 * layer->key_heads * layer->k_dim + layer->value_heads * layer->v_dim;
    const bool by_channel = layer->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS;
    const kvern_recur_tokens defaults = {
        .x_token_stride = (int64_t)channels,
        .a_token_stride = (int64_t)(layer->value_heads * (by_channel ? layer->k_dim : 1)),
        .b_token_stride = (int64_t)layer->value_heads,
        .y_token_stride = (int64_t)(layer->value_heads * layer->v_dim),
    };
    kvern_sized_init(&TOKENS_SIZES, &defaults, tokens, size);
}

// ---- Checks ----

// The caller's structs, as this library knows them; tokens->weights is the second one.
static kvern_status read_tokens(const kvern_recur_tokens *given, kvern_recur_tokens *tokens,
                                kvern_recur_weights *weights)
{
    if (!given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "tokens is NULL");
    kvern_status status = kvern_sized_read(&TOKENS_SIZES, given, tokens);
    if (status)
        return status;
    if (!tokens->weights)
        return kvern_fail(KVERN_ERR_ARGUMENT, "weights is NULL");
    status = kvern_sized_read(&WEIGHTS_SIZES, tokens->weights, weights);
    tokens->weights = weights;
    return status;
}

// A recurrent layer that the library computes, or one whose lanes the caller computes.
static kvern_status check_lane(const kvern_planned_layer *layer, bool lane)
{
    kvern_status status = kvern_recurrent_check_kind(layer);
    if (status || kvern_recurrent_is_lane(layer) == lane)
        return status;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: %s is %s", layer->index, layer->signature,
                      lane ? "no lane" : "a lane, which its caller computes");
}

// A cache that stands alone.
static kvern_status check_cache(const kvern_cache *cache, bool lane)
{
    kvern_status status = kvern_cache_check_alone(cache);
    return status ? status : check_lane(kvern_cache_planned(cache), lane);
}

// A layer that has not had its tokens of the open step.
static kvern_status check_step(const kvern_state *state, size_t layer, bool lane)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    kvern_status status = check_lane(&state->composition->layers[layer], lane);
    if (status)
        return status;
    if (!state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    if (state->caches[layer].appended)
        return kvern_fail(KVERN_ERR_BUSY, "layer %zu has appended in this step", layer);
    return KVERN_OK;
}

static kvern_status check_counts(const kvern_state *state, const int64_t *counts)
{
    for (size_t r = 0; counts && r < kvern_state_rows(state); r++) {
        if (counts[r] != state->batch.counts[r])
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " tokens, but the step has %" PRId64, r,
                              counts[r], state->batch.counts[r]);
    }
    return KVERN_OK;
}

// ---- Tokens ----

// Takes tokens into rows that are prepared for them; fails for its scratch alone, before anything
// changes.
static kvern_status run(kvern_cache *cache, const kvern_recur_tokens *tokens, const int64_t *counts,
                        bool prepared)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    void *scratch;
    kvern_status status = kvern_recurrent_check_tokens(layer, tokens, counts, rows.count);
    if (status)
        return status;
    status = kvern_buffer_take(layer->context, cache->batch->reservation, KVERN_SCRATCH,
                               layer->ops->scratch_bytes(layer, rows.count, 0, 0), &scratch);
    if (status)
        return status;
    if (!prepared && (status = layer->ops->prepare(layer, &rows, counts, 0, 0))) {
        kvern_buffer_undo(layer->context, scratch);
        return status;
    }
    if (!prepared)
        layer->ops->commit(layer, &rows);
    kvern_recurrent_run(layer, &rows, tokens, counts, scratch);
    kvern_buffer_give(layer->context, scratch);
    return KVERN_OK;
}

static void advance(kvern_cache *cache, const int64_t *counts)
{
    for (size_t r = 0; r < cache->batch->row_count; r++)
        cache->batch->lengths[r] += counts[r];
    KVERN_ASSERT(!kvern_caches_walk(cache));
}

kvern_status kvern_cache_recur(kvern_cache *cache, kvern_phase phase,
                               const kvern_recur_tokens *tokens)
{
    kvern_recur_tokens known;
    kvern_recur_weights weights;
    kvern_status status = check_cache(cache, false);
    if (!status)
        status = read_tokens(tokens, &known, &weights);
    if (!status)
        status = kvern_batch_check_counts(cache->batch, phase, known.counts);
    if (!status)
        status = kvern_layer_check_phase(kvern_cache_planned(cache), phase);
    if (!status)
        status = run(cache, &known, known.counts, false);
    if (!status)
        advance(cache, known.counts);
    return status;
}

kvern_status kvern_step_recur(kvern_state *state, size_t layer, const kvern_recur_tokens *tokens)
{
    kvern_recur_tokens known;
    kvern_recur_weights weights;
    kvern_status status = check_step(state, layer, false);
    if (!status)
        status = read_tokens(tokens, &known, &weights);
    if (!status)
        status = check_counts(state, known.counts);
    if (!status)
        status = run(&state->caches[layer], &known, state->batch.counts, true);
    if (!status)
        state->caches[layer].appended = true;
    return status;
}

// ---- Lanes ----

kvern_status kvern_cache_lanes(kvern_cache *cache, kvern_phase phase, const int64_t *counts,
                               void **lanes)
{
    kvern_status status = check_cache(cache, true);
    if (!status)
        status = kvern_batch_check_counts(cache->batch, phase, counts);
    if (!status)
        status = kvern_layer_check_phase(kvern_cache_planned(cache), phase);
    if (!status && cache->batch->row_count && !lanes)
        status = kvern_fail(KVERN_ERR_ARGUMENT, "lanes is NULL");
    if (status)
        return status;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    if ((status = layer->ops->prepare(layer, &rows, counts, 0, 0)))
        return status;
    layer->ops->commit(layer, &rows);
    kvern_recurrent_open_lanes(layer, &rows, counts, lanes);
    advance(cache, counts);
    return KVERN_OK;
}

kvern_status kvern_step_lanes(kvern_state *state, size_t layer, void **lanes)
{
    kvern_status status = check_step(state, layer, true);
    if (!status && kvern_state_rows(state) && !lanes)
        status = kvern_fail(KVERN_ERR_ARGUMENT, "lanes is NULL");
    if (status)
        return status;
    kvern_cache *cache = &state->caches[layer];
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_recurrent_open_lanes(kvern_cache_planned(cache), &rows, state->batch.counts, lanes);
    cache->appended = true;
    return KVERN_OK;
}

// ---- Rows as data ----

static kvern_status check_content(const kvern_cache *cache, size_t row,
                                  const kvern_recur_state *given, bool all,
                                  kvern_recur_state *content)
{
    if (!cache || !given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or state is NULL");
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    kvern_status status = kvern_recurrent_check_kind(layer);
    if (!status)
        status = kvern_sized_read(&STATE_SIZES, given, content);
    if (!status)
        status = kvern_recurrent_check_content(layer, content, all);
    if (!status && row >= cache->batch->row_count)
        status = kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, cache->batch->row_count);
    return status;
}

kvern_status kvern_cache_export_recurrent(const kvern_cache *cache, size_t row,
                                          const kvern_recur_state *state)
{
    kvern_recur_state content;
    kvern_status status = check_content(cache, row, state, false, &content);
    if (!status)
        status = kvern_batch_check_no_round(cache->batch);
    if (status)
        return status;
    kvern_recurrent_export(kvern_cache_planned(cache), kvern_whole_row_page(&cache->rows[row]),
                           &content);
    return KVERN_OK;
}

kvern_status kvern_cache_fill_recurrent(kvern_cache *cache, size_t row, int64_t length,
                                        const kvern_recur_state *content)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_layer_rows one = kvern_layer_row_alone(&rows, row);
    one.of_state = false; // this is no step that may be abandoned
    kvern_status status = layer->ops->prepare(layer, &one, &length, 0, 0);
    if (status)
        return status;
    layer->ops->commit(layer, &one);
    kvern_recurrent_turn(&one, 0, length);
    kvern_recurrent_import(layer, content, kvern_whole_row_page(&cache->rows[row]));
    kvern_recurrent_close(&one, 0);
    cache->batch->lengths[row] = length;
    return KVERN_OK;
}

kvern_status kvern_cache_import_recurrent(kvern_cache *cache, size_t row, int64_t length,
                                          const kvern_recur_state *state)
{
    kvern_recur_state content;
    kvern_status status = check_content(cache, row, state, true, &content);
    if (!status)
        status = kvern_cache_check_alone(cache);
    if (status)
        return status;
    if (length < 1 || length > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: %" PRId64 " positions", row, length);
    if (cache->rows[row].length)
        return kvern_fail(KVERN_ERR_BUSY, "row %zu is not empty", row);
    status = kvern_cache_fill_recurrent(cache, row, length, &content);
    KVERN_ASSERT(!kvern_caches_walk(cache));
    return status;
}
