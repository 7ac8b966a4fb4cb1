// SPDX-License-Identifier: MIT
#include "engine/model/families/gemma3.h"

#include "engine/model/block.h"

#include <kvern/math.h>
#include <math.h>
#include <stdlib.h>

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

// The file stores 1 + weight for every norm, which is what RMSNorm multiplies with.
typedef struct gemma3_layer {
    block block;
    float *attention_norm;         // [width]
    float *query_norm;             // [head_dim]
    float *key_norm;               // [head_dim]
    float *post_attention_norm;    // [width]
    float *feed_forward_norm;      // [width]
    float *post_feed_forward_norm; // [width]
} gemma3_layer;

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

static void set_windowed(model_facts *facts, size_t layer)
{
    facts->window_layers[layer / 64] |= UINT64_C(1) << layer % 64;
}

// The list of a file says of every layer whether it has the window.
static kvern_status read_window_list(const facts_reader *reader, const config_value *list,
                                     model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        config_value windowed = config_element(list, i);
        right = windowed.kind == CONFIG_FLAG;
        if (windowed.flag) {
            set_windowed(facts, i);
        }
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a number, or a list of %zu booleans", reader->key,
                               facts->layers);
}

static kvern_status read_window_layers(facts_reader *reader, model_facts *facts)
{
    static const char key[] = "attention.sliding_window_pattern";
    size_t full_every = GEMMA3_FULL_EVERY;
    config_value value = facts_find(reader, key);
    if (value.kind == CONFIG_LIST) {
        return read_window_list(reader, &value, facts);
    }
    kvern_status status = facts_read_size(reader, key, FACTS_MAX_COUNT, &full_every);
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        if ((i + 1) % full_every != 0) {
            set_windowed(facts, i);
        }
    }
    return status;
}

static kvern_status read_window(facts_reader *reader, model_facts *facts)
{
    if (facts_find(reader, "attention.sliding_window").kind == CONFIG_ABSENT) {
        return KVERN_OK;
    }
    kvern_status status =
        facts_read_size(reader, "attention.sliding_window", FACTS_MAX_COUNT, &facts->window);
    if (status == KVERN_OK) {
        status = read_window_layers(reader, facts);
    }
    facts->window_rope_base = GEMMA3_WINDOW_ROPE_BASE;
    return status == KVERN_OK
               ? facts_read_positive(reader, "rope.freq_base_swa", &facts->window_rope_base)
               : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    facts->embedding_scale = embedding_scale(facts->width);
    if (facts->layers == GEMMA3_27B_LAYERS) {
        facts->attention_scale = 1 / sqrtf((float)facts->width / (float)facts->heads);
    }
    kvern_status status = facts_require(reader, "attention.key_length_swa", facts->head_dim);
    if (status == KVERN_OK) {
        status = facts_require(reader, "attention.value_length_swa", facts->value_dim);
    }
    if (status == KVERN_OK) {
        status = facts_require(reader, "rope.dimension_count_swa", facts->rope_dim);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "attention.scale", &facts->attention_scale);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "attn_logit_softcapping", &facts->attention_softcap);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "final_logit_softcapping", &facts->logit_softcap);
    }
    return status == KVERN_OK ? read_window(reader, facts) : status;
}

// --- Weights

static void unload_layer(void *object)
{
    gemma3_layer *layer = object;
    free(layer->attention_norm);
    free(layer->query_norm);
    free(layer->key_norm);
    free(layer->post_attention_norm);
    free(layer->feed_forward_norm);
    free(layer->post_feed_forward_norm);
}

static kvern_status load_layer(model_tensors *tensors, const model_facts *facts, size_t index,
                               void *object)
{
    gemma3_layer *layer = object;
    const model_layer_vector norms[] = {
        {"attn_norm.weight", facts->width, &layer->attention_norm},
        {"attn_q_norm.weight", facts->head_dim, &layer->query_norm},
        {"attn_k_norm.weight", facts->head_dim, &layer->key_norm},
        {"post_attention_norm.weight", facts->width, &layer->post_attention_norm},
        {"ffn_norm.weight", facts->width, &layer->feed_forward_norm},
        {"post_ffw_norm.weight", facts->width, &layer->post_feed_forward_norm},
    };
    kvern_status status =
        model_tensors_layer_vectors(tensors, index, norms, sizeof norms / sizeof norms[0]);
    return status == KVERN_OK ? block_load(tensors, facts, index, &layer->block) : status;
}

// --- Forward

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const gemma3_layer *layer = object;
    float *branch = pass->workspace->branch;
    kvern_status status = block_project(&layer->block, pass, layer->attention_norm, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_norm_heads(pass, layer->query_norm, layer->key_norm);
    forward_rotate(pass, index);
    status = block_attend(&layer->block, pass, index, branch, false, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_add_norm(pass, branch, layer->post_attention_norm);
    status = block_feed_forward(&layer->block, pass, layer->feed_forward_norm, kvern_gelu_array,
                                branch, false, error);
    if (status == KVERN_OK) {
        forward_add_norm(pass, branch, layer->post_feed_forward_norm);
    }
    return status;
}

const model_family gemma3_family = {
    .architecture = "gemma3",
    .rope_style = ENGINE_ROPE_HALVES,
    .keys = &gemma3_keys,
    .read_facts = read_facts,
    .layer_bytes = sizeof(gemma3_layer),
    .load_layer = load_layer,
    .unload_layer = unload_layer,
    .run_layer = run_layer,
};
