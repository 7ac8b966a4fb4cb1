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
