// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PROGRAM_BENCH_STORE_REMOTE_H
#define KVERN_BENCH_PROGRAM_BENCH_STORE_REMOTE_H

// A row that is written to a server, asked for and fetched: a part of `kvern bench store`.

#include "cli/io/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct store_remote {
    const char *url;
    uint64_t mib; // of the row
    size_t runs;
    bool json;
} store_remote;

// Prints its table, or returns it as JSON in *cells. The result is an exit code.
int bench_store_remote(const store_remote *what, json_t **cells);

#endif
