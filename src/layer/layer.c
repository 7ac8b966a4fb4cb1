// SPDX-License-Identifier: MIT
// The kinds of layers.
#include "src/layer/layer.h"

#include "src/base/fail.h"
#include "src/layer/attention/attention.h"
#include "src/layer/latent/latent.h"
#include "src/layer/recurrent/recurrent.h"
#include "src/layer/shared/shared.h"

static const struct {
    kvern_layer_kind kind;
    const kvern_layer_ops *ops;
} KINDS[] = {
    {KVERN_LAYER_FULL, &kvern_attention_layer},    {KVERN_LAYER_WINDOW, &kvern_attention_layer},
    {KVERN_LAYER_LATENT, &kvern_latent_layer},     {KVERN_LAYER_RECURRENT, &kvern_recurrent_layer},
    {KVERN_LAYER_CHUNKED, &kvern_attention_layer}, {KVERN_LAYER_SHARED, &kvern_shared_layer},
};

const kvern_layer_ops *kvern_layer_ops_of(kvern_layer_kind kind)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (KINDS[i].kind == kind)
            return KINDS[i].ops;
    }
    return NULL;
}

// The calls that give tokens to a layer.
static const char *calls_of(const kvern_planned_layer *layer)
{
    if (layer->ops == &kvern_attention_layer)
        return "; kvern_step_append and kvern_cache_append are for it";
    if (layer->ops == &kvern_latent_layer)
        return "; kvern_step_append_latent and kvern_cache_append_latent are for it";
    if (layer->ops == &kvern_shared_layer)
        return "; kvern_step_read_donor is for it";
    if (layer->ops != &kvern_recurrent_layer)
        return "";
    return kvern_recurrent_is_lane(layer) ? "; kvern_step_lanes and kvern_cache_lanes are for it"
                                          : "; kvern_step_recur and kvern_cache_recur are for it";
}

kvern_status kvern_layer_fail_kind(const kvern_planned_layer *layer, const char *lacking)
{
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: of kind %d, %s, which has no %s%s",
                      layer->index, (int)layer->plan.kind, layer->signature, lacking,
                      calls_of(layer));
}

kvern_status kvern_layer_check_phase(const kvern_planned_layer *layer, kvern_phase phase)
{
    if (!kvern_phase_is_both_ways(phase) || layer->ops->can(layer, KVERN_CAN_BIDIRECTIONAL))
        return KVERN_OK;
    return kvern_layer_fail_kind(layer, "tokens that see each other both ways");
}

kvern_status kvern_layer_check_lane(const kvern_planned_layer *layer, kvern_lane lane)
{
    const kvern_geometry *g = &layer->geometry;
    for (size_t s = 0; s < g->stream_count; s++) {
        if (g->streams[s].lane == lane)
            return KVERN_OK;
    }
    return kvern_layer_fail_kind(layer,
                                 lane == KVERN_LANE_K ? "keys and values of attention" : "latents");
}
