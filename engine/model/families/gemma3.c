// SPDX-License-Identifier: MIT
#include "engine/model/families/gemma3.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

#include <kvern/math.h>
#include <math.h>

// What holds for a file that does not say: every sixth layer is full, and window layers have the
// base of Gemma 2.
#define GEMMA3_FULL_EVERY 6
#define GEMMA3_WINDOW_ROPE_BASE 10000.0f
// The 27B model, the only one with so many layers, divides by the root of width / heads instead of
// the head dim; its files do not say so.
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

static const hf_tensor_name HF_TENSORS[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"query_pre_attn_scalar", .rule = KEY_USED, .canonical = "attention.query_scalar"},
    {"attn_logit_softcapping", .rule = KEY_USED, .canonical = "attn_logit_softcapping"},
    {"final_logit_softcapping", .rule = KEY_USED, .canonical = "final_logit_softcapping"},
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"sliding_window_pattern", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"_sliding_window_pattern", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"rope_local_base_freq", .rule = KEY_USED, .canonical = "rope.freq_base_swa"},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
};
static const key_table gemma3_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names gemma3_hf = {
    .model_type = "gemma3_text",
    .architecture = "gemma3",
    .tensors = HF_TENSORS,
    .keys = {&gemma3_hf_keys, &hf_common_keys},
};

// The ropes of full layers and of those with the window.
enum { FULL_ROPE = 0, WINDOW_ROPE = 1 };

// --- Facts

// The factor of the embeddings as the model was trained with it: sqrt(width) in bf16.
static float embedding_scale(size_t width)
{
    float scale = sqrtf((float)width);
    uint16_t rounded;
    kvern_f32_to_bf16_array(0, 1, &scale, &rounded);
    kvern_bf16_to_f32_array(0, 1, &rounded, &scale);
    return scale;
}

static void set_windowed(model_facts *facts, size_t layer, size_t window)
{
    facts->layer[layer].kind = MODEL_LAYER_WINDOW;
    facts->layer[layer].window = (uint32_t)window;
    facts->layer[layer].rope = WINDOW_ROPE;
}

// The list of a file says of every layer whether it has the window.
static kvern_status read_window_list(const facts_reader *reader, const config_value *list,
                                     size_t window, model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        config_value kind = config_element(list, i);
        bool windowed = kind.flag || text_view_is(kind.text, "sliding_attention");
        right = kind.kind == CONFIG_FLAG || windowed || text_view_is(kind.text, "full_attention");
        if (windowed) {
            set_windowed(facts, i, window);
        }
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a number, or a list of %zu kinds of layers", reader->key,
                               facts->layers);
}

static kvern_status read_window_layers(facts_reader *reader, size_t window, model_facts *facts)
{
    static const char key[] = "attention.sliding_window_pattern";
    size_t full_every = GEMMA3_FULL_EVERY;
    config_value value = facts_find(reader, key);
    if (value.kind == CONFIG_LIST) {
        return read_window_list(reader, &value, window, facts);
    }
    kvern_status status = facts_read_size(reader, key, FACTS_MAX_COUNT, &full_every);
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        if ((i + 1) % full_every != 0) {
            set_windowed(facts, i, window);
        }
    }
    return status;
}

static kvern_status read_window(facts_reader *reader, model_facts *facts)
{
    size_t window = 0;
    if (facts_find(reader, "attention.sliding_window").kind == CONFIG_ABSENT) {
        return KVERN_OK;
    }
    kvern_status status =
        facts_read_size(reader, "attention.sliding_window", FACTS_MAX_COUNT, &window);
    if (status == KVERN_OK) {
        status = read_window_layers(reader, window, facts);
    }
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

static kvern_status read_sizes(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_decoder(reader, facts);
    return status == KVERN_OK ? check_window_heads(reader, facts) : status;
}

// GGUF states the scale itself, config.json what it is the root of.
static kvern_status read_scale(facts_reader *reader, model_facts *facts)
{
    float scalar = 0;
    kvern_status status = facts_read_optional(reader, "attention.query_scalar", &scalar);
    if (scalar > 0) {
        facts->attention_scale = 1 / sqrtf(scalar);
    }
    return status == KVERN_OK
               ? facts_read_positive(reader, "attention.scale", &facts->attention_scale)
               : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_sizes(reader, facts);
    facts->embedding_scale = embedding_scale(facts->width);
    if (facts->layers == GEMMA3_27B_LAYERS) {
        facts->attention_scale = 1 / sqrtf((float)facts->width / (float)facts->heads);
    }
    if (status == KVERN_OK) {
        status = read_scale(reader, facts);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "attn_logit_softcapping", &facts->attention_softcap);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "final_logit_softcapping", &facts->logit_softcap);
    }
    return status == KVERN_OK ? read_window(reader, facts) : status;
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
    .keys = &gemma3_keys,
    .hf = &gemma3_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_post_scratch,
    .run_layer = decoder_run_gelu,
};
