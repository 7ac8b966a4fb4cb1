// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MAPPING_H
#define KVERN_FILE_MAPPING_H

// A file's bytes, mapped read only and counted by reference: rows may read pages in it long after
// whoever opened the file has gone. Processes that map one file share its memory, which is the
// system's (its page cache) and counts in no budget.
//
// Writers replace files by renaming (atomic_file.h), so a mapping keeps the bytes that it began
// with. A file that somebody else cuts short while it is mapped ends the process by SIGBUS, as
// mappings do.

#include "src/base/context.h"

#include <stdbool.h>

typedef struct kvern_mapping {
    _Atomic size_t references;
    kvern_context *context;
    const unsigned char *data; // aligned to 4096 bytes where a file is mapped
    size_t bytes;
    bool is_mapped; // else the memory is the caller's
} kvern_mapping;

// Maps a regular file that is not empty; one reference for the caller. Errors: KVERN_ERR_IO,
// KVERN_ERR_FORMAT (not a file, or empty), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_mapping_open(kvern_context *context, const char *path,
                                            kvern_mapping **out);

// The same over memory that the caller keeps until the last reference has gone.
KVERN_CHECK kvern_status kvern_mapping_of(kvern_context *context, const void *data, size_t bytes,
                                          kvern_mapping **out);

void kvern_mapping_retain(kvern_mapping *mapping);
void kvern_mapping_release(kvern_mapping *mapping); // NULL is allowed

#endif
