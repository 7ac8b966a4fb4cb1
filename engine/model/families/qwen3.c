// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen3.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/families/qwen2.h"

static const hf_names qwen3_hf = {
    .model_type = "qwen3",
    .architecture = "qwen3",
    .keys = {&qwen_hf_keys, &hf_common_keys},
};

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    decoder_list_tensors(facts, index, layer, list);
    attention_list_norms(&layer->attention, &facts->layer[index], list);
}

const model_family qwen3_family = {
    .architecture = "qwen3",
    .rope_style = ENGINE_ROPE_HALVES,
    .hf = &qwen3_hf,
    .read_facts = facts_read_decoder,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_scratch,
    .run_layer = decoder_run_silu,
};
