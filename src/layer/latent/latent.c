// SPDX-License-Identifier: MIT
#include "src/layer/latent/latent.h"

#include "src/base/fail.h"
#include "src/codec/codec.h"

bool kvern_latent_is_asked_for(const kvern_layer *plan)
{
    const kvern_codec none = {.kind = KVERN_CODEC_F32};
    return plan->latent_dim || plan->rope_dim || plan->index_dim ||
           !kvern_codec_equal(&plan->latent_codec, &none) ||
           !kvern_codec_equal(&plan->rope_codec, &none) ||
           !kvern_codec_equal(&plan->index_codec, &none);
}

kvern_status kvern_latent_check_kind(const kvern_planned_layer *layer)
{
    if (layer->plan.kind == KVERN_LAYER_LATENT)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: of kind %d, %s, which has no latents",
                      layer->index, (int)layer->plan.kind, layer->signature);
}
