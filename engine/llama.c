// SPDX-License-Identifier: MIT
#include "engine/llama.h"

#include <stdlib.h>

typedef struct llama_layer {
    float *attention_norm;    // [width]
    linear q;                 // [heads * head_dim, width], rows permuted for interleaved pairs
    linear k;                 // [kv_heads * head_dim, width], likewise
    linear v;                 // [kv_heads * value_dim, width]
    linear output;            // [width, heads * value_dim]
    float *feed_forward_norm; // [width]
    linear gate;              // [feed_forward, width]
    linear up;                // [feed_forward, width]
    linear down;              // [width, feed_forward]
} llama_layer;

typedef struct llama_layers {
    size_t count;
    llama_layer layer[];
} llama_layers;

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
    size_t width = facts->width;
    size_t inner = facts->feed_forward;
    size_t key_width = facts->kv_heads * facts->head_dim;
    size_t value_width = facts->kv_heads * facts->value_dim;
    const struct {
        const char *name;
        size_t rows, cols;
        linear *matrix;
    } matrices[] = {
        {"attn_q.weight", facts->heads * facts->head_dim, width, &layer->q},
        {"attn_k.weight", key_width, width, &layer->k},
        {"attn_v.weight", value_width, width, &layer->v},
        {"attn_output.weight", width, facts->heads * facts->value_dim, &layer->output},
        {"ffn_gate.weight", inner, width, &layer->gate},
        {"ffn_up.weight", inner, width, &layer->up},
        {"ffn_down.weight", width, inner, &layer->down},
    };
    model_tensor_name name;
    kvern_status status =
        model_tensors_vector(tensors, model_layer_tensor(name, index, "attn_norm.weight"), width,
                             &layer->attention_norm);
    if (status == KVERN_OK) {
        status = model_tensors_vector(tensors, model_layer_tensor(name, index, "ffn_norm.weight"),
                                      width, &layer->feed_forward_norm);
    }
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0] && status == KVERN_OK; i++) {
        status = model_tensors_matrix(tensors, model_layer_tensor(name, index, matrices[i].name),
                                      matrices[i].rows, matrices[i].cols, matrices[i].matrix);
    }
    return status;
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

static kvern_status attention(const llama_layer *layer, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    model_workspace *w = pass->workspace;
    const linear *readers[] = {&layer->q, &layer->k, &layer->v};
    forward_norm_input(pass, layer->attention_norm, readers, 3);
    const linear_job projections[] = {
        forward_product(pass, &layer->q, w->q, false),
        forward_product(pass, &layer->k, w->k, false),
        forward_product(pass, &layer->v, w->v, false),
    };
    kvern_status status = forward_apply(pass, projections, 3, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_rotate(pass);
    status = forward_attend(pass, index, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_plain_input(pass, w->mixed, &layer->output);
    const linear_job output = forward_product(pass, &layer->output, w->x, true);
    return forward_apply(pass, &output, 1, error);
}

static kvern_status feed_forward(const llama_layer *layer, const forward_pass *pass,
                                 engine_error *error)
{
    model_workspace *w = pass->workspace;
    const linear *readers[] = {&layer->gate, &layer->up};
    forward_norm_input(pass, layer->feed_forward_norm, readers, 2);
    const linear_job projections[] = {
        forward_product(pass, &layer->gate, w->gate, false),
        forward_product(pass, &layer->up, w->up, false),
    };
    kvern_status status = forward_apply(pass, projections, 2, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_swiglu_input(pass, &layer->down);
    const linear_job down = forward_product(pass, &layer->down, w->x, true);
    return forward_apply(pass, &down, 1, error);
}

static kvern_status llama_run(const void *object, const forward_pass *pass, engine_error *error)
{
    const llama_layers *layers = object;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < layers->count && status == KVERN_OK; i++) {
        status = attention(&layers->layer[i], i, pass, error);
        if (status == KVERN_OK) {
            status = feed_forward(&layers->layer[i], pass, error);
        }
    }
    return status;
}

const model_family llama_family = {
    .architecture = "llama", .load = llama_load, .unload = llama_unload, .run = llama_run};
