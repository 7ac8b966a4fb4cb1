// SPDX-License-Identifier: MIT
#include "engine/model/families/gemma2.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/gemma_facts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/window_facts.h"

#define GEMMA2_FULL_EVERY 2
// See gemma_read_attention_scale.
#define GEMMA2_27B_LAYERS 46

static const key_row KEYS[] = {
    {"attention.scale", .rule = KEY_USED},
    {"attention.sliding_window", .rule = KEY_USED},
    {"attention.sliding_window_pattern", .rule = KEY_USED, .why = "which layers have the window"},
    {"attn_logit_softcapping", .rule = KEY_USED},
    {"final_logit_softcapping", .rule = KEY_USED},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
};
static const key_table gemma2_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const key_row HF_KEYS[] = {
    {"query_pre_attn_scalar", .rule = KEY_USED, .canonical = "attention.query_scalar"},
    {"attn_logit_softcapping", .rule = KEY_USED, .canonical = "attn_logit_softcapping"},
    {"final_logit_softcapping", .rule = KEY_USED, .canonical = "final_logit_softcapping"},
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"sliding_window_size", .rule = KEY_WITHOUT_EFFECT, .why = "sliding_window counts"},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
    // What was written before hidden_activation, which overrides it.
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
};
static const key_table gemma2_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names gemma2_hf = {
    .model_type = "gemma2",
    .architecture = "gemma2",
    .tensors = gemma_hf_tensors,
    .keys = {&gemma2_hf_keys, &hf_common_keys},
};

// No default: what is left out means other caps to one reader than to another.
static kvern_status read_softcaps(facts_reader *reader, model_facts *facts)
{
    kvern_status status =
        facts_read_positive(reader, "attn_logit_softcapping", &facts->attention_softcap);
    return status == KVERN_OK
               ? facts_read_positive(reader, "final_logit_softcapping", &facts->logit_softcap)
               : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_decoder(reader, facts);
    facts->embedding_scale = gemma_embedding_scale(facts->width);
    if (status == KVERN_OK) {
        status = gemma_read_attention_scale(reader, GEMMA2_27B_LAYERS, facts);
    }
    if (status == KVERN_OK) {
        status = read_softcaps(reader, facts);
    }
    return status == KVERN_OK ? facts_read_windows(reader, GEMMA2_FULL_EVERY, 0, facts) : status;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    decoder_list_tensors(facts, index, layer, list);
    decoder_list_post_norms(layer, facts->width, list);
}

const model_family gemma2_family = {
    .architecture = "gemma2",
    .rope_style = ENGINE_ROPE_HALVES,
    .norm_adds_one = true,
    .rope_base = 10000,
    .keys = &gemma2_keys,
    .hf = &gemma2_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_post_scratch,
    .run_layer = decoder_run_gelu,
};
