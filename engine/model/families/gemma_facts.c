// SPDX-License-Identifier: MIT
#include "engine/model/families/gemma_facts.h"

#include <kvern/math.h>
#include <math.h>

const hf_tensor_name gemma_hf_tensors[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {NULL, NULL},
};

float gemma_embedding_scale(size_t width)
{
    float scale = sqrtf((float)width);
    uint16_t rounded;
    kvern_f32_to_bf16_array(0, 1, &scale, &rounded);
    kvern_bf16_to_f32_array(0, 1, &rounded, &scale);
    return scale;
}

// GGUF states the scale itself, config.json what it is the root of.
kvern_status gemma_read_attention_scale(facts_reader *reader, size_t largest_layers,
                                        model_facts *facts)
{
    float scalar = 0;
    if (reader->source->format->hf_names) {
        kvern_status status = facts_read_positive(reader, "attention.query_scalar", &scalar);
        facts->attention_scale = 1 / sqrtf(scalar);
        return status;
    }
    if (facts->layers == largest_layers) {
        facts->attention_scale = 1 / sqrtf((float)facts->width / (float)facts->heads);
    }
    return facts_read_positive(reader, "attention.scale", &facts->attention_scale);
}

// What a layer with the window is.
typedef struct window_facts {
    size_t window;
    uint32_t rope;
} window_facts;

static void set_windowed(model_layer_facts *layer, const window_facts *window)
{
    layer->kind = MODEL_LAYER_WINDOW;
    layer->window = (uint32_t)window->window;
    layer->rope = window->rope;
}

// The list of a file says of every layer whether it has the window.
static kvern_status read_window_list(const facts_reader *reader, const config_value *list,
                                     const window_facts *window, model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        config_value kind = config_element(list, i);
        bool windowed = kind.flag || text_view_is(kind.text, "sliding_attention");
        right = kind.kind == CONFIG_FLAG || windowed || text_view_is(kind.text, "full_attention");
        if (windowed) {
            set_windowed(&facts->layer[i], window);
        }
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a number, or a list of %zu kinds of layers", reader->key,
                               facts->layers);
}

kvern_status gemma_read_windows(facts_reader *reader, size_t full_every, uint32_t rope,
                                model_facts *facts)
{
    static const char key[] = "attention.sliding_window_pattern";
    window_facts window = {.rope = rope};
    kvern_status status =
        facts_read_size(reader, "attention.sliding_window", FACTS_MAX_COUNT, &window.window);
    config_value value = facts_find(reader, key);
    if (status == KVERN_OK && value.kind == CONFIG_LIST) {
        return read_window_list(reader, &value, &window, facts);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, key, FACTS_MAX_COUNT, &full_every);
    }
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        if ((i + 1) % full_every != 0) {
            set_windowed(&facts->layer[i], &window);
        }
    }
    return status;
}
