// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_RECURRENT_RECURRENT_H
#define KVERN_LAYER_RECURRENT_RECURRENT_H

// Recurrent layers (kvern/recurrent.h).

#include "src/layer/layer.h"

// Whether a plan sets fields that recurrent layers alone have.
bool kvern_recurrent_is_asked_for(const kvern_layer *plan);

// Refuses a layer of another kind by name (KVERN_ERR_UNSUPPORTED).
KVERN_CHECK kvern_status kvern_recurrent_check_kind(const kvern_planned_layer *layer);

#endif
