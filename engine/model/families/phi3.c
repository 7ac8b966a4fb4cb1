// SPDX-License-Identifier: MIT
#include "engine/model/families/phi3.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

static const key_row KEYS[] = {
    {"attention.sliding_window", .rule = KEY_USED, .why = "0: none"},
};
static const key_table phi3_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const hf_tensor_name HF_TENSORS[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"ffn_up.weight", "mlp.gate_up_proj.weight"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"original_max_position_embeddings", .rule = KEY_USED,
     .canonical = "rope.scaling.original_context_length"},
    {"partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"},
    {"rope_parameters.partial_rotary_factor", .rule = KEY_USED, .canonical = "rope.dimension_part"},
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"auto_map*", .rule = KEY_WITHOUT_EFFECT, .why = "model_type says what is computed"},
    {"embd_pdrop", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"resid_pdrop", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
};
static const key_table phi3_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                       .open = false};
static const hf_names phi3_hf = {
    .model_type = "phi3",
    .architecture = "phi3",
    .tensors = HF_TENSORS,
    .keys = {&phi3_hf_keys, &hf_common_keys},
};

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_decoder(reader, facts);
    return status == KVERN_OK ? facts_read_common_window(reader, facts) : status;
}

const model_family phi3_family = {
    .architecture = "phi3",
    .rope_style = ENGINE_ROPE_HALVES,
    .rope_base = 10000,
    .keys = &phi3_keys,
    .hf = &phi3_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = decoder_list_fused_tensors,
    .list_scratch = decoder_list_scratch,
    .run_layer = decoder_run_silu,
};
