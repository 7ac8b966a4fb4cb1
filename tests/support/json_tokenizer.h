// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_JSON_TOKENIZER_H
#define KVERN_TESTS_JSON_TOKENIZER_H

// Tokenizers from JSON in memory.

#include "engine/tokenizer/tokenizer_files.h"

#include <jansson.h>

// Makes a tokenizer of a tokenizer.json and a tokenizer_config.json, which may be NULL. The test
// fails, with `name`, when it is refused.
tokenizer *json_tokenizer_make(const char *name, const json_t *root, const char *config);

// The same of texts, with the outcome.
kvern_status json_tokenizer_try(const tokenizer_texts *texts, const char *pre, tokenizer **out,
                                engine_error *error);

#endif
