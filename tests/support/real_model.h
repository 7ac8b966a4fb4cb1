// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_REAL_MODEL_H
#define KVERN_TESTS_SUPPORT_REAL_MODEL_H

// Model files from elsewhere, which environment variables name (docs/TESTING.md), and their
// tokenizers.

#include "engine/tokenizer/tokenizer.h"

// Whether a variable names no file; says so. To be asked before a group of tests is run.
bool real_model_is_missing(const char *variable);

// The file that a variable names; without one the test is skipped.
const char *real_model_path(const char *variable);

typedef struct real_tokenizer {
    gguf_file *file;
    tokenizer *tokens;
} real_tokenizer;

// For the set-up of a group. 0, or -1 after saying why not.
int real_tokenizer_open(const char *variable, real_tokenizer *out);
int real_tokenizer_close(real_tokenizer *t);

// Fails the test when the tokenizer takes too long to make, or for 1 MB of a text that is repeated.
// Limits are far above what an idle machine needs: another order of growth is what they catch.
void real_tokenizer_expect_load_in_time(const real_tokenizer *t);
void real_tokenizer_expect_encode_in_time(const real_tokenizer *t, const char *name,
                                          const char *unit);

#endif
