// SPDX-License-Identifier: MIT
// What a GGUF file says about its model. Nothing here touches a weight.

#include "engine/model/model.h"

#include "engine/model/families/model_family.h"
#include "engine/model/model_facts_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Keys that would change what is computed, in any family, and that this engine does not compute.
static const char *const refused_keys[] = {
    "expert_count", "embedding_scale",     "residual_scale",
    "logit_scale",  "attention.clamp_kqv", "use_parallel_residual",
};

static kvern_status read_heads(facts_reader *reader, model_facts *facts)
{
    kvern_status status =
        facts_read_size(reader, "attention.head_count", FACTS_MAX_DIM, &facts->heads);
    if (status != KVERN_OK) {
        return status;
    }
    facts->kv_heads = facts->heads;
    status =
        facts_read_size(reader, "attention.head_count_kv", KVERN_MAX_KV_HEADS, &facts->kv_heads);
    if (status != KVERN_OK) {
        return status;
    }
    if (facts->heads % facts->kv_heads != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%zu query heads cannot share %zu key/value heads evenly", facts->heads,
                           facts->kv_heads);
    }
    facts->head_dim = facts->width / facts->heads; // 0 when absurd: then the key is required
    status = facts_read_size(reader, "attention.key_length", KVERN_MAX_HEAD_DIM, &facts->head_dim);
    if (status != KVERN_OK) {
        return status;
    }
    facts->value_dim = facts->head_dim;
    facts->attention_scale = 1 / sqrtf((float)facts->head_dim);
    return facts_read_size(reader, "attention.value_length", KVERN_MAX_HEAD_DIM, &facts->value_dim);
}

static bool string_is(gguf_string string, const char *text)
{
    return string.size == strlen(text) && memcmp(string.data, text, string.size) == 0;
}

static kvern_status read_rope_scaling(facts_reader *reader, model_facts *facts)
{
    gguf_string type = {"none", 4};
    gguf_get_string(facts_find(reader, "rope.scaling.type"), &type);
    bool factors = gguf_find_tensor(reader->file, "rope_freqs.weight") != NULL;
    facts->rope_factor = 1;
    if (string_is(type, "linear") && !factors) {
        facts->rope_scaling = MODEL_ROPE_LINEAR;
        facts->rope_factor = 0;
        return facts_read_positive(reader, "rope.scaling.factor", &facts->rope_factor);
    }
    if (factors && (string_is(type, "none") || string_is(type, "llama3"))) {
        facts->rope_scaling = MODEL_ROPE_LLAMA3;
        return KVERN_OK;
    }
    if (string_is(type, "none")) {
        facts->rope_scaling = MODEL_ROPE_PLAIN;
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "rope scaling \"%.*s\" %s a rope_freqs.weight tensor is not supported; "
                       "supported are none and linear without the tensor, and llama3 with it",
                       (int)(type.size < 40 ? type.size : 40), type.data,
                       factors ? "with" : "without");
}

static kvern_status read_rope(facts_reader *reader, model_facts *facts)
{
    facts->rope_base = 10000;
    kvern_status status = facts_read_positive(reader, "rope.freq_base", &facts->rope_base);
    if (status != KVERN_OK) {
        return status;
    }
    facts->rope_dim = facts->head_dim;
    status = facts_read_size(reader, "rope.dimension_count", facts->head_dim, &facts->rope_dim);
    if (status != KVERN_OK) {
        return status;
    }
    if (facts->rope_dim % 2 != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be even", reader->key);
    }
    return read_rope_scaling(reader, facts);
}

// The vocabulary is what the embedding has rows for; a key or a token list that says otherwise is
// a contradiction.
static kvern_status read_vocabulary(facts_reader *reader, model_facts *facts)
{
    const gguf_tensor *embedding = gguf_find_tensor(reader->file, "token_embd.weight");
    if (!embedding || embedding->dims != 2 || embedding->shape[1] > FACTS_MAX_COUNT) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "the model file has no two-dimensional tensor token_embd.weight");
    }
    facts->vocabulary = (size_t)embedding->shape[1];
    size_t stated = facts->vocabulary;
    kvern_status status = facts_read_size(reader, "vocab_size", FACTS_MAX_COUNT, &stated);
    if (status != KVERN_OK) {
        return status;
    }
    const gguf_entry *list = gguf_find(reader->file, "tokenizer.ggml.tokens");
    size_t listed = list ? gguf_array_count(list) : stated;
    if (stated != facts->vocabulary || listed > facts->vocabulary) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "the token embedding has %zu rows, but the file states %zu tokens and "
                           "lists %zu",
                           facts->vocabulary, stated, listed);
    }
    return KVERN_OK;
}

