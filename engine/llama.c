// SPDX-License-Identifier: MIT
#include "engine/llama.h"

#include "engine/block.h"

#include <kvern/math.h>
#include <stdlib.h>

typedef struct llama_layer {
    block block;              // the rows of q and k are permuted for interleaved pairs
    float *attention_norm;    // [width]
    float *feed_forward_norm; // [width]
} llama_layer;

typedef struct llama_layers {
    size_t count;
    llama_layer layer[];
} llama_layers;

// Keys of the family's relatives.
static kvern_status llama_read_facts(facts_reader *reader, model_facts *facts)
{
    static const char *const relatives[] = {"attention.scale", "attention.sliding_window",
                                            "attn_logit_softcapping", "final_logit_softcapping"};
    (void)facts;
    return facts_refuse(reader, relatives, sizeof relatives / sizeof relatives[0]);
}

static void llama_unload(void *object)
{
    llama_layers *layers = object;
    if (!layers) {
        return;
    }
    for (size_t i = 0; i < layers->count; i++) {
        free(layers->layer[i].attention_norm);
        free(layers->layer[i].feed_forward_norm);
    }
    free(layers);
}

static kvern_status load_layer(model_tensors *tensors, const model_facts *facts, size_t index,
                               llama_layer *layer)
{
    const model_layer_vector norms[] = {
        {"attn_norm.weight", facts->width, &layer->attention_norm},
        {"ffn_norm.weight", facts->width, &layer->feed_forward_norm},
    };
    kvern_status status = model_tensors_layer_vectors(tensors, index, norms, 2);
    return status == KVERN_OK ? block_load(tensors, facts, index, &layer->block) : status;
}

static kvern_status llama_load(model_tensors *tensors, const model_facts *facts, void **out)
{
    llama_layers *layers = calloc(1, sizeof *layers + facts->layers * sizeof(llama_layer));
    if (!layers) {
        return engine_fail(tensors->error, KVERN_ERR_MEMORY, "no memory for %zu layers",
                           facts->layers);
    }
    layers->count = facts->layers;
    for (size_t i = 0; i < facts->layers; i++) {
        kvern_status status = load_layer(tensors, facts, i, &layers->layer[i]);
        if (status != KVERN_OK) {
            llama_unload(layers);
            return status;
        }
    }
    *out = layers;
    return KVERN_OK;
}

static kvern_status run_layer(const llama_layer *layer, size_t index, const forward_pass *pass,
                              engine_error *error)
{
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

static kvern_status llama_run(const void *object, const forward_pass *pass, engine_error *error)
{
    const llama_layers *layers = object;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < layers->count && status == KVERN_OK; i++) {
        status = run_layer(&layers->layer[i], i, pass, error);
    }
    return status;
}

const model_family llama_family = {
    .architecture = "llama",
    .rope_style = ENGINE_ROPE_PAIRS,
    .read_facts = llama_read_facts,
    .load = llama_load,
    .unload = llama_unload,
    .run = llama_run,
};
