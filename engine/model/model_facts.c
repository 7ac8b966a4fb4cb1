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

// The factor by which positions are divided, or 0. rope.scale_linear is what files of 2023 call it.
static kvern_status read_rope_factor(facts_reader *reader, float *factor)
{
    float older = 0;
    kvern_status status = facts_read_optional(reader, "rope.scale_linear", &older);
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "rope.scaling.factor", factor);
    }
    if (status == KVERN_OK && older != 0 && *factor != 0 && older != *factor) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s is %g, but rope.scale_linear is %g",
                           reader->key, (double)*factor, (double)older);
    }
    *factor = *factor != 0 ? *factor : older;
    return status;
}

// A factor without a type scales linearly.
static kvern_status read_rope_type(facts_reader *reader, float factor, text_view *type)
{
    bool scaled = factor != 0 && factor != 1;
    config_value found = facts_find(reader, "rope.scaling.type");
    if (found.kind != CONFIG_ABSENT && found.kind != CONFIG_TEXT) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a text", reader->key);
    }
    *type = text_view_of(scaled ? "linear" : "none");
    if (found.kind == CONFIG_TEXT) {
        *type = found.text;
    }
    if (scaled && text_view_is(*type, "none")) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is none, but there is a factor of %g", reader->key, (double)factor);
    }
    return KVERN_OK;
}

static kvern_status read_rope_scaling(facts_reader *reader, model_facts *facts)
{
    float factor = 0;
    text_view type = {"", 0};
    bool factors = weights_find_tensor(reader->source, "rope_freqs.weight") != NULL;
    kvern_status status = read_rope_factor(reader, &factor);
    if (status == KVERN_OK) {
        status = read_rope_type(reader, factor, &type);
    }
    if (status != KVERN_OK) {
        return status;
    }
    facts->rope_factor = 1;
    if (text_view_is(type, "linear") && !factors) {
        facts->rope_scaling = MODEL_ROPE_LINEAR;
        facts->rope_factor = factor;
        return factor != 0
                   ? KVERN_OK
                   : facts_read_positive(reader, "rope.scaling.factor", &facts->rope_factor);
    }
    if (factors && (text_view_is(type, "none") || text_view_is(type, "llama3"))) {
        facts->rope_scaling = MODEL_ROPE_LLAMA3;
        return KVERN_OK;
    }
    if (text_view_is(type, "none")) {
        facts->rope_scaling = MODEL_ROPE_PLAIN;
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "rope scaling \"%.*s\" %s a rope_freqs.weight tensor is not supported; "
                       "supported are none and linear without the tensor, and llama3 with it",
                       text_view_shown(type, 40), type.data, factors ? "with" : "without");
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
    const weights_tensor *embedding = weights_find_tensor(reader->source, "token_embd.weight");
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
    config_value list = facts_find(reader, "tokenizer.ggml.tokens");
    size_t listed = list.kind == CONFIG_LIST ? list.count : stated;
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
    kvern_status status = facts_read_size(reader, "block_count", KVERN_MAX_LAYERS, &facts->layers);
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
static void count_tensor(model_facts *facts, const weights_tensor *tensor)
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

static text_view text_of(const weights *source, const char *key)
{
    config_value value = weights_find_key(source, key);
    return value.kind == CONFIG_TEXT ? value.text : (text_view){NULL, 0};
}

static void read_general(const weights *source, model_facts *facts)
{
    facts->architecture = text_of(source, "general.architecture");
    facts->name = text_of(source, "general.name");
    facts->tokenizer = text_of(source, "tokenizer.ggml.model");
    facts->pre_tokenizer = text_of(source, "tokenizer.ggml.pre");
    facts->file_bytes = source->format->file_bytes(source->file);
    for (size_t i = 0; i < weights_tensor_count(source); i++) {
        count_tensor(facts, weights_tensor_at(source, i));
    }
    facts->tied_output = weights_find_tensor(source, "output.weight") == NULL;
}

// The quantized types got their present layouts with version 2.
static kvern_status check_version(facts_reader *reader)
{
    config_value version = facts_find(reader, "general.quantization_version");
    uint64_t number = 0;
    if (version.kind == CONFIG_ABSENT || (config_size(&version, &number) && number == 2)) {
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED, "%s must be 2", reader->key);
}

static kvern_status find_family(const model_facts *facts, const model_family **family,
                                engine_error *error)
{
    if (facts->architecture.size == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "the file lacks the key general.architecture: it is no language model");
    }
    *family = model_family_find(facts->architecture);
    if (!*family) {
        char known[128];
        model_family_list(known, sizeof known);
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the architecture \"%.*s\" is not supported; supported: %s",
                           text_view_shown(facts->architecture, 64), facts->architecture.data,
                           known);
    }
    return KVERN_OK;
}

// Every key of the file is known and, unless it is used, without effect.
static kvern_status check_keys(const weights *source, const model_facts *facts,
                               const model_family *family, engine_error *error)
{
    const key_table *tables[MODEL_KEY_TABLES];
    model_family_key_tables(family, tables);
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < weights_key_count(source) && status == KVERN_OK; i++) {
        text_view key;
        config_value value = weights_key_at(source, i, &key);
        status = key_check(tables, MODEL_KEY_TABLES, facts->architecture, key, &value, error);
    }
    return status;
}

kvern_status model_read_facts(const gguf_file *file, model_facts *facts, engine_error *error)
{
    const weights source = gguf_weights(file);
    const model_family *family = NULL;
    *facts = (model_facts){.embedding_scale = 1};
    read_general(&source, facts);
    kvern_status status = find_family(facts, &family, error);
    if (status != KVERN_OK) {
        return status;
    }
    facts_reader reader = {.source = &source, .error = error, .key = ""};
    status = check_keys(&source, facts, family, error);
    if (status == KVERN_OK) {
        status = check_version(&reader);
    }
    if (status == KVERN_OK) {
        status = read_geometry(&reader, facts);
    }
    return status == KVERN_OK && family->read_facts ? family->read_facts(&reader, facts) : status;
}

bool model_judge_key(const gguf_file *file, size_t index, model_key *key)
{
    const weights source = gguf_weights(file);
    const text_view architecture = text_of(&source, "general.architecture");
    const model_family *family = model_family_find(architecture);
    if (!family || index >= weights_key_count(&source)) {
        return false;
    }
    const key_table *tables[MODEL_KEY_TABLES];
    model_family_key_tables(family, tables);
    const key_row *row;
    config_value value = weights_key_at(&source, index, &key->name);
    key->verdict = key_judge(tables, MODEL_KEY_TABLES, architecture, key->name, &value, &row);
    key->why = row ? row->why : NULL;
    return true;
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
