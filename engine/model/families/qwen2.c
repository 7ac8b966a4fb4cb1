// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen2.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

static const key_row HF_KEYS[] = {
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"use_sliding_window", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO},
    {"sliding_window", .rule = KEY_WITHOUT_EFFECT, .why = "use_sliding_window must be false"},
    {"use_mrope", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO, .why = "positions have one part"},
};
const key_table qwen_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0], .open = false};

static const hf_names qwen2_hf = {
    .model_type = "qwen2",
    .architecture = "qwen2",
    .keys = {&qwen_hf_keys, &hf_common_keys},
};

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    decoder_list_tensors(facts, index, layer, list);
    attention_list_input_biases(&layer->attention, &facts->layer[index], list);
}

const model_family qwen2_family = {
    .architecture = "qwen2",
    .rope_style = ENGINE_ROPE_HALVES,
    .hf = &qwen2_hf,
    .read_facts = facts_read_decoder,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_scratch,
    .run_layer = decoder_run_silu,
};
