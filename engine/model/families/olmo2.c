// SPDX-License-Identifier: MIT
#include "engine/model/families/olmo2.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

static const hf_tensor_name HF_TENSORS[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table olmo2_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                        .open = false};
static const hf_names olmo2_hf = {
    .model_type = "olmo2",
    .architecture = "olmo2",
    .tensors = HF_TENSORS,
    .keys = {&olmo2_hf_keys, &hf_common_keys},
};

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    const model_layer_facts *sizes = &facts->layer[index];
    decoder_list_post_norms(layer, facts->width, list);
    attention_list_tensors(&layer->attention, sizes, facts->width, list);
    attention_list_whole_norms(&layer->attention, sizes, list);
    feed_forward_list_tensors(&layer->feed_forward, sizes, facts->width, list);
}

const model_family olmo2_family = {
    .architecture = "olmo2",
    .rope_style = ENGINE_ROPE_HALVES,
    .rope_base = 10000,
    .hf = &olmo2_hf,
    .read_facts = facts_read_decoder,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_post_scratch,
    .run_layer = decoder_run_silu,
};
