// SPDX-License-Identifier: MIT
// Reads of layers whose keys and values others share.
#include "src/base/fail.h"
#include "src/layer/attention/attention.h"
#include "src/state/append.h"

#include <kvern/donor.h>

static kvern_status check_shared(const kvern_state *state, size_t layer)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (!state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    const kvern_planned_layer *planned = &state->composition->layers[layer];
    if (!kvern_layer_is_shared(planned))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: of kind %d, %s, which is not shared and has no donor", layer,
                          (int)planned->plan.kind, planned->signature);
    if (!state->caches[planned->donor->index].appended)
        return kvern_fail(KVERN_ERR_BUSY,
                          "layer %zu: its donor, layer %zu, has not appended in this step", layer,
                          planned->donor->index);
    return KVERN_OK;
}

// Rows settle when a step ends, so until then they are what the append left: a read that is made
// now is the one that was made then.
kvern_status kvern_step_read_donor(kvern_state *state, size_t layer, kvern_read **read)
{
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    *read = NULL;
    kvern_status status = check_shared(state, layer);
    if (status)
        return status;
    const kvern_cache *donor = &state->caches[state->composition->layers[layer].donor->index];
    status = kvern_read_create(kvern_cache_context(donor), donor->batch->reservation,
                               donor->batch->row_count, read);
    if (status)
        return status;
    const kvern_layer_rows rows = kvern_cache_layer_rows(donor);
    kvern_cache_fill_read(donor, &rows, state->batch.counts, *read);
    return KVERN_OK;
}

size_t kvern_composition_last_layer(const kvern_composition *composition, kvern_layer_kind kind)
{
    size_t last = composition->count;
    while (last > 0 && composition->layers[last - 1].plan.kind != kind)
        last--;
    return last ? last - 1 : KVERN_NO_LAYER;
}

static kvern_status check_layer(const kvern_state *state, size_t layer)
{
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    return kvern_attention_check_kind(&state->composition->layers[layer]);
}

kvern_status kvern_state_read_donors(const kvern_state *state, const size_t *layers, size_t count,
                                     const int64_t *counts, kvern_read **reads)
{
    if (!reads && count)
        return kvern_fail(KVERN_ERR_ARGUMENT, "reads is NULL");
    for (size_t i = 0; i < count; i++)
        reads[i] = NULL;
    if (!state || (!layers && count))
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or layers is NULL");
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        status = check_layer(state, layers[i]);
        if (!status)
            status = kvern_cache_read_donor(&state->caches[layers[i]], counts, &reads[i]);
    }
    for (size_t i = 0; i < count && status; i++) {
        kvern_read_undo(reads[i]);
        reads[i] = NULL;
    }
    return status;
}
