// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_SHARING_H
#define KVERN_BENCH_SHARING_H

// What sharing a prefix gives: rows that were forked from one prefix decode a token together, in
// turns with as many rows of the same contents that were stored one by one. Both read from memory
// and not from a cache, and their results must have the same bits.

#include "bench/measure/clock.h"

#include <kvern/kvern.h>

#include <stdbool.h>

typedef struct sharing_case {
    kvern_codec storage;
    size_t head_dim, query_heads, kv_heads;
    int64_t positions; // of the prefix
    size_t rows;       // that share it
    size_t threads;
} sharing_case;

typedef struct sharing_result {
    quartiles shared, alone;
    // Bytes of the pages of all rows: behind the fork over those of the prefix, and when each row
    // has decoded a token of its own, over those of one of them.
    double forked_memory, decoded_memory;
    bool same_bits; // of the results of the two
} sharing_result;

// Measures a cell: `runs` timed attends of either kind. Of either kind there are rows of
// `cold_bytes`, and attends take turns with them, so that their pages have left the caches since
// they were last read. Errors: those of the library, KVERN_ERR_MEMORY.
kvern_status sharing_measure(const sharing_case *cell, size_t runs, size_t cold_bytes,
                             sharing_result *result);

#endif
