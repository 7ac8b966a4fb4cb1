// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_STORE_DIRECTORY_H
#define KVERN_BENCH_STORE_DIRECTORY_H

// What a store on disk costs that has many entries: opening it, and lookups. Entries have a
// beginning in common, and the smallest layer that there is.

#include "bench/measure/clock.h"

#include <kvern/kvern.h>

typedef struct store_directory_case {
    size_t entries;
    const char *folder; // where the directory is made, and removed
    size_t threads;
} store_directory_case;

typedef struct store_directory_result {
    quartiles opened;     // seconds of opening the directory
    quartiles found;      // of finding an entry and letting it go
    quartiles missed;     // of a prompt that leaves all of them at the end of what is common
    quartiles unchanged;  // of looking again where nothing changed
    quartiles changed;    // of looking again behind a new entry
    uint64_t file_bytes;  // of all entries
    uint64_t index_bytes; // of memory, that the open store takes
    uint64_t allocations; // that lookups made
} store_directory_result;

// Makes the directory, which takes as long as the disk takes to sync so many files, and measures
// it: `runs` samples of each kind, those of lookups being means of a hundred. Errors: those of the
// library, KVERN_ERR_IO, KVERN_ERR_MEMORY.
kvern_status store_directory_measure(const store_directory_case *cell, size_t runs,
                                     store_directory_result *result);

#endif
