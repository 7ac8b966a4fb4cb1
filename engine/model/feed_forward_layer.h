// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_FEED_FORWARD_LAYER_H
#define KVERN_ENGINE_FEED_FORWARD_LAYER_H

// A gated feed-forward network of three matrices.

#include "engine/model/forward.h"
#include "engine/model/model_tensors.h"
#include "engine/model/scratch.h"

typedef struct feed_forward_layer {
    linear gate; // [feed_forward, width]
    linear up;   // [feed_forward, width]
    linear down; // [width, feed_forward]
} feed_forward_layer;

// The tensors ffn_gate, ffn_up and ffn_down.
void feed_forward_list_tensors(feed_forward_layer *layer, const model_layer_facts *facts,
                               size_t width, tensor_specs *list);

// The same with the first two fused into ffn_up, the gate in front.
void feed_forward_list_fused_tensors(feed_forward_layer *layer, const model_layer_facts *facts,
                                     size_t width, tensor_specs *list);

void feed_forward_list_scratch(const model_layer_facts *facts, model_scratch *list);

// y = down * (activation(gate * n) * (up * n)) with n = RMSNorm(x, norm); with `add` y grows by it.
KVERN_CHECK kvern_status feed_forward_run(const feed_forward_layer *layer, const forward_pass *pass,
                                          const float *norm, forward_activation activation,
                                          float *y, bool add, engine_error *error);

#endif
