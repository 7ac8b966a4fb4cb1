// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PROGRAM_BENCH_STORE_FILE_H
#define KVERN_BENCH_PROGRAM_BENCH_STORE_FILE_H

// A row that is saved, loaded and verified: a part of `kvern bench store`.

#include "cli/io/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct store_file {
    uint64_t mib;       // of the row
    const char *folder; // of the files
    size_t threads, runs;
    bool json;
} store_file;

// Prints its table, or returns it as JSON in *cells. The result is an exit code.
int bench_store_file(const store_file *what, json_t **cells);

#endif
