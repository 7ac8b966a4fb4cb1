// SPDX-License-Identifier: MIT
// Loading a model, and what it can be asked.

#include "engine/model/model.h"

#include "engine/model/model_internal.h"

#include <math.h>
#include <stdlib.h>

// Divisors that the file has for the first rope.
static kvern_status check_divisors(const model *m, engine_error *error)
{
    const model_rope *rope = &m->facts.rope[0];
    const float *divisors = m->parts.rope_divisors;
    for (size_t i = 0; divisors && i < rope->dim / 2; i++) {
        if (!(divisors[i] > 0) || isinf(divisors[i])) {
            return engine_fail(error, KVERN_ERR_FORMAT, "the tensor %s must hold numbers above 0",
                               rope->tensor);
        }
    }
    return KVERN_OK;
}

static kvern_status create_ropes(model *m, engine_error *error)
{
    kvern_status status = check_divisors(m, error);
    for (size_t i = 0; i < m->facts.ropes && status == KVERN_OK; i++) {
        const model_rope *rope = &m->facts.rope[i];
        const float *divisors = rope->tensor ? m->parts.rope_divisors : rope->divisor;
        m->ropes[i] =
            (engine_rope){.style = rope->halves ? ENGINE_ROPE_HALVES : m->facts.family->rope_style,
                          .dim = rope->dim,
                          .scale = rope->factor,
                          .magnitude = rope->magnitude};
        status = engine_rope_create(&m->ropes[i], rope->base, rope->divided ? divisors : NULL);
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
        if (status == KVERN_OK && i >= 0 && m->facts.family->finish_layer) {
            status =
                m->facts.family->finish_layer(&m->facts, model_layer(m, (size_t)i), loader->error);
        }
    }
    return status;
}

static kvern_status load_tensors(model *m, model_progress progress, void *user, engine_error *error)
{
    model_loader loader = {.source = model_source_weights(m->source),
                           .facts = &m->facts,
                           .executor = &m->executor,
                           .features = m->features,
                           .precise = model_source_is_precise(m->source),
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
        m->plans[i] = m->facts.family->plan_layer(&m->facts, i);
    }
    return KVERN_OK;
}

// Tokens that the embedding has no row for can be in a tokenizer.json, as long as no ordinary text
// has them: a model of texts whose tokens for images were left out.
static kvern_status check_tokens(const model *m, engine_error *error)
{
    const tokenizer *t = m->tokenizer;
    for (size_t id = m->facts.vocabulary; id < tokenizer_size(t); id++) {
        if (!tokenizer_is_special(t, (int32_t)id) || tokenizer_is_end(t, (int32_t)id) ||
            (int32_t)id == tokenizer_bos(t)) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "the tokenizer has the token %zu, but the embedding has %zu rows",
                               id, m->facts.vocabulary);
        }
    }
    return KVERN_OK;
}

static kvern_status copy_chat_template(model *m, const model_texts *texts, engine_error *error)
{
    text_view text;
    m->has_chat_template = model_texts_chat_template(texts, &text);
    const bool copied = !m->has_chat_template || text.size == 0 ||
                        text_buffer_append(&m->chat_template, text.data, text.size) == KVERN_OK;
    return copied ? KVERN_OK
                  : engine_fail(error, KVERN_ERR_MEMORY, "no memory for a chat template");
}

// A file without any tokenizer key is a model for programs that bring token ids.
static kvern_status load_tokenizer(model *m, const char *pre, engine_error *error)
{
    model_texts texts;
    kvern_status status = model_texts_open(m->source, &texts, error);
    if (status == KVERN_OK && model_texts_have_tokenizer(&texts)) {
        status = model_texts_tokenizer(&texts, pre, &m->tokenizer, error);
        status = status == KVERN_OK ? check_tokens(m, error) : status;
        status = status == KVERN_OK ? copy_chat_template(m, &texts, error) : status;
    }
    model_texts_free(&texts);
    return status;
}

// Everything but the source, which a failed load gives back to the caller.
static void release(model *m)
{
    if (m->facts.family) {
        model_unload_tensors(&m->facts, &m->parts);
    }
    free(m->parts.layers);
    free(m->plans);
    for (size_t i = 0; i < MODEL_MAX_ROPES; i++) {
        engine_rope_destroy(&m->ropes[i]);
    }
    linear_arena_destroy(m->arena);
    tokenizer_destroy(m->tokenizer);
    text_buffer_free(&m->chat_template);
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

bool model_chat_template(const model *m, text_view *out)
{
    *out = (text_view){m->chat_template.data ? m->chat_template.data : "", m->chat_template.size};
    return m->has_chat_template;
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
