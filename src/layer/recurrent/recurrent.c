// SPDX-License-Identifier: MIT
#include "src/layer/recurrent/recurrent.h"

#include "src/base/fail.h"

bool kvern_recurrent_is_asked_for(const kvern_layer *plan)
{
    return plan->recurrence || plan->conv_kernel || plan->conv_dim || plan->key_heads ||
           plan->value_heads || plan->lane_bytes;
}

kvern_status kvern_recurrent_check_kind(const kvern_planned_layer *layer)
{
    if (layer->plan.kind == KVERN_LAYER_RECURRENT)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu: of kind %d, %s, which has no recurrent state", layer->index,
                      (int)layer->plan.kind, layer->signature);
}
