// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_EXPERTS_LAYER_H
#define KVERN_ENGINE_EXPERTS_LAYER_H

// What models with experts have in place of a feed-forward network: in most layers a router and
// experts, of which each token uses a few, and maybe one that all use; in others a plain network.
//
// A token's experts are added up in ascending order, and each matrix is read once for all tokens of
// a wave that use it. So what a token gets depends neither on other tokens nor on threads.

#include "engine/model/feed_forward_layer.h"
#include "engine/model/router.h"

// What is between the matrices of an expert.
typedef enum experts_activation {
    EXPERTS_SILU = 0,       // silu(gate) * up
    EXPERTS_SWIGLU_OAI = 1, // gpt-oss: both clamped, and one added to up; docs/engine.md
} experts_activation;

typedef struct experts_layer {
    linear router;              // [experts, width]
    linear_stack gate;          // of [inner, width]
    linear_stack up;            // of [inner, width]
    linear_stack down;          // of [width, inner]
    float *correction;          // [experts] added to scores where experts are chosen; NULL: none
    float *router_bias;         // [experts]; NULL: none
    float *gate_bias;           // [experts, inner]
    float *up_bias;             // [experts, inner]
    float *down_bias;           // [experts, width]
    linear shared_gate;         // [1, width], where facts have it
    feed_forward_layer network; // the expert that all tokens use; in layers without experts: all
} experts_layer;

// ffn_gate_inp, ffn_gate_exps, ffn_up_exps, ffn_down_exps; of the shared expert ffn_gate_shexp,
// ffn_up_shexp, ffn_down_shexp and ffn_gate_inp_shexp. In layers without experts those of a
// feed-forward network.
void experts_list_tensors(experts_layer *layer, const model_facts *facts, size_t index,
                          tensor_specs *list);
// The biases of the router and of the experts.
void experts_list_biases(experts_layer *layer, const model_facts *facts, size_t index,
                         tensor_specs *list);

void experts_list_scratch(const model_facts *facts, size_t index, model_scratch *list);

// x += what the experts of the layer (or its network, with silu) make of RMSNorm(x, norm).
KVERN_CHECK kvern_status experts_run(const experts_layer *layer, const forward_pass *pass,
                                     size_t index, const float *norm, experts_activation activation,
                                     engine_error *error);

#endif
