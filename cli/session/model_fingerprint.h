// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_MODEL_FINGERPRINT_H
#define KVERN_CLI_MODEL_FINGERPRINT_H

// Whether two models are the same one: a hash of their files.

#include "engine/base/error.h"

#include <stdbool.h>
#include <xxhash.h>

// Adds the files of a model, a file with its further parts or a directory, to a hash: all bytes of
// them, or their sizes and samples. Errors: KVERN_ERR_IO.
KVERN_CHECK kvern_status model_fingerprint_add(XXH3_state_t *state, const char *path, bool whole,
                                               engine_error *error);

// All bytes of a model as 16 hexadecimal digits: what rows say of the model that they were computed
// with. Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY.
#define MODEL_FINGERPRINT_TEXT 17
KVERN_CHECK kvern_status model_fingerprint_text(const char *path, char text[MODEL_FINGERPRINT_TEXT],
                                                engine_error *error);

#endif
