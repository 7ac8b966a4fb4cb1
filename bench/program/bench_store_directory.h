// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PROGRAM_BENCH_STORE_DIRECTORY_H
#define KVERN_BENCH_PROGRAM_BENCH_STORE_DIRECTORY_H

// A directory of many entries: a part of `kvern bench store`.

#include "cli/io/json.h"
#include "cli/options/number_list.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct store_directories {
    const number_list *entries; // a directory each
    const char *folder;         // where they are made
    size_t threads, runs;
    bool json;
} store_directories;

// Prints its table, or returns it as JSON in *cells. The result is an exit code.
int bench_store_directories(const store_directories *what, json_t **cells);

#endif
