// SPDX-License-Identifier: MIT
// What a GGUF file says about its model. Nothing here touches a weight.

#include "engine/model/model.h"

#include "engine/model/families/model_family.h"

#include <stdlib.h>

// The vocabulary is what the embedding has rows for; a key or a token list that says otherwise is
// a contradiction.
static kvern_status read_vocabulary(facts_reader *reader, model_facts *facts)
{
    const weights_tensor *embedding = weights_find_tensor(reader->source, "token_embd.weight");
    if (!embedding || embedding->dims != 2 || embedding->shape[1] > FACTS_MAX_COUNT) {
        char name[MODEL_NAME_BYTES];
        const weights *w = reader->source;
        w->format->tensor_name(w->file, "token_embd.weight", name, sizeof name);
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "the model file has no two-dimensional tensor %s", name);
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

// What every model has.
static kvern_status read_size_of_model(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_size(reader, "block_count", MODEL_MAX_LAYERS, &facts->layers);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "embedding_length", FACTS_MAX_DIM, &facts->width);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "context_length", FACTS_MAX_COUNT, &facts->context_length);
    }
    if (status == KVERN_OK) {
        status =
            facts_read_positive(reader, "attention.layer_norm_rms_epsilon", &facts->norm_epsilon);
    }
    return status;
}

static kvern_status read_model(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_size_of_model(reader, facts);
    if (status == KVERN_OK) {
        status = facts->family->read_facts(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_vocabulary(reader, facts);
    }
    return status == KVERN_OK
               ? model_check_tensors(reader->source, facts, &facts->packed_bytes, reader->error)
               : status;
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

static kvern_status find_family(const weights *source, model_facts *facts, engine_error *error)
{
    const bool hf = source->format->hf_names;
    if (facts->architecture.size == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s lacks the key %s: it is no language model",
                           hf ? "config.json" : "the file",
                           hf ? "model_type" : "general.architecture");
    }
    facts->family = model_family_find(facts->architecture);
    if (!facts->family) {
        char known[320];
        model_family_list(source->format, known, sizeof known);
        return engine_fail(
            error, KVERN_ERR_UNSUPPORTED, "the %s \"%.*s\" is not supported; supported: %s",
            hf ? "model_type" : "architecture", text_view_shown(facts->architecture, 64),
            facts->architecture.data, known);
    }
    return KVERN_OK;
}

static bool is_number(const config_value *value)
{
    return value->kind == CONFIG_INTEGER || value->kind == CONFIG_REAL;
}

static double number_of(const config_value *value)
{
    return value->kind == CONFIG_INTEGER ? (double)value->integer : value->real;
}

// Whether two values are the same: a whole number and a real one may be.
static bool same_value(const config_value *a, const config_value *b);

static bool same_lists(const config_value *a, const config_value *b)
{
    bool equal = a->count == b->count;
    for (size_t i = 0; i < a->count && equal; i++) {
        const config_value left = config_element(a, i), right = config_element(b, i);
        equal = same_value(&left, &right);
    }
    return equal;
}

static bool same_value(const config_value *a, const config_value *b)
{
    if (is_number(a) && is_number(b)) {
        return number_of(a) == number_of(b);
    }
    if (a->kind != b->kind) {
        return false;
    }
    switch (a->kind) {
    case CONFIG_FLAG:
        return a->flag == b->flag;
    case CONFIG_TEXT:
        return a->text.size == b->text.size &&
               memcmp(a->text.data, b->text.data, a->text.size) == 0;
    case CONFIG_LIST:
        return same_lists(a, b);
    default:
        return false;
    }
}

// Of two keys for one thing only one is read, so the other must say the same.
static kvern_status check_twin(const weights *source, const model_facts *facts,
                               const key_table *const *tables, size_t count, size_t index,
                               engine_error *error)
{
    text_view key;
    bool open;
    const config_value value = weights_key_at(source, index, &key);
    const key_row *row = key_find(tables, count, facts->architecture, key, &open);
    if (!row || !row->canonical || value.kind == CONFIG_OTHER) {
        return KVERN_OK;
    }
    const config_value read = weights_find_key(source, row->canonical);
    if (same_value(&value, &read)) {
        return KVERN_OK;
    }
    char other[MODEL_NAME_BYTES];
    source->format->key_name(source->file, row->canonical, other, sizeof other);
    return engine_fail(error, KVERN_ERR_FORMAT, "%.*s says something else than %s",
                       text_view_shown(key, 100), key.data, other);
}

// Every key of the file is known and, unless it is used, without effect.
static kvern_status check_keys(const weights *source, const model_facts *facts, engine_error *error)
{
    const key_table *tables[MODEL_KEY_TABLES];
    size_t count = model_family_key_tables(facts->family, source->format, tables);
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < weights_key_count(source) && status == KVERN_OK; i++) {
        text_view key;
        config_value value = weights_key_at(source, i, &key);
        status = key_check(tables, count, facts->architecture, key, &value, error);
        if (status == KVERN_OK) {
            status = check_twin(source, facts, tables, count, i, error);
        }
    }
    return status;
}

