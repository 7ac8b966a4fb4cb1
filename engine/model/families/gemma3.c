// SPDX-License-Identifier: MIT
#include "engine/model/families/gemma3.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/gemma_facts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/window_facts.h"

// What holds for a file that does not say: every sixth layer is full, and window layers have the
// base of Gemma 2.
#define GEMMA3_FULL_EVERY 6
#define GEMMA3_WINDOW_ROPE_BASE 10000.0f
// See gemma_read_attention_scale.
#define GEMMA3_27B_LAYERS 62

#define WINDOW_IS_FULL "a window layer's heads are those of the full ones"

static const key_row KEYS[] = {
    {"attention.scale", .rule = KEY_USED},
    {"attention.sliding_window", .rule = KEY_USED},
    {"attention.sliding_window_pattern", .rule = KEY_USED, .why = "which layers have the window"},
    {"attention.key_length_swa", .rule = KEY_USED, .why = WINDOW_IS_FULL},
    {"attention.value_length_swa", .rule = KEY_USED, .why = WINDOW_IS_FULL},
    {"rope.dimension_count_swa", .rule = KEY_USED, .why = WINDOW_IS_FULL},
    {"rope.freq_base_swa", .rule = KEY_USED, .why = "of layers with the window"},
    {"attn_logit_softcapping", .rule = KEY_USED},
    {"final_logit_softcapping", .rule = KEY_USED},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
};
static const key_table gemma3_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const key_row HF_KEYS[] = {
    {"query_pre_attn_scalar", .rule = KEY_USED, .canonical = "attention.query_scalar"},
    {"attn_logit_softcapping", .rule = KEY_USED, .canonical = "attn_logit_softcapping"},
    {"final_logit_softcapping", .rule = KEY_USED, .canonical = "final_logit_softcapping"},
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"sliding_window_pattern", .rule = KEY_USED, .canonical = "attention.full_every"},
    {"_sliding_window_pattern", .rule = KEY_USED, .canonical = "attention.full_every"},
    {"rope_local_base_freq", .rule = KEY_USED, .canonical = "rope.freq_base_swa"},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
};
static const key_table gemma3_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names gemma3_hf = {
    .model_type = "gemma3_text",
    .architecture = "gemma3",
    .tensors = gemma_hf_tensors,
    .keys = {&gemma3_hf_keys, &hf_common_keys},
};

// The ropes of full layers and of those with the window.
enum { FULL_ROPE = 0, WINDOW_ROPE = 1 };

// --- Facts

// A file without the key has no windows.
static kvern_status read_windows(facts_reader *reader, model_facts *facts)
{
    if (!reader->source->format->hf_names &&
        facts_find(reader, "attention.sliding_window").kind == CONFIG_ABSENT) {
        return KVERN_OK;
    }
    kvern_status status = facts_read_windows(reader, GEMMA3_FULL_EVERY, WINDOW_ROPE, facts);
    model_rope *rope = &facts->rope[WINDOW_ROPE];
    *rope = (model_rope){.base = GEMMA3_WINDOW_ROPE_BASE,
                         .dim = facts->rope[FULL_ROPE].dim,
                         .factor = 1,
                         .magnitude = 1};
    facts->ropes = 2;
    return status == KVERN_OK ? facts_read_positive(reader, "rope.freq_base_swa", &rope->base)
                              : status;
}

// Heads of layers with the window are those of the others.
static kvern_status check_window_heads(facts_reader *reader, const model_facts *facts)
{
    const model_layer_facts *layer = &facts->layer[0];
    kvern_status status = facts_require(reader, "attention.key_length_swa", layer->head_dim);
    if (status == KVERN_OK) {
        status = facts_require(reader, "attention.value_length_swa", layer->value_dim);
    }
    return status == KVERN_OK
               ? facts_require(reader, "rope.dimension_count_swa", facts->rope[0].dim)
               : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_decoder(reader, facts);
    facts->embedding_scale = gemma_embedding_scale(facts->width);
    if (status == KVERN_OK) {
        status = check_window_heads(reader, facts);
    }
    if (status == KVERN_OK) {
        status = gemma_read_attention_scale(reader, GEMMA3_27B_LAYERS, facts);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "attn_logit_softcapping", &facts->attention_softcap);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "final_logit_softcapping", &facts->logit_softcap);
    }
    return status == KVERN_OK ? read_windows(reader, facts) : status;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    decoder_list_tensors(facts, index, layer, list);
    decoder_list_post_norms(layer, facts->width, list);
    attention_list_norms(&layer->attention, &facts->layer[index], list);
}

const model_family gemma3_family = {
    .architecture = "gemma3",
    .rope_style = ENGINE_ROPE_HALVES,
    .norm_adds_one = true,
    .rope_base = 1000000,
    .keys = &gemma3_keys,
    .hf = &gemma3_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_post_scratch,
    .run_layer = decoder_run_gelu,
};
