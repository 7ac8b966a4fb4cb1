// SPDX-License-Identifier: MIT
#include "engine/safetensors/config_json.h"

#include "engine/safetensors/json_text.h"
#include "engine/weights/name_index.h"

#include <stdlib.h>

typedef struct config_entry {
    text_view key; // first: name_index points at it; its bytes are owned
    const json_t *value;
} config_entry;

struct config_json {
    json_t *root;
    config_entry *entries;
    size_t count;
    name_index index;
};

static config_value value_of(const json_t *json);

static config_value element_of(const void *list, size_t index)
{
    return value_of(json_array_get(list, index));
}

static config_value value_of(const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_INTEGER:
        return (config_value){.kind = CONFIG_INTEGER, .integer = json_integer_value(json)};
    case JSON_REAL:
        return (config_value){.kind = CONFIG_REAL, .real = json_real_value(json)};
    case JSON_TRUE:
    case JSON_FALSE:
        return (config_value){.kind = CONFIG_FLAG, .flag = json_is_true(json)};
    case JSON_STRING:
        return (config_value){.kind = CONFIG_TEXT,
                              .text = {json_string_value(json), json_string_length(json)}};
    case JSON_ARRAY:
        return (config_value){
            .kind = CONFIG_LIST, .count = json_array_size(json), .list = json, .at = element_of};
    default:
        return (config_value){.kind = CONFIG_OTHER};
    }
}

// --- Flattening

// A key is made of the names of all objects around it.
#define MOST_KEY_BYTES 256
#define MOST_DEPTH 8

// What a model of texts and images says about its texts: it counts as if it stood outside.
#define TEXT_CONFIG "text_config"

typedef struct flattening {
    config_json *config;
    const char *name; // of the file
    engine_error *error;
    const json_t *hidden; // keys of this object are left out where `inner` is not set
    size_t room;
    char key[MOST_KEY_BYTES + 1]; // of the objects around, with a dot behind each
} flattening;

static kvern_status fail_memory(const flattening *f)
{
    return engine_fail(f->error, KVERN_ERR_MEMORY, "%s: no memory for its keys", f->name);
}

static kvern_status add_entry(flattening *f, size_t bytes, const json_t *value)
{
    config_json *config = f->config;
    if (config->count == f->room) {
        size_t room = 2 * f->room + 64;
        config_entry *entries = realloc(config->entries, room * sizeof *entries);
        if (!entries) {
            return fail_memory(f);
        }
        config->entries = entries;
        f->room = room;
    }
    char *key = malloc(bytes + 1);
    if (!key) {
        return fail_memory(f);
    }
    memcpy(key, f->key, bytes);
    key[bytes] = '\0';
    config->entries[config->count++] = (config_entry){{key, bytes}, value};
    return KVERN_OK;
}

static kvern_status add_members(flattening *f, size_t prefix, size_t depth, const json_t *object);

// A member whose key begins with the `prefix` bytes that f->key has.
static kvern_status add_member(flattening *f, size_t prefix, size_t depth, const char *name,
                               json_t *value)
{
    size_t bytes = strlen(name), end = prefix + bytes;
    bool object = json_object_size(value) > 0;
    if (end >= MOST_KEY_BYTES || (object && depth == MOST_DEPTH)) {
        return engine_fail(f->error, KVERN_ERR_FORMAT,
                           "%s: the key %.64s... is too long or too deep", f->name,
                           prefix ? f->key : name);
    }
    memcpy(f->key + prefix, name, bytes + 1);
    if (!object) {
        return add_entry(f, end, value);
    }
    memcpy(f->key + end, ".", 2);
    return add_members(f, end + 1, depth + 1, value);
}

