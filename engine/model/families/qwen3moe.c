// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen3moe.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/sparse_layer.h"

static const key_row KEYS[] = {
    {"expert_count", .rule = KEY_USED},
    {"expert_used_count", .rule = KEY_USED},
    {"expert_feed_forward_length", .rule = KEY_USED},
    {"expert_weights_norm", .rule = KEY_USED},
    {"expert_weights_scale", .rule = KEY_USED},
    {"expert_gating_func", .rule = KEY_USED},
};
static const key_table qwen3moe_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const hf_tensor_name HF_TENSORS[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    HF_EXPERTS_NAMES,
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"num_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_local_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_experts_per_tok", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"moe_intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"},
    {"norm_topk_prob", .rule = KEY_USED, .canonical = "expert_weights_norm"},
    {"decoder_sparse_step", .rule = KEY_USED, .canonical = "interleave_moe_layer_step"},
    {"mlp_only_layers", .rule = KEY_USED, .canonical = "dense_layers"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"use_sliding_window", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO},
    {"sliding_window", .rule = KEY_WITHOUT_EFFECT, .why = "use_sliding_window must be false"},
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"router_aux_loss_coef", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
};
static const key_table qwen3moe_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                           .open = false};
static const hf_names qwen3moe_hf = {
    .model_type = "qwen3_moe",
    .architecture = "qwen3moe",
    .tensors = HF_TENSORS,
    .keys = {&qwen3moe_hf_keys, &hf_common_keys},
};

// GGUF files do not say that weights are normalized, which they are in all of them; a config.json
// that does not say it means that they are not.
static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    facts->experts.normalized = !reader->source->format->hf_names;
    return sparse_read_facts(reader, facts);
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    sparse_layer *layer = object;
    sparse_list_tensors(facts, index, layer, list);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
    attention_list_norms(&layer->attention, &facts->layer[index], list);
}

const model_family qwen3moe_family = {
    .architecture = "qwen3moe",
    .rope_style = ENGINE_ROPE_HALVES,
    .keys = &qwen3moe_keys,
    .hf = &qwen3moe_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(sparse_layer),
    .list_tensors = list_tensors,
    .list_scratch = sparse_list_scratch,
    .run_layer = sparse_run_silu,
};
