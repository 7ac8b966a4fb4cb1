// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_HYBRID_LAYER_H
#define KVERN_ENGINE_HYBRID_LAYER_H

// The layers of Qwen3-Next and Qwen 3.5: a gated delta rule in most of them, attention with a gate
// in the others; behind either, experts or a feed-forward network.
//
// The functions have the types of model_family, so that a family names them or adds to them.

#include "engine/model/delta_layer.h"
#include "engine/model/sparse_layer.h"

typedef struct hybrid_layer {
    delta_layer delta;  // of MODEL_LAYER_DELTA; all others have:
    sparse_layer other; // attention; and what both kinds have, norms and experts
} hybrid_layer;

void hybrid_list_tensors(const model_facts *facts, size_t index, void *layer, tensor_specs *list);
KVERN_CHECK kvern_status hybrid_finish_layer(const model_facts *facts, void *layer,
                                             engine_error *error);
void hybrid_list_scratch(const model_facts *facts, size_t index, model_scratch *list);
kvern_layer hybrid_plan_layer(const model_facts *facts, size_t index);
KVERN_CHECK kvern_status hybrid_run(const void *layer, size_t index, const forward_pass *pass,
                                    engine_error *error);

#endif