static kvern_status add_members(flattening *f, size_t prefix, size_t depth, const json_t *object)
{
    const char *name;
    json_t *value;
    kvern_status status = KVERN_OK;
    json_object_foreach((json_t *)object, name, value)
    {
        bool hidden = depth == 0 && f->hidden && object != f->hidden &&
                      (json_object_get(f->hidden, name) || strcmp(name, TEXT_CONFIG) == 0);
        if (status == KVERN_OK && !hidden) {
            status = add_member(f, prefix, depth, name, value);
        }
    }
    return status;
}

// What the whole model and its part for texts may call differently without a contradiction.
static bool may_differ(const char *key)
{
    static const char *const keys[] = {"model_type",   "architectures",        "dtype",
                                       "torch_dtype",  "transformers_version", "bos_token_id",
                                       "eos_token_id", "pad_token_id",         "_name_or_path"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool same_value(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

static kvern_status check_twins(const flattening *f, const json_t *inner)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)inner, key, value)
    {
        const json_t *outer = json_object_get(f->config->root, key);
        if (outer && !same_value(outer, value) && !may_differ(key)) {
            return engine_fail(f->error, KVERN_ERR_FORMAT,
                               "%s: %.64s differs from " TEXT_CONFIG ".%.64s", f->name, key, key);
        }
    }
    return KVERN_OK;
}

static kvern_status flatten(config_json *config, const char *name, engine_error *error)
{
    flattening f = {.config = config, .name = name, .error = error};
    const json_t *inner = json_object_get(config->root, TEXT_CONFIG);
    kvern_status status = KVERN_OK;
    if (json_object_size(inner) > 0) {
        f.hidden = inner;
        status = check_twins(&f, inner);
    }
    if (status == KVERN_OK) {
        status = add_members(&f, 0, 0, config->root);
    }
    return status == KVERN_OK && f.hidden ? add_members(&f, 0, 0, inner) : status;
}

static kvern_status index_keys(config_json *config, const char *name, engine_error *error)
{
    const text_view *repeated;
    kvern_status status = flatten(config, name, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (!name_index_build(&config->index, config->entries, sizeof *config->entries, config->count,
                          &repeated)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory for its keys", name);
    }
    return repeated ? engine_fail(error, KVERN_ERR_FORMAT, "%s: it has the key %.*s twice", name,
                                  text_view_shown(*repeated, 64), repeated->data)
                    : KVERN_OK;
}

kvern_status config_json_read(const char *text, size_t bytes, const char *name, config_json **out,
                              engine_error *error)
{
    *out = NULL;
    config_json *config = calloc(1, sizeof *config);
    if (!config) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory to read it", name);
    }
    kvern_status status = json_text_read(text, bytes, name, &config->root, error);
    if (status == KVERN_OK && !json_is_object(config->root)) {
        status = engine_fail(error, KVERN_ERR_FORMAT, "%s: it is not a JSON object", name);
    }
    if (status == KVERN_OK) {
        status = index_keys(config, name, error);
    }
    if (status != KVERN_OK) {
        config_json_free(config);
        return status;
    }
    *out = config;
    return KVERN_OK;
}

void config_json_free(config_json *config)
{
    if (!config) {
        return;
    }
    for (size_t i = 0; i < config->count; i++) {
        free((void *)config->entries[i].key.data);
    }
    free(config->entries);
    name_index_free(&config->index);
    json_decref(config->root);
    free(config);
}

bool config_json_has_text_part(const config_json *config)
{
    return json_object_size(json_object_get(config->root, TEXT_CONFIG)) > 0;
}

const void *config_json_root(const config_json *config)
{
    return config->root;
}

size_t config_json_count(const config_json *config)
{
    return config->count;
}

config_value config_json_at(const config_json *config, size_t index, text_view *key)
{
    *key = config->entries[index].key;
    return value_of(config->entries[index].value);
}

config_value config_json_find(const config_json *config, const char *key)
{
    const text_view *found = name_index_find(&config->index, text_view_of(key));
    const config_entry *entry = (const config_entry *)found;
    if (!entry || json_is_null(entry->value)) {
        return (config_value){.kind = CONFIG_ABSENT};
    }
    return value_of(entry->value);
}
