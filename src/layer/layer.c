// SPDX-License-Identifier: MIT
// The kinds of layers.
#include "src/layer/layer.h"

#include "src/base/fail.h"
#include "src/layer/attention/attention.h"
#include "src/layer/latent/latent.h"
#include "src/layer/recurrent/recurrent.h"

static const struct {
    kvern_layer_kind kind;
    const kvern_layer_ops *ops;
} KINDS[] = {
    {KVERN_LAYER_FULL, &kvern_attention_layer},    {KVERN_LAYER_WINDOW, &kvern_attention_layer},
    {KVERN_LAYER_LATENT, &kvern_latent_layer},     {KVERN_LAYER_RECURRENT, &kvern_recurrent_layer},
    {KVERN_LAYER_CHUNKED, &kvern_attention_layer},
};

const kvern_layer_ops *kvern_layer_ops_of(kvern_layer_kind kind)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (KINDS[i].kind == kind)
            return KINDS[i].ops;
    }
    return NULL;
}

kvern_status kvern_layer_check_lane(const kvern_planned_layer *layer, kvern_lane lane)
{
    const kvern_geometry *g = &layer->geometry;
    for (size_t s = 0; s < g->stream_count; s++) {
        if (g->streams[s].lane == lane)
            return KVERN_OK;
    }
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: of kind %d, %s, which has no %s",
                      layer->index, (int)layer->plan.kind, layer->signature,
                      lane == KVERN_LANE_K ? "keys and values of attention" : "latents");
}
