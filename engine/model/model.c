// SPDX-License-Identifier: MIT
// Loading a model, and what it can be asked.

#include "engine/model/model.h"

#include "engine/model/model_internal.h"

#include <math.h>
#include <stdlib.h>

// Only full layers scale their positions.
static kvern_status create_ropes(model *m, const float *factors)
{
    const model_facts *facts = &m->facts;
    engine_rope_style style = m->family->rope_style;
    kvern_status status = engine_rope_create(&m->ropes.full, style, facts->rope_base,
                                             facts->rope_dim, facts->rope_factor, factors);
    if (status != KVERN_OK || facts->window == 0) {
        return status;
    }
    return engine_rope_create(&m->ropes.window, style, facts->window_rope_base, facts->rope_dim, 1,
                              NULL);
}

static kvern_status load_rope(model *m, model_tensors *tensors)
{
    const model_facts *facts = &m->facts;
    float *factors = NULL;
    if (facts->rope_scaling == MODEL_ROPE_LLAMA3) {
        kvern_status status =
            model_tensors_vector(tensors, "rope_freqs.weight", facts->rope_dim / 2, &factors);
        if (status != KVERN_OK) {
            return status;
        }
    }
    for (size_t i = 0; factors && i < facts->rope_dim / 2; i++) {
        if (!(factors[i] > 0) || isinf(factors[i])) {
            free(factors);
            return engine_fail(tensors->error, KVERN_ERR_FORMAT,
                               "the tensor rope_freqs.weight must hold numbers above 0");
        }
    }
    kvern_status status = create_ropes(m, factors);
    free(factors);
    return status == KVERN_OK
               ? KVERN_OK
               : engine_fail(tensors->error, status, "no memory for rotary frequencies");
}

// Layers of a failed load are given back with the model.
static kvern_status load_layers(model *m, model_tensors *tensors)
{
    const size_t count = m->facts.layers;
    m->layers = calloc(count, m->family->layer_bytes);
    if (!m->layers) {
        return engine_fail(tensors->error, KVERN_ERR_MEMORY, "no memory for %zu layers", count);
    }
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < count && status == KVERN_OK; i++) {
        status = m->family->load_layer(tensors, &m->facts, i, model_layer(m, i));
    }
    return status;
}

static kvern_status load_weights(model *m, model_tensors *tensors)
{
    const model_facts *facts = &m->facts;
    kvern_status status = model_tensors_matrix(tensors, "token_embd.weight", facts->vocabulary,
                                               facts->width, &m->embedding);
    if (status == KVERN_OK) {
        status = model_tensors_vector(tensors, "output_norm.weight", facts->width, &m->output_norm);
    }
    m->output = m->embedding;
    if (status == KVERN_OK && !facts->tied_output) {
        status = model_tensors_matrix(tensors, "output.weight", facts->vocabulary, facts->width,
                                      &m->output);
    }
    if (status == KVERN_OK) {
        status = load_rope(m, tensors);
    }
    if (status == KVERN_OK) {
        status = load_layers(m, tensors);
    }
    return status == KVERN_OK ? model_tensors_all_taken(tensors) : status;
}

static kvern_status load_tensors(model *m, model_progress progress, void *user, engine_error *error)
{
    model_tensors tensors = {.file = m->file,
                             .executor = &m->executor,
                             .features = m->features,
                             .progress = progress,
                             .user = user,
                             .error = error};
    kvern_status status = model_tensors_begin(&tensors);
    if (status != KVERN_OK) {
        return status;
    }
    m->arena = tensors.arena;
    status = load_weights(m, &tensors);
    m->weight_bytes = tensors.arena_bytes;
    m->formats = tensors.formats;
    model_tensors_end(&tensors);
    return status;
}

// A file without any tokenizer key is a model for programs that bring token ids.
static kvern_status load_tokenizer(model *m, engine_error *error)
{
    if (!gguf_find(m->file, "tokenizer.ggml.model")) {
        return KVERN_OK;
    }
    return tokenizer_create(m->file, &m->tokenizer, error);
}

// Everything but the file, which a failed load gives back to the caller.
static void release(model *m)
{
    for (size_t i = 0; m->layers && i < m->facts.layers; i++) {
        m->family->unload_layer(model_layer(m, i));
    }
    free(m->layers);
    free(m->output_norm);
    engine_rope_destroy(&m->ropes.full);
    engine_rope_destroy(&m->ropes.window);
    linear_arena_destroy(m->arena);
    tokenizer_destroy(m->tokenizer);
    free(m);
}

kvern_status model_load(gguf_file *file, kvern_context *context, model_progress progress,
                        void *user, model **out, engine_error *error)
{
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a model");
    }
    m->file = file;
    m->context = context;
    m->executor = kvern_context_executor(context);
    m->features = kvern_context_cpu_features(context);
    m->ops = engine_ops_select(m->features);
    kvern_status status = model_read_facts(file, &m->facts, error);
    if (status == KVERN_OK) {
        m->family = model_family_find(m->facts.architecture);
        status = load_tokenizer(m, error);
    }
    if (status == KVERN_OK) {
        status = load_tensors(m, progress, user, error);
    }
    if (status != KVERN_OK) {
        release(m);
        return status;
    }
    *out = m;
    return KVERN_OK;
}

kvern_status model_open(const char *path, kvern_context *context, model_progress progress,
                        void *user, model **out, engine_error *error)
{
    gguf_file *file;
    *out = NULL;
    kvern_status status = gguf_open(path, &file, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = model_load(file, context, progress, user, out, error);
    if (status != KVERN_OK) {
        gguf_close(file);
    }
    return status;
}

void model_close(model *m)
{
    if (!m) {
        return;
    }
    gguf_file *file = m->file;
    release(m);
    gguf_close(file);
}

const model_facts *model_get_facts(const model *m)
{
    return &m->facts;
}

const gguf_file *model_file(const model *m)
{
    return m->file;
}

const tokenizer *model_tokenizer(const model *m)
{
    return m->tokenizer;
}

kvern_context *model_context(const model *m)
{
    return m->context;
}

uint64_t model_weight_bytes(const model *m)
{
    return m->weight_bytes;
}
