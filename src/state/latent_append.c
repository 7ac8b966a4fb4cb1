// SPDX-License-Identifier: MIT
// Appends of latents, and what rows and reads store of them.
#include "src/layer/latent/latent.h"

#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/state/cache.h"
#include "src/state/state.h"

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

kvern_status kvern_cache_append_latent(kvern_cache *cache, kvern_phase phase,
                                       const kvern_latent_tokens *tokens, kvern_read **read)
{
    (void)phase;
    if (read)
        *read = NULL;
    if (!cache || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or tokens is NULL");
    return kvern_latent_check_kind(kvern_cache_planned(cache));
}

kvern_status kvern_step_append_latent(kvern_state *state, size_t layer,
                                      const kvern_latent_tokens *tokens, kvern_read **read)
{
    if (read)
        *read = NULL;
    if (!state || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or tokens is NULL");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    return kvern_latent_check_kind(&state->composition->layers[layer]);
}

kvern_status kvern_cache_export_latent(const kvern_cache *cache, size_t row, int64_t position,
                                       int64_t count, float *latent, float *rope, float *index)
{
    (void)row, (void)position, (void)count, (void)latent, (void)rope, (void)index;
    if (!cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
    return kvern_latent_check_kind(kvern_cache_planned(cache));
}

kvern_status kvern_read_export_latent(const kvern_read *read, size_t row, int64_t position,
                                      int64_t count, float *latent, float *rope, float *index)
{
    (void)row, (void)position, (void)count, (void)latent, (void)rope, (void)index;
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "the read is of a layer without latents");
}
