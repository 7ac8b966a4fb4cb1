// SPDX-License-Identifier: MIT
#include "engine/safetensors/config_json.h"

#include "engine/weights/name_index.h"

#include <jansson.h>
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

// "outer.inner", or "inner" without an outer key. False when memory is missing.
static bool add_entry(config_json *config, const char *outer, const char *inner,
                      const json_t *value)
{
    size_t first = outer ? strlen(outer) + 1 : 0, last = strlen(inner);
    char *key = malloc(first + last + 1);
    if (!key) {
        return false;
    }
    if (outer) {
        memcpy(key, outer, first - 1);
        key[first - 1] = '.';
    }
    memcpy(key + first, inner, last + 1);
    config->entries[config->count++] = (config_entry){{key, first + last}, value};
    return true;
}

static bool add_member(config_json *config, const char *key, json_t *value)
{
    if (json_object_size(value) == 0) {
        return add_entry(config, NULL, key, value);
    }
    const char *inner;
    json_t *member;
    json_object_foreach(value, inner, member)
    {
        if (!add_entry(config, key, inner, member)) {
            return false;
        }
    }
    return true;
}

// Every member, and those of members that are objects. False when memory is missing.
static bool flatten(config_json *config)
{
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(config->root, key, value)
    {
        size_t inner = json_object_size(value);
        count += inner ? inner : 1;
    }
    config->entries = calloc(count ? count : 1, sizeof *config->entries);
    if (!config->entries) {
        return false;
    }
    json_object_foreach(config->root, key, value)
    {
        if (!add_member(config, key, value)) {
            return false;
        }
    }
    return true;
}

static kvern_status index_keys(config_json *config, const char *name, engine_error *error)
{
    const text_view *repeated;
    if (!flatten(config) || !name_index_build(&config->index, config->entries,
                                              sizeof *config->entries, config->count, &repeated)) {
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
    json_error_t fault;
    config->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
    kvern_status status = KVERN_OK;
    if (!config->root) {
        status =
            engine_fail(error, KVERN_ERR_FORMAT, "%s: line %d: %s", name, fault.line, fault.text);
    } else if (!json_is_object(config->root)) {
        status = engine_fail(error, KVERN_ERR_FORMAT, "%s: it is not a JSON object", name);
    } else {
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
