// SPDX-License-Identifier: MIT
#include "engine/model/families/glm4moe.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/experts_facts.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/sparse_layer.h"

static const hf_tensor_name HF_TENSORS[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    HF_EXPERTS_NAMES,
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"attention_bias", .rule = KEY_USED, .canonical = "attention.input_bias"},
    {"use_qk_norm", .rule = KEY_USED, .canonical = "attention.head_norms"},
    {"partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"},
    {"rope_parameters.partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"},
    {"first_k_dense_replace", .rule = KEY_USED, .canonical = "leading_dense_block_count"},
    {"n_routed_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_local_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_experts_per_tok", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"n_shared_experts", .rule = KEY_USED, .canonical = "expert_shared_count"},
    {"moe_intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"},
    {"n_group", .rule = KEY_USED, .canonical = "expert_group_count"},
    {"topk_group", .rule = KEY_USED, .canonical = "expert_group_used_count"},
    {"norm_topk_prob", .rule = KEY_USED, .canonical = "expert_weights_norm"},
    {"routed_scaling_factor", .rule = KEY_USED, .canonical = "expert_weights_scale"},
    {"scoring_func", .rule = KEY_NEUTRAL, .text = "sigmoid"},
    {"topk_method", .rule = KEY_NEUTRAL, .text = "noaux_tc"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"num_nextn_predict_layers", .rule = KEY_WITHOUT_EFFECT, .why = "of layers that only guess"},
    {"num_mtp_layers", .rule = KEY_WITHOUT_EFFECT, .why = "of layers that only guess"},
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
};
static const key_table glm4_moe_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                           .open = false};
static const hf_names glm4_moe_hf = {
    .model_type = "glm4_moe",
    .architecture = "glm4_moe",
    .tensors = HF_TENSORS,
    .keys = {&glm4_moe_hf_keys, &hf_common_keys},
};

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = facts_read_flag(reader, "attention.input_bias", &facts->input_biases);
    }
    if (status == KVERN_OK) {
        status = facts_read_flag(reader, "attention.head_norms", &facts->head_norms);
    }
    if (status == KVERN_OK) {
        status = facts_read_corrected_experts(reader, facts);
    }
    if (status == KVERN_OK) {
        status = facts_check_stated(reader, "rope.dimension_part");
    }
    return status == KVERN_OK ? facts_read_rope(reader, facts) : status;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    sparse_layer *layer = object;
    sparse_list_tensors(facts, index, layer, list);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
    if (facts->input_biases) {
        attention_list_input_biases(&layer->attention, &facts->layer[index], list);
    }
    if (facts->head_norms) {
        attention_list_norms(&layer->attention, &facts->layer[index], list);
    }
    if (facts->layer[index].experts) {
        tensor_spec_vector(list, "exp_probs_b.bias", facts->experts.count,
                           &layer->experts.correction);
    }
}

const model_family glm4_moe_family = {
    .architecture = "glm4_moe",
    .rope_style = ENGINE_ROPE_HALVES,
    .hf = &glm4_moe_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(sparse_layer),
    .list_tensors = list_tensors,
    .list_scratch = sparse_list_scratch,
    .run_layer = sparse_run_silu,
};
