// SPDX-License-Identifier: MIT
// Loading a model, and what it can be asked.

#include "engine/model/model.h"

#include "engine/model/model_internal.h"

#include <kvern/math.h>
#include <math.h>
#include <stdlib.h>

#define TWO_PI 6.283185307179586

// The divisor of each frequency of MODEL_ROPE_LLAMA3, in double; the frequencies are those that
// engine_rope_create makes.
static float llama3_factor(const model_rope *rope, size_t pair)
{
    const model_llama3 *how = &rope->llama3;
    const double frequency = kvern_pow(rope->base, -(float)(2 * pair) / (float)rope->dim);
    const double turns = how->original * frequency / TWO_PI; // of the pair in the old context
    if (turns > how->high) {
        return 1;
    }
    if (turns < how->low) {
        return how->factor;
    }
    const double smooth = (turns - how->low) / ((double)how->high - how->low);
    return (float)(1 / ((1 - smooth) / how->factor + smooth));
}

static kvern_status make_factors(model *m, engine_error *error)
{
    const model_rope *rope = &m->facts.rope[0];
    const size_t pairs = rope->dim / 2;
    if (rope->scaling != MODEL_ROPE_LLAMA3 || rope->llama3.factor == 0) {
        return KVERN_OK;
    }
    m->made_factors = malloc((pairs ? pairs : 1) * sizeof *m->made_factors);
    if (!m->made_factors) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for rotary frequencies");
    }
    for (size_t i = 0; i < pairs; i++) {
        m->made_factors[i] = llama3_factor(rope, i);
    }
    return KVERN_OK;
}

// A scaled frequency of each pair, which the first rope has and no other.
static kvern_status check_factors(const model *m, engine_error *error)
{
    const float *factors = m->parts.rope_factors;
    for (size_t i = 0; factors && i < m->facts.rope[0].dim / 2; i++) {
        if (!(factors[i] > 0) || isinf(factors[i])) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "the tensor rope_freqs.weight must hold numbers above 0");
        }
    }
    return KVERN_OK;
}

static kvern_status create_ropes(model *m, engine_error *error)
{
    kvern_status status = check_factors(m, error);
    if (status == KVERN_OK) {
        status = make_factors(m, error);
    }
    const float *factors = m->made_factors ? m->made_factors : m->parts.rope_factors;
    for (size_t i = 0; i < m->facts.ropes && status == KVERN_OK; i++) {
        const model_rope *rope = &m->facts.rope[i];
        bool scaled = rope->scaling == MODEL_ROPE_LLAMA3;
        status = engine_rope_create(&m->ropes[i], m->facts.family->rope_style, rope->base,
                                    rope->dim, rope->factor, scaled ? factors : NULL);
        if (status != KVERN_OK) {
            return engine_fail(error, status, "no memory for rotary frequencies");
        }
    }
    return status;
}

// Layers of a failed load are given back with the model.
static kvern_status load_parts(model *m, model_loader *loader)
{
    const size_t count = m->facts.layers;
    m->parts.layers = calloc(count, m->facts.family->layer_bytes);
    if (!m->parts.layers) {
        return engine_fail(loader->error, KVERN_ERR_MEMORY, "no memory for %zu layers", count);
    }
    kvern_status status = KVERN_OK;
    for (long i = -1; i < (long)count && status == KVERN_OK; i++) {
        status = model_load_tensors(loader, &m->parts, i);
    }
    return status;
}

static kvern_status load_tensors(model *m, model_progress progress, void *user, engine_error *error)
{
    model_loader loader = {.source = model_source_weights(m->source),
                           .facts = &m->facts,
                           .executor = &m->executor,
                           .features = m->features,
                           .progress = progress,
                           .user = user,
                           .error = error};
    kvern_status status = linear_arena_create(m->facts.packed_bytes, &m->arena, error);
    if (status != KVERN_OK) {
        return status;
    }
    loader.arena = m->arena;
    status = load_parts(m, &loader);
    if (status == KVERN_OK && m->facts.tied_output) {
        m->parts.output = m->parts.embedding;
    }
    m->formats = loader.formats;
    m->most_cols = loader.most_cols;
    return status == KVERN_OK ? create_ropes(m, error) : status;
}

static kvern_status plan_layers(model *m, engine_error *error)
{
    m->plans = malloc(m->facts.layers * sizeof *m->plans);
    if (!m->plans) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu layers", m->facts.layers);
    }
    for (size_t i = 0; i < m->facts.layers; i++) {
        m->plans[i] = m->facts.family->plan_layer(&m->facts.layer[i]);
    }
    return KVERN_OK;
}

// A file without any tokenizer key is a model for programs that bring token ids.
static kvern_status load_tokenizer(model *m, const char *pre, engine_error *error)
{
    const gguf_file *file = model_source_gguf(m->source);
    if (!file || !gguf_find(file, "tokenizer.ggml.model")) {
        return KVERN_OK;
    }
    return tokenizer_create(file, pre, &m->tokenizer, error);
}

// Everything but the source, which a failed load gives back to the caller.
static void release(model *m)
{
    if (m->facts.family) {
        model_unload_tensors(&m->facts, &m->parts);
    }
    free(m->parts.layers);
    free(m->plans);
    free(m->made_factors);
    for (size_t i = 0; i < MODEL_MAX_ROPES; i++) {
        engine_rope_destroy(&m->ropes[i]);
    }
    linear_arena_destroy(m->arena);
    tokenizer_destroy(m->tokenizer);
    free(m);
}

kvern_status model_load(model_source *source, const char *pre, kvern_context *context,
                        model_progress progress, void *user, model **out, engine_error *error)
{
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a model");
    }
    m->source = source;
    m->context = context;
    m->executor = kvern_context_executor(context);
    m->features = kvern_context_cpu_features(context);
    m->ops = engine_ops_select(m->features);
    kvern_status status = model_read_facts(source, &m->facts, error);
    if (status == KVERN_OK) {
        status = load_tokenizer(m, pre, error);
    }
    if (status == KVERN_OK) {
        status = plan_layers(m, error);
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
    model_source *source;
    *out = NULL;
    kvern_status status = model_source_open(path, &source, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = model_load(source, NULL, context, progress, user, out, error);
    if (status != KVERN_OK) {
        model_source_close(source);
    }
    return status;
}

void model_close(model *m)
{
    if (!m) {
        return;
    }
    model_source *source = m->source;
    release(m);
    model_source_close(source);
}

const model_facts *model_get_facts(const model *m)
{
    return &m->facts;
}

const gguf_file *model_file(const model *m)
{
    return model_source_gguf(m->source);
}

void model_add_end(model *m, int32_t token)
{
    tokenizer_add_end(m->tokenizer, token);
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
    return m->facts.packed_bytes;
}
