// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SPARSE_LAYER_H
#define KVERN_ENGINE_SPARSE_LAYER_H

// The layer that most models with experts are made of: attention, and experts in place of a
// feed-forward network, each behind a norm, added to the stream.
//
// The functions have the types of model_family, so that a family names them or adds to them.

#include "engine/model/attention_layer.h"
#include "engine/model/experts_layer.h"
#include "engine/model/model_facts_reader.h"

typedef struct sparse_layer {
    attention_layer attention;
    experts_layer experts;
    float *attention_norm;    // [width]
    float *feed_forward_norm; // [width]
} sparse_layer;

// attn_norm, and the matrices of both parts. The norm before the experts has other names in other
// families, which list it.
void sparse_list_tensors(const model_facts *facts, size_t index, void *layer, tensor_specs *list);

void sparse_list_scratch(const model_facts *facts, size_t index, model_scratch *list);

// With silu in the experts.
KVERN_CHECK kvern_status sparse_run_silu(const void *layer, size_t index, const forward_pass *pass,
                                         engine_error *error);
// With what gpt-oss has there.
KVERN_CHECK kvern_status sparse_run_swiglu_oai(const void *layer, size_t index,
                                               const forward_pass *pass, engine_error *error);

// Facts of such a model: heads, experts, the inner width of layers without experts, one rope.
KVERN_CHECK kvern_status sparse_read_facts(facts_reader *reader, model_facts *facts);

#endif
