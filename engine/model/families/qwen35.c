// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen35.h"

#include "engine/model/experts_facts.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/families/qwen_hybrid.h"
#include "engine/model/hybrid_layer.h"

#define TEXT_POSITIONS "of texts all parts of a position are equal"
#define NO_GUESSES "no guesses at further tokens"

// clang-format off
#define QWEN35_KEYS \
    {"rope.dimension_sections", .rule = KEY_WITHOUT_EFFECT, .why = TEXT_POSITIONS}, \
    QWEN_HYBRID_KEYS

#define QWEN35_HF_KEYS \
    {"rope_parameters.partial_rotary_factor", .rule = KEY_USED, \
     .canonical = "rope.dimension_part"}, \
    {"partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"}, \
    {"rope_parameters.mrope_section", .rule = KEY_WITHOUT_EFFECT, .why = TEXT_POSITIONS}, \
    {"rope_parameters.mrope_interleaved", .rule = KEY_WITHOUT_EFFECT, .why = TEXT_POSITIONS}, \
    {"rope_parameters.type", .rule = KEY_USED, .canonical = "rope.scaling.type"}, \
    {"mtp_num_hidden_layers", .rule = KEY_WITHOUT_EFFECT, .why = NO_GUESSES}, \
    {"mtp_use_dedicated_embeddings", .rule = KEY_WITHOUT_EFFECT, .why = NO_GUESSES}, \
    QWEN_HYBRID_HF_KEYS

#define QWEN35_NAMES \
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight"}, \
    {"attn_gate.weight", "linear_attn.in_proj_z.weight"}, \
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight"}, \
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight"}, \
    QWEN_HYBRID_NAMES
// clang-format on

// --- With a feed-forward network

static const key_row KEYS[] = {QWEN35_KEYS};
static const key_table qwen35_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};
static const hf_tensor_name HF_TENSORS[] = {QWEN35_NAMES, {NULL, NULL}};
static const key_row HF_KEYS[] = {QWEN35_HF_KEYS};
static const key_table qwen35_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names qwen35_hf = {
    .model_type = "qwen3_5_text",
    .architecture = "qwen35",
    .tensors = HF_TENSORS,
    .keys = {&qwen35_hf_keys, &hf_common_keys},
};

// In GGUF value heads lie as its repetition of key heads wants them.
static kvern_status read_hybrid(facts_reader *reader, model_facts *facts)
{
    facts->delta.tiled = !reader->source->format->hf_names;
    return qwen_hybrid_read_facts(reader, facts);
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_hybrid(reader, facts);
    return status == KVERN_OK ? facts_read_feed_forward(reader, facts) : status;
}

const model_family qwen35_family = {
    .architecture = "qwen35",
    .rope_style = ENGINE_ROPE_HALVES,
    .norm_adds_one = true,
    .keys = &qwen35_keys,
    .hf = &qwen35_hf,
    .read_facts = read_facts,
    .plan_layer = hybrid_plan_layer,
    .layer_bytes = sizeof(hybrid_layer),
    .list_tensors = hybrid_list_tensors,
    .finish_layer = hybrid_finish_layer,
    .list_scratch = hybrid_list_scratch,
    .run_layer = hybrid_run,
};

// --- With experts

static const key_row MOE_KEYS[] = {QWEN35_KEYS, QWEN_EXPERTS_KEYS};
static const key_table qwen35moe_keys = {NULL, MOE_KEYS, sizeof MOE_KEYS / sizeof MOE_KEYS[0],
                                         .open = false};
static const hf_tensor_name MOE_HF_TENSORS[] = {
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj"},
    QWEN35_NAMES,
    QWEN_EXPERTS_NAMES,
    {NULL, NULL},
};
static const key_row MOE_HF_KEYS[] = {QWEN35_HF_KEYS, QWEN_EXPERTS_HF_KEYS};
static const key_table qwen35moe_hf_keys = {
    "", MOE_HF_KEYS, sizeof MOE_HF_KEYS / sizeof MOE_HF_KEYS[0], .open = false};
static const hf_names qwen35moe_hf = {
    .model_type = "qwen3_5_moe_text",
    .architecture = "qwen35moe",
    .tensors = MOE_HF_TENSORS,
    .keys = {&qwen35moe_hf_keys, &hf_common_keys},
};

// The weights of experts are normalized, and no file says otherwise.
static kvern_status read_moe_facts(facts_reader *reader, model_facts *facts)
{
    facts->experts.normalized = true;
    facts->experts.shared_gate = true;
    facts->experts.fused =
        weights_find_tensor(reader->source, "blk.0.ffn_gate_up_exps.weight") != NULL;
    kvern_status status = read_hybrid(reader, facts);
    return status == KVERN_OK ? facts_read_experts(reader, facts) : status;
}

const model_family qwen35moe_family = {
    .architecture = "qwen35moe",
    .rope_style = ENGINE_ROPE_HALVES,
    .norm_adds_one = true,
    .keys = &qwen35moe_keys,
    .hf = &qwen35moe_hf,
    .read_facts = read_moe_facts,
    .plan_layer = hybrid_plan_layer,
    .layer_bytes = sizeof(hybrid_layer),
    .list_tensors = hybrid_list_tensors,
    .finish_layer = hybrid_finish_layer,
    .list_scratch = hybrid_list_scratch,
    .run_layer = hybrid_run,
};
