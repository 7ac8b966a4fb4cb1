// SPDX-License-Identifier: MIT
// Appends of latents.
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/state/append.h"

#include <inttypes.h>
#include <kvern/latent.h>

static const kvern_sized TOKENS_SIZES =
    KVERN_SIZED(kvern_latent_tokens, KVERN_SIZE_TO(kvern_latent_tokens, index_start));

void kvern_latent_tokens_init(kvern_latent_tokens *tokens, size_t size, const kvern_layer *layer)
{
    const kvern_latent_tokens defaults = {
        .latent_type = KVERN_F32,
        .rope_type = KVERN_F32,
        .index_type = KVERN_F32,
        .latent_token_stride = (int64_t)layer->latent_dim,
        .rope_token_stride = (int64_t)layer->rope_dim,
        .index_token_stride = (int64_t)layer->index_dim,
    };
    kvern_sized_init(&TOKENS_SIZES, &defaults, tokens, size);
}

static kvern_lane_views views_of(const kvern_latent_tokens *t)
{
    return (kvern_lane_views){
        .lanes = {
            [KVERN_LANE_LATENT] = {t->latent, t->latent_type, t->latent_token_stride, 0,
                                   t->latent_start},
            [KVERN_LANE_ROPE] = {t->rope, t->rope_type, t->rope_token_stride, 0, t->rope_start},
            [KVERN_LANE_INDEX] = {t->index, t->index_type, t->index_token_stride, 0,
                                  t->index_start},
        }};
}

// What is missing is found where the lanes are read (kvern_layer_ops.check_tokens); where no row
// receives a token, nothing is.
static kvern_status check_surplus(const kvern_planned_layer *layer, const char *name, size_t dim,
                                  const void *lane, const int64_t *counts)
{
    if (dim || (!lane && !counts))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s is given, and the layer, %s, has none",
                      layer->index, name, layer->signature);
}

static kvern_status check_counts(const char *name, const int64_t *lane, const int64_t *counts,
                                 size_t rows)
{
    for (size_t r = 0; lane && r < rows; r++) {
        if (lane[r] != counts[r])
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " tokens of latent, %" PRId64 " of %s", r,
                              counts[r], lane[r], name);
    }
    return KVERN_OK;
}

// Whether the lanes are those of the layer, and have as many tokens each. `counts`: of the append;
// NULL is refused later.
static kvern_status check_lanes(const kvern_planned_layer *layer, const kvern_latent_tokens *t,
                                const int64_t *counts, size_t rows)
{
    const kvern_layer *plan = &layer->plan;
    kvern_status status = check_surplus(layer, "rope", plan->rope_dim, t->rope, t->rope_counts);
    if (!status)
        status = check_surplus(layer, "index", plan->index_dim, t->index, t->index_counts);
    if (!status && counts)
        status = check_counts("rope", t->rope_counts, counts, rows);
    if (!status && counts)
        status = check_counts("index", t->index_counts, counts, rows);
    return status;
}

kvern_status kvern_cache_append_latent(kvern_cache *cache, kvern_phase phase,
                                       const kvern_latent_tokens *tokens, kvern_read **read)
{
    kvern_latent_tokens known;
    if (read)
        *read = NULL;
    if (!tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "tokens is NULL");
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = kvern_sized_read(&TOKENS_SIZES, tokens, &known);
    if (!status)
        status = kvern_layer_check_lane(kvern_cache_planned(cache), KVERN_LANE_LATENT);
    if (!status)
        status =
            check_lanes(kvern_cache_planned(cache), &known, known.counts, cache->batch->row_count);
    if (status)
        return status;
    const kvern_lane_views views = views_of(&known);
    return kvern_cache_append_lanes(cache, phase, &views, known.counts, read);
}

kvern_status kvern_step_append_latent(kvern_state *state, size_t layer,
                                      const kvern_latent_tokens *tokens, kvern_read **read)
{
    kvern_latent_tokens known;
    if (read)
        *read = NULL;
    if (!state || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or tokens is NULL");
    kvern_status status = kvern_sized_read(&TOKENS_SIZES, tokens, &known);
    if (!status)
        status = kvern_step_check_append(state, layer, KVERN_LANE_LATENT, known.counts);
    if (!status)
        status = check_lanes(&state->composition->layers[layer], &known, state->batch.counts,
                             kvern_state_rows(state));
    if (status)
        return status;
    const kvern_lane_views views = views_of(&known);
    return kvern_step_append_lanes(state, layer, &views, read);
}
