// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_LATENT_LATENT_H
#define KVERN_LAYER_LATENT_LATENT_H

// Layers of latents (kvern/latent.h). Their rows are those of attention (src/layer/attention) with
// other streams: the latent, which queries are scored against and which is summed up, the rotated
// key that joins the score, and the index key, which attention does not read.

#include "src/layer/layer.h"

extern const kvern_layer_ops kvern_latent_layer;

// Whether a plan sets fields that layers of latents alone have.
bool kvern_latent_is_asked_for(const kvern_layer *plan);

// Refuses a layer whose rows are neither keys and values of attention nor latents
// (KVERN_ERR_UNSUPPORTED): for what works on streams, whichever they are.
KVERN_CHECK kvern_status kvern_latent_check_streams(const kvern_planned_layer *layer);

#endif
