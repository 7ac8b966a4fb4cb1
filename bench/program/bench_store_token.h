// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PROGRAM_BENCH_STORE_TOKEN_H
#define KVERN_BENCH_PROGRAM_BENCH_STORE_TOKEN_H

// The time to the first token of an answer to a prompt whose beginning was computed before: a part
// of `kvern bench store`.

#include "cli/io/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct store_token {
    const char *model;
    const char *folder;      // of the directory with the entry
    uint64_t prefix, behind; // tokens of the prompt that are stored, and that are not
    size_t threads, runs;
    bool json;
} store_token;

// Prints its table, or returns it as JSON in *cells. The result is an exit code.
int bench_store_token(const store_token *what, json_t **cells);

#endif
