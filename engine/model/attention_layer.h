// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ATTENTION_LAYER_H
#define KVERN_ENGINE_ATTENTION_LAYER_H

// Attention between four matrices, with what families add to it: biases of the matrices, norms of
// every head of q and k, a gate.

#include "engine/model/forward.h"
#include "engine/model/model_tensors.h"
#include "engine/model/scratch.h"

typedef struct attention_layer {
    linear q;      // [heads * head_dim, width]
    linear k;      // [kv_heads * head_dim, width]
    linear v;      // [kv_heads * value_dim, width]
    linear output; // [width, heads * value_dim]
    float *q_bias; // of the matrices' outputs; NULL: none
    float *k_bias;
    float *v_bias;
    float *output_bias;
    float *q_norm; // [head_dim]; NULL: heads are not normed
    float *k_norm;
    bool whole_norms; // those of all heads together, [heads * head_dim] and [kv_heads * head_dim]
    linear gate; // [heads * value_dim, width], whose sigmoid what attention gives is multiplied by
    bool gated;
    float *sinks;         // [heads] learned logits that join the softmax; NULL: none
    bool values_are_keys; // there is no v: values are keys before these are normed and rotated
    bool unit_values;     // each head of v is divided by its root mean square
} attention_layer;

// The tensors attn_q, attn_k, attn_v and attn_output.
void attention_list_tensors(attention_layer *layer, const model_layer_facts *facts, size_t width,
                            tensor_specs *list);
// The same with the first three fused into attn_qkv.
void attention_list_fused_tensors(attention_layer *layer, const model_layer_facts *facts,
                                  size_t width, tensor_specs *list);
// The same with attn_q that has a gate behind the queries of each head. value_dim is head_dim.
void attention_list_gated_tensors(attention_layer *layer, const model_layer_facts *facts,
                                  size_t width, tensor_specs *list);
// Those of a shared layer: attn_q and attn_output.
void attention_list_shared_tensors(attention_layer *layer, const model_layer_facts *facts,
                                   size_t width, tensor_specs *list);
// Those of a layer whose values are its keys: all but attn_v.
void attention_list_keys_tensors(attention_layer *layer, const model_layer_facts *facts,
                                 size_t width, tensor_specs *list);
// The biases of the first three.
void attention_list_input_biases(attention_layer *layer, const model_layer_facts *facts,
                                 tensor_specs *list);
// The biases of all four, as far as the file has them.
void attention_list_biases(attention_layer *layer, const model_layer_facts *facts, size_t width,
                           tensor_specs *list);
// attn_q_norm and attn_k_norm.
void attention_list_norms(attention_layer *layer, const model_layer_facts *facts,
                          tensor_specs *list);

// attn_sinks.
void attention_list_sinks(attention_layer *layer, const model_layer_facts *facts,
                          tensor_specs *list);

// The same as wide as all heads.
void attention_list_whole_norms(attention_layer *layer, const model_layer_facts *facts,
                                tensor_specs *list);

void attention_list_scratch(const model_layer_facts *facts, model_scratch *list);
// The same with a gate.
void attention_list_gated_scratch(const model_layer_facts *facts, model_scratch *list);

// workspace q, k, v = the projections of RMSNorm(x, norm), their heads normed where the layer has
// norms, q and k rotated.
KVERN_CHECK kvern_status attention_project(const attention_layer *layer, const forward_pass *pass,
                                           size_t index, const float *norm, engine_error *error);

// Appends k and v to the layer, attends q, and releases the read; what attention gives is gated
// where the layer has a gate, which attention_project left in the workspace; y [tokens, width] is
// the output matrix times what attention gives, or with `add` y grows by that.
KVERN_CHECK kvern_status attention_run(const attention_layer *layer, const forward_pass *pass,
                                       size_t index, float *y, bool add, engine_error *error);

#endif