// A file that says whether the output matrix is the embedding must have it or not.
static kvern_status check_output(facts_reader *reader, const model_facts *facts)
{
    config_value stated = facts_find(reader, "tied_output");
    if (stated.kind == CONFIG_ABSENT ||
        (stated.kind == CONFIG_FLAG && stated.flag == facts->tied_output)) {
        return KVERN_OK;
    }
    char name[MODEL_NAME_BYTES];
    const weights *w = reader->source;
    w->format->tensor_name(w->file, "output.weight", name, sizeof name);
    return engine_fail(reader->error, KVERN_ERR_FORMAT,
                       facts->tied_output ? "%s is false, but there is no tensor %s"
                                          : "%s is true, but there is a tensor %s",
                       reader->key, name);
}

kvern_status model_read_facts(const model_source *source, model_facts *facts, engine_error *error)
{
    const weights *w = model_source_weights(source);
    *facts = (model_facts){.embedding_scale = 1};
    read_general(w, facts);
    kvern_status status = find_family(w, facts, error);
    if (status == KVERN_OK) {
        status = check_keys(w, facts, error);
    }
    facts_reader reader = {.source = w, .error = error, .key = ""};
    if (status == KVERN_OK) {
        status = check_version(&reader);
    }
    if (status == KVERN_OK) {
        status = check_output(&reader, facts);
    }
    return status == KVERN_OK ? read_model(&reader, facts) : status;
}

bool model_judge_key(const model_source *source, size_t index, model_key *key)
{
    const weights *w = model_source_weights(source);
    const text_view architecture = text_of(w, "general.architecture");
    const model_family *family = model_family_find(architecture);
    if (!family || index >= weights_key_count(w)) {
        return false;
    }
    const key_table *tables[MODEL_KEY_TABLES];
    size_t count = model_family_key_tables(family, w->format, tables);
    const key_row *row;
    config_value value = weights_key_at(w, index, &key->name);
    key->verdict = key_judge(tables, count, architecture, key->name, &value, &row);
    key->why = row ? row->why : NULL;
    return true;
}

kvern_status model_composition(const model_facts *facts, kvern_context *context,
                               const kvern_storage *storage, kvern_composition **out,
                               engine_error *error)
{
    *out = NULL;
    if (!facts->family || facts->layers == 0 || facts->layers > MODEL_MAX_LAYERS) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "a model has a family and 1 to %d layers",
                           MODEL_MAX_LAYERS);
    }
    kvern_layer *layers = malloc(facts->layers * sizeof *layers);
    if (!layers) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to plan %zu layers", facts->layers);
    }
    for (size_t i = 0; i < facts->layers; i++) {
        layers[i] = facts->family->plan_layer(facts, i);
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

size_t model_key_pairs(const model_facts *facts)
{
    const model_family *family = facts->family;
    if (!family || family->rope_style != ENGINE_ROPE_PAIRS || family->paired_files) {
        return 0;
    }
    for (size_t i = 0; i < facts->layers; i++) {
        const model_layer_facts *layer = &facts->layer[i];
        if (layer->kind != MODEL_LAYER_DELTA && layer->kind != MODEL_LAYER_LATENT) {
            return layer->head_dim; // attention_layer.c turns all of a head
        }
    }
    return 0;
}
