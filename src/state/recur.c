// SPDX-License-Identifier: MIT
// Tokens of recurrent layers, and what their rows are as data.
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/layer/recurrent/recurrent.h"
#include "src/state/state.h"

#include <kvern/recurrent.h>
#include <math.h>

static const kvern_sized WEIGHTS_SIZES =
    KVERN_SIZED(kvern_recur_weights, KVERN_SIZE_TO(kvern_recur_weights, beta_factor));
static const kvern_sized TOKENS_SIZES =
    KVERN_SIZED(kvern_recur_tokens, KVERN_SIZE_TO(kvern_recur_tokens, weights));

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

kvern_status kvern_cache_recur(kvern_cache *cache, kvern_phase phase,
                               const kvern_recur_tokens *tokens)
{
    (void)phase;
    if (!cache || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or tokens is NULL");
    return kvern_recurrent_check_kind(kvern_cache_planned(cache));
}

static kvern_status check_layer(const kvern_state *state, size_t layer)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    return kvern_recurrent_check_kind(&state->composition->layers[layer]);
}

kvern_status kvern_step_recur(kvern_state *state, size_t layer, const kvern_recur_tokens *tokens)
{
    return tokens ? check_layer(state, layer) : kvern_fail(KVERN_ERR_ARGUMENT, "tokens is NULL");
}

kvern_status kvern_cache_lanes(kvern_cache *cache, kvern_phase phase, const int64_t *counts,
                               void **lanes)
{
    (void)phase, (void)counts, (void)lanes;
    return cache ? kvern_recurrent_check_kind(kvern_cache_planned(cache))
                 : kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
}

kvern_status kvern_step_lanes(kvern_state *state, size_t layer, void **lanes)
{
    (void)lanes;
    return check_layer(state, layer);
}

kvern_status kvern_cache_export_recurrent(const kvern_cache *cache, size_t row,
                                          const kvern_recur_state *state)
{
    (void)row, (void)state;
    return cache ? kvern_recurrent_check_kind(kvern_cache_planned(cache))
                 : kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
}

kvern_status kvern_cache_import_recurrent(kvern_cache *cache, size_t row, int64_t length,
                                          const kvern_recur_state *state)
{
    (void)row, (void)length, (void)state;
    return cache ? kvern_recurrent_check_kind(kvern_cache_planned(cache))
                 : kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
}
