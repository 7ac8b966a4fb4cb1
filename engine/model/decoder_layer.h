// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DECODER_LAYER_H
#define KVERN_ENGINE_DECODER_LAYER_H

// The layer that most decoders are made of: attention and a gated feed-forward network, each behind
// a norm. What they give is added to the stream; families with post norms norm it first.
//
// The functions have the types of model_family, so that a family names them or adds to them.

#include "engine/model/attention_layer.h"
#include "engine/model/feed_forward_layer.h"

typedef struct decoder_layer {
    attention_layer attention;
    feed_forward_layer feed_forward;
    float *attention_norm; // [width]
    float *feed_forward_norm;
    float *post_attention_norm; // NULL: none
    float *post_feed_forward_norm;
} decoder_layer;

// attn_norm, ffn_norm, and the matrices of both parts.
void decoder_list_tensors(const model_facts *facts, size_t index, void *layer, tensor_specs *list);
// The same with fused matrices.
void decoder_list_fused_tensors(const model_facts *facts, size_t index, void *layer,
                                tensor_specs *list);
// post_attention_norm and post_ffw_norm.
void decoder_list_post_norms(decoder_layer *layer, size_t width, tensor_specs *list);

void decoder_list_scratch(const model_facts *facts, size_t index, model_scratch *list);
// The same for layers with post norms.
void decoder_list_post_scratch(const model_facts *facts, size_t index, model_scratch *list);

// A full layer, one with a window or chunks, or one that shares such a one.
kvern_layer decoder_plan_layer(const model_facts *facts, size_t index);

// The two halves of a layer.
KVERN_CHECK kvern_status decoder_run_attention(const decoder_layer *layer, size_t index,
                                               const forward_pass *pass, engine_error *error);
KVERN_CHECK kvern_status decoder_run_feed_forward(const decoder_layer *layer,
                                                  const forward_pass *pass,
                                                  forward_activation activation,
                                                  engine_error *error);

// Both of them, with silu or gelu.
KVERN_CHECK kvern_status decoder_run_silu(const void *layer, size_t index, const forward_pass *pass,
                                          engine_error *error);
KVERN_CHECK kvern_status decoder_run_gelu(const void *layer, size_t index, const forward_pass *pass,
                                          engine_error *error);

#endif
