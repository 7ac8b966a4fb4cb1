// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_JSON_TEXT_H
#define KVERN_ENGINE_JSON_TEXT_H

// JSON from files of strangers.

#include "engine/base/error.h"

#include <jansson.h>

// Reads a text; `name` names its file in errors. Keys that occur twice are refused. json_decref; on
// failure *out is NULL. Errors: KVERN_ERR_FORMAT, with the line; KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status json_text_read(const char *text, size_t bytes, const char *name,
                                        json_t **out, engine_error *error);

#endif