static kvern_status read_geometry(facts_reader *reader, model_facts *facts)
{
    kvern_status status =
        facts_refuse(reader, refused_keys, sizeof refused_keys / sizeof refused_keys[0]);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "block_count", KVERN_MAX_LAYERS, &facts->layers);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "embedding_length", FACTS_MAX_DIM, &facts->width);
    }
    if (status == KVERN_OK) {
        status =
            facts_read_size(reader, "feed_forward_length", FACTS_MAX_DIM, &facts->feed_forward);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "context_length", FACTS_MAX_COUNT, &facts->context_length);
    }
    if (status == KVERN_OK) {
        status =
            facts_read_positive(reader, "attention.layer_norm_rms_epsilon", &facts->norm_epsilon);
    }
    if (status == KVERN_OK) {
        status = read_heads(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_rope(reader, facts);
    }
    return status == KVERN_OK ? read_vocabulary(reader, facts) : status;
}

// Adds a tensor to the counts, which stay sorted by bytes. More types than fit are left out of the
// list; their bytes and parameters count all the same.
static void count_tensor(model_facts *facts, const gguf_tensor *tensor)
{
    facts->parameters += tensor->elements;
    facts->tensor_bytes += tensor->bytes;
    size_t at = 0;
    while (at < facts->types && facts->type[at].type != tensor->type) {
        at++;
    }
    if (at == MODEL_MAX_TYPES) {
        return;
    }
    if (at == facts->types) {
        facts->type[facts->types++] = (model_type_count){.type = tensor->type};
    }
    facts->type[at].tensors++;
    facts->type[at].bytes += tensor->bytes;
    while (at > 0 && facts->type[at - 1].bytes < facts->type[at].bytes) {
        model_type_count swap = facts->type[at];
        facts->type[at] = facts->type[at - 1];
        facts->type[--at] = swap;
    }
}

static void read_general(const gguf_file *file, model_facts *facts)
{
    gguf_get_string(gguf_find(file, "general.architecture"), &facts->architecture);
    gguf_get_string(gguf_find(file, "general.name"), &facts->name);
    gguf_get_string(gguf_find(file, "tokenizer.ggml.model"), &facts->tokenizer);
    gguf_get_string(gguf_find(file, "tokenizer.ggml.pre"), &facts->pre_tokenizer);
    facts->file_bytes = gguf_file_bytes(file);
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        count_tensor(facts, gguf_tensor_at(file, i));
    }
    facts->tied_output = gguf_find_tensor(file, "output.weight") == NULL;
}

kvern_status model_read_facts(const gguf_file *file, model_facts *facts, engine_error *error)
{
    *facts = (model_facts){.embedding_scale = 1};
    read_general(file, facts);
    if (facts->architecture.size == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "the file lacks the key general.architecture: it is no language model");
    }
    const model_family *family = model_family_find(facts->architecture);
    if (!family) {
        char known[128];
        model_family_list(known, sizeof known);
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the architecture \"%.*s\" is not supported; supported: %s",
                           (int)(facts->architecture.size < 64 ? facts->architecture.size : 64),
                           facts->architecture.data, known);
    }
    facts_reader reader = {
        .file = file, .architecture = &facts->architecture, .error = error, .key = ""};
    kvern_status status = read_geometry(&reader, facts);
    return status == KVERN_OK ? family->read_facts(&reader, facts) : status;
}

size_t model_layer_window(const model_facts *facts, size_t layer)
{
    bool windowed = facts->window_layers[layer / 64] >> layer % 64 & 1;
    return windowed ? facts->window : 0;
}

static kvern_layer plan_layer(const model_facts *facts, size_t index)
{
    size_t window = model_layer_window(facts, index);
    return window ? kvern_layer_window(facts->kv_heads, facts->head_dim, (int64_t)window)
                  : kvern_layer_default(facts->kv_heads, facts->head_dim);
}

kvern_status model_composition(const model_facts *facts, kvern_context *context,
                               const kvern_storage *storage, kvern_composition **out,
                               engine_error *error)
{
    *out = NULL;
    if (facts->layers == 0 || facts->layers > KVERN_MAX_LAYERS) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "a model has 1 to %d layers, not %zu",
                           KVERN_MAX_LAYERS, facts->layers);
    }
    kvern_layer *layers = malloc(facts->layers * sizeof *layers);
    if (!layers) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to plan %zu layers", facts->layers);
    }
    for (size_t i = 0; i < facts->layers; i++) {
        layers[i] = plan_layer(facts, i);
        layers[i].v_dim = facts->value_dim;
    }
    const kvern_storage plain = kvern_storage_default();
    kvern_status status = kvern_storage_apply(storage ? storage : &plain, layers, facts->layers);
    if (status == KVERN_OK) {
        status = kvern_composition_create(context, layers, facts->layers, out);
    }
    free(layers);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "planning the KV cache");
}
