// SPDX-License-Identifier: MIT
// What a GGUF file says about its model. Nothing here touches a weight.

#include "engine/model.h"

#include "engine/model_family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// No dimension of a model comes near this; products of three of them fit 64 bits.
#define FACTS_MAX_DIM ((uint64_t)1 << 20)
#define FACTS_MAX_COUNT ((uint64_t)INT32_MAX)

// Reads the keys of one architecture; `key` holds the name of the last one for messages.
typedef struct facts_reader {
    const gguf_file *file;
    const gguf_string *architecture;
    engine_error *error;
    char key[128];
} facts_reader;

static const gguf_entry *find_key(facts_reader *reader, const char *name)
{
    snprintf(reader->key, sizeof reader->key, "%.*s.%s", (int)reader->architecture->size,
             reader->architecture->data, name);
    return gguf_find(reader->file, reader->key);
}

// A whole number from 1 to `most`. An absent key leaves *value as it is; 0 there means required.
static kvern_status read_size(facts_reader *reader, const char *name, uint64_t most, size_t *value)
{
    const gguf_entry *entry = find_key(reader, name);
    if (!entry && *value != 0) {
        return KVERN_OK;
    }
    uint64_t number = 0;
    if (!entry) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                           reader->key);
    }
    if (!gguf_get_u64(entry, &number) || number == 0 || number > most) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s must be a whole number from 1 to %" PRIu64, reader->key, most);
    }
    *value = (size_t)number;
    return KVERN_OK;
}

// A finite number above 0. An absent key leaves *value as it is; 0 there means required.
static kvern_status read_positive(facts_reader *reader, const char *name, float *value)
{
    const gguf_entry *entry = find_key(reader, name);
    if (!entry && *value != 0) {
        return KVERN_OK;
    }
    float number = 0;
    if (!entry) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                           reader->key);
    }
    if (!gguf_get_f32(entry, &number) || !(number > 0) || isinf(number)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a number above 0",
                           reader->key);
    }
    *value = number;
    return KVERN_OK;
}

// Keys that would change what is computed and that this engine does not compute.
static kvern_status refuse_keys(facts_reader *reader)
{
    static const char *const keys[] = {
        "expert_count",          "attention.scale",        "attention.sliding_window",
        "embedding_scale",       "residual_scale",         "logit_scale",
        "attention.clamp_kqv",   "attn_logit_softcapping", "final_logit_softcapping",
        "use_parallel_residual",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const gguf_entry *entry = find_key(reader, keys[i]);
        float number = 1;
        bool flag = true;
        bool off =
            (gguf_get_f32(entry, &number) && number == 0) || (gguf_get_bool(entry, &flag) && !flag);
        if (entry && !off) {
            return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                               "the model needs %s, which this engine does not support",
                               reader->key);
        }
    }
    return KVERN_OK;
}

static kvern_status read_heads(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_size(reader, "attention.head_count", FACTS_MAX_DIM, &facts->heads);
    if (status != KVERN_OK) {
        return status;
    }
    facts->kv_heads = facts->heads;
    status = read_size(reader, "attention.head_count_kv", KVERN_MAX_KV_HEADS, &facts->kv_heads);
    if (status != KVERN_OK) {
        return status;
    }
    if (facts->heads % facts->kv_heads != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%zu query heads cannot share %zu key/value heads evenly", facts->heads,
                           facts->kv_heads);
    }
    facts->head_dim = facts->width / facts->heads; // 0 when absurd: then the key is required
    status = read_size(reader, "attention.key_length", KVERN_MAX_HEAD_DIM, &facts->head_dim);
    if (status != KVERN_OK) {
        return status;
    }
    facts->value_dim = facts->head_dim;
    return read_size(reader, "attention.value_length", KVERN_MAX_HEAD_DIM, &facts->value_dim);
}

static bool string_is(gguf_string string, const char *text)
{
    return string.size == strlen(text) && memcmp(string.data, text, string.size) == 0;
}

static kvern_status read_rope_scaling(facts_reader *reader, model_facts *facts)
{
    gguf_string type = {"none", 4};
    gguf_get_string(find_key(reader, "rope.scaling.type"), &type);
    bool factors = gguf_find_tensor(reader->file, "rope_freqs.weight") != NULL;
    facts->rope_factor = 1;
    if (string_is(type, "linear") && !factors) {
        facts->rope_scaling = MODEL_ROPE_LINEAR;
        facts->rope_factor = 0;
        return read_positive(reader, "rope.scaling.factor", &facts->rope_factor);
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
    kvern_status status = read_positive(reader, "rope.freq_base", &facts->rope_base);
    if (status != KVERN_OK) {
        return status;
    }
    facts->rope_dim = facts->head_dim;
    status = read_size(reader, "rope.dimension_count", facts->head_dim, &facts->rope_dim);
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
    kvern_status status = read_size(reader, "vocab_size", FACTS_MAX_COUNT, &stated);
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
    kvern_status status = refuse_keys(reader);
    if (status == KVERN_OK) {
        status = read_size(reader, "block_count", KVERN_MAX_LAYERS, &facts->layers);
    }
    if (status == KVERN_OK) {
        status = read_size(reader, "embedding_length", FACTS_MAX_DIM, &facts->width);
    }
    if (status == KVERN_OK) {
        status = read_size(reader, "feed_forward_length", FACTS_MAX_DIM, &facts->feed_forward);
    }
    if (status == KVERN_OK) {
        status = read_size(reader, "context_length", FACTS_MAX_COUNT, &facts->context_length);
    }
    if (status == KVERN_OK) {
        status = read_positive(reader, "attention.layer_norm_rms_epsilon", &facts->norm_epsilon);
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
    *facts = (model_facts){0};
    read_general(file, facts);
    if (facts->architecture.size == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "the file lacks the key general.architecture: it is no language model");
    }
    if (!model_family_find(facts->architecture)) {
        char known[128];
        model_family_list(known, sizeof known);
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the architecture \"%.*s\" is not supported; supported: %s",
                           (int)(facts->architecture.size < 64 ? facts->architecture.size : 64),
                           facts->architecture.data, known);
    }
    facts_reader reader = {
        .file = file, .architecture = &facts->architecture, .error = error, .key = ""};
    return read_geometry(&reader, facts);
}

kvern_status model_composition(const model_facts *facts, kvern_context *context, kvern_type k,
                               kvern_type v, kvern_composition **out, engine_error *error)
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
        layers[i] = kvern_layer_default(facts->kv_heads, facts->head_dim);
        layers[i].v_dim = facts->value_dim;
        layers[i].k_codec = kvern_codec_dense(k);
        layers[i].v_codec = kvern_codec_dense(v);
    }
    kvern_status status = kvern_composition_create(context, layers, facts->layers, out);
    free(layers);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "planning the KV cache");
}
