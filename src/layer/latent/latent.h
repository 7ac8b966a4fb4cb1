// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_LATENT_LATENT_H
#define KVERN_LAYER_LATENT_LATENT_H

// Layers of latents (kvern/latent.h).

#include "src/layer/layer.h"

// Whether a plan sets fields that layers of latents alone have.
bool kvern_latent_is_asked_for(const kvern_layer *plan);

// Refuses a layer of another kind by name (KVERN_ERR_UNSUPPORTED).
KVERN_CHECK kvern_status kvern_latent_check_kind(const kvern_planned_layer *layer);

#endif
