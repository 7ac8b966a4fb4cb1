// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN_HYBRID_H
#define KVERN_ENGINE_QWEN_HYBRID_H

// What Qwen3-Next and Qwen 3.5 call and say alike: rows for the tables of their families.

#include "engine/model/model_facts_reader.h"
#include "engine/safetensors/hf_names.h"

// clang-format off
#define QWEN_HYBRID_KEYS \
    {"ssm.conv_kernel", .rule = KEY_USED}, \
    {"ssm.state_size", .rule = KEY_USED, .why = "a key head"}, \
    {"ssm.group_count", .rule = KEY_USED, .why = "key heads"}, \
    {"ssm.time_step_rank", .rule = KEY_USED, .why = "value heads"}, \
    {"ssm.inner_size", .rule = KEY_USED, .why = "all value heads"}, \
    {"full_attention_interval", .rule = KEY_USED}

#define QWEN_EXPERTS_KEYS \
    {"expert_count", .rule = KEY_USED}, \
    {"expert_used_count", .rule = KEY_USED}, \
    {"expert_feed_forward_length", .rule = KEY_USED}, \
    {"expert_shared_feed_forward_length", .rule = KEY_USED}, \
    {"expert_weights_norm", .rule = KEY_USED}, \
    {"expert_weights_scale", .rule = KEY_USED}, \
    {"expert_gating_func", .rule = KEY_USED}

#define QWEN_HYBRID_HF_KEYS \
    {"linear_conv_kernel_dim", .rule = KEY_USED, .canonical = "ssm.conv_kernel"}, \
    {"linear_key_head_dim", .rule = KEY_USED, .canonical = "ssm.state_size"}, \
    {"linear_num_key_heads", .rule = KEY_USED, .canonical = "ssm.group_count"}, \
    {"linear_num_value_heads", .rule = KEY_USED, .canonical = "ssm.time_step_rank"}, \
    {"linear_value_head_dim", .rule = KEY_USED, .canonical = "ssm.value_dim"}, \
    {"full_attention_interval", .rule = KEY_USED, .canonical = "full_attention_interval"}, \
    {"layer_types", .rule = KEY_USED, .canonical = "layer_kinds"}, \
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"}, \
    {"attn_output_gate", .rule = KEY_NEUTRAL, .neutral = KEY_TRUE}, \
    {"use_sliding_window", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO}, \
    {"mamba_ssm_dtype", .rule = KEY_WITHOUT_EFFECT, .why = "states are float32"}

#define QWEN_EXPERTS_HF_KEYS \
    {"num_experts", .rule = KEY_USED, .canonical = "expert_count"}, \
    {"num_experts_per_tok", .rule = KEY_USED, .canonical = "expert_used_count"}, \
    {"moe_intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"}, \
    {"shared_expert_intermediate_size", .rule = KEY_USED, \
     .canonical = "expert_shared_feed_forward_length"}, \
    {"norm_topk_prob", .rule = KEY_USED, .canonical = "expert_weights_norm"}, \
    {"decoder_sparse_step", .rule = KEY_USED, .canonical = "interleave_moe_layer_step"}, \
    {"mlp_only_layers", .rule = KEY_USED, .canonical = "dense_layers"}, \
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = "of training"}, \
    {"router_aux_loss_coef", .rule = KEY_WITHOUT_EFFECT, .why = "of training"}

#define QWEN_HYBRID_NAMES \
    {"post_attention_norm.weight", "post_attention_layernorm.weight"}, \
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight"}, \
    {"ssm_a", "linear_attn.A_log"}, \
    {"ssm_dt.bias", "linear_attn.dt_bias"}, \
    {"ssm_norm.weight", "linear_attn.norm.weight"}, \
    {"ssm_out.weight", "linear_attn.out_proj.weight"}

#define QWEN_EXPERTS_NAMES \
    {"ffn_gate_inp.weight", "mlp.gate.weight"}, \
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"}, \
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"}, \
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"}, \
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"}, \
    HF_EXPERTS_NAMES
// clang-format on

// Heads, the gated delta rule, and the rope, of which a part of each head rotates.
KVERN_CHECK kvern_status qwen_hybrid_read_facts(facts_reader *reader, model_facts *facts);

#endif
