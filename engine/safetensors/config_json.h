// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CONFIG_JSON_H
#define KVERN_ENGINE_CONFIG_JSON_H

// A config.json as a flat list of keys and values: what is in an object has the key "outer.inner".

#include "engine/base/error.h"
#include "engine/weights/config_value.h"

typedef struct config_json config_json;

// Reads an object; `name` names the file in errors. Keys that occur twice are refused. On failure
// *out is NULL. Errors: KVERN_ERR_FORMAT, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status config_json_read(const char *text, size_t bytes, const char *name,
                                          config_json **out, engine_error *error);
void config_json_free(config_json *config); // NULL is allowed

size_t config_json_count(const config_json *config);
// In the file's order; `index` is below the count.
config_value config_json_at(const config_json *config, size_t index, text_view *key);
// Absent when there is no such key, or it is null.
config_value config_json_find(const config_json *config, const char *key);

#endif
