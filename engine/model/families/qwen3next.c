// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen3next.h"

#include "engine/model/experts_facts.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/families/qwen_hybrid.h"
#include "engine/model/hybrid_layer.h"

static const key_row KEYS[] = {
    QWEN_HYBRID_KEYS,
    QWEN_EXPERTS_KEYS,
};
static const key_table qwen3next_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const hf_tensor_name HF_TENSORS[] = {
    {"ssm_in.weight", "linear_attn.in_proj_qkvz.weight"},
    {"ssm_ba.weight", "linear_attn.in_proj_ba.weight"},
    QWEN_HYBRID_NAMES,
    QWEN_EXPERTS_NAMES,
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"},
    {"rope_parameters.partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"},
    QWEN_HYBRID_HF_KEYS,
    QWEN_EXPERTS_HF_KEYS,
};
static const key_table qwen3next_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                            .open = false};
static const hf_names qwen3next_hf = {
    .model_type = "qwen3_next",
    .architecture = "qwen3next",
    .tensors = HF_TENSORS,
    .keys = {&qwen3next_hf_keys, &hf_common_keys},
};

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    facts->experts.normalized = true; // in GGUF, which does not say it
    facts->experts.shared_gate = true;
    kvern_status status = facts_check_stated(reader, "expert_weights_norm");
    if (status == KVERN_OK) {
        status = qwen_hybrid_read_facts(reader, facts);
    }
    return status == KVERN_OK ? facts_read_experts(reader, facts) : status;
}

const model_family qwen3next_family = {
    .architecture = "qwen3next",
    .rope_style = ENGINE_ROPE_HALVES,
    .norm_adds_one = true,
    .keys = &qwen3next_keys,
    .hf = &qwen3next_hf,
    .read_facts = read_facts,
    .plan_layer = hybrid_plan_layer,
    .layer_bytes = sizeof(hybrid_layer),
    .list_tensors = hybrid_list_tensors,
    .finish_layer = hybrid_finish_layer,
    .list_scratch = hybrid_list_scratch,
    .run_layer = hybrid_run,
};
