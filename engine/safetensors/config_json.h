// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CONFIG_JSON_H
#define KVERN_ENGINE_CONFIG_JSON_H

// A config.json as a flat list of keys and values: what is in an object has the key "outer.inner",
// and so on for objects in it. What is in "text_config", where a model of texts and images keeps
// what it says about texts, has the key that it would have outside; the same key outside must have
// the same value, unless it is about the whole model ("model_type").

#include "engine/base/error.h"
#include "engine/weights/config_value.h"

typedef struct config_json config_json;

// Reads an object; `name` names the file in errors. Keys that occur twice, and those
// that are absurdly long or deep, are refused. On failure *out is NULL. Errors: KVERN_ERR_FORMAT,
// KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status config_json_read(const char *text, size_t bytes, const char *name,
                                          config_json **out, engine_error *error);
void config_json_free(config_json *config); // NULL is allowed

// Whether it has a part for texts, beside parts for images or sounds.
bool config_json_has_text_part(const config_json *config);

// The object itself, a json_t of jansson: for what is in lists.
const void *config_json_root(const config_json *config);

size_t config_json_count(const config_json *config);
// In the file's order; `index` is below the count.
config_value config_json_at(const config_json *config, size_t index, text_view *key);
// Absent when there is no such key, or it is null.
config_value config_json_find(const config_json *config, const char *key);

#endif
