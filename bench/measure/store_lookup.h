// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_STORE_LOOKUP_H
#define KVERN_BENCH_STORE_LOOKUP_H

// What a lookup in a store of many entries takes: all prompts have a beginning in common, and
// differ behind it. Lookups do not look at rows, so these are of the smallest layer that there is.

#include "bench/measure/clock.h"

#include <kvern/kvern.h>

typedef struct store_lookup_case {
    size_t entries;
    size_t common; // tokens that all entries have in common
    size_t threads;
} store_lookup_case;

typedef struct store_lookup_result {
    quartiles found;      // seconds of finding an entry and letting it go
    quartiles missed;     // of a prompt that leaves all of them at the end of what is common
    quartiles published;  // of publishing an entry
    uint64_t index_bytes; // that the store holds besides pages
    uint64_t allocations; // that lookups made
} store_lookup_result;

// Measures a cell: `runs` samples of a hundred lookups each, of entries far from each other.
// Errors: those of the library, KVERN_ERR_MEMORY.
kvern_status store_lookup_measure(const store_lookup_case *cell, size_t runs,
                                  store_lookup_result *result);

#endif
