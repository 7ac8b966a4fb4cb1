// SPDX-License-Identifier: MIT
#include "engine/model/families/llama.h"

#include "engine/model/block.h"

#include <kvern/math.h>
#include <stdlib.h>

typedef struct llama_layer {
    block block;              // the rows of q and k are permuted for interleaved pairs
    float *attention_norm;    // [width]
    float *feed_forward_norm; // [width]
} llama_layer;

static const key_row KEYS[] = {
    // Rows of q and k in the order of neighbours, which is what every GGUF of the family has.
    {"tensor_data_layout", .rule = KEY_NEUTRAL, .text = "Meta AI original pth"},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table llama_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static void unload_layer(void *object)
{
    llama_layer *layer = object;
    free(layer->attention_norm);
    free(layer->feed_forward_norm);
}

static kvern_status load_layer(model_tensors *tensors, const model_facts *facts, size_t index,
                               void *object)
{
    llama_layer *layer = object;
    const model_layer_vector norms[] = {
        {"attn_norm.weight", facts->width, &layer->attention_norm},
        {"ffn_norm.weight", facts->width, &layer->feed_forward_norm},
    };
    kvern_status status = model_tensors_layer_vectors(tensors, index, norms, 2);
    return status == KVERN_OK ? block_load(tensors, facts, index, &layer->block) : status;
}

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const llama_layer *layer = object;
    float *x = pass->workspace->x;
    kvern_status status = block_project(&layer->block, pass, layer->attention_norm, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_rotate(pass, index);
    status = block_attend(&layer->block, pass, index, x, true, error);
    if (status != KVERN_OK) {
        return status;
    }
    return block_feed_forward(&layer->block, pass, layer->feed_forward_norm, kvern_silu_array, x,
                              true, error);
}

const model_family llama_family = {
    .architecture = "llama",
    .rope_style = ENGINE_ROPE_PAIRS,
    .keys = &llama_keys,
    .layer_bytes = sizeof(llama_layer),
    .load_layer = load_layer,
    .unload_layer = unload_layer,
    .run_layer = run_layer,
};
