// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MAPPED_FILE_H
#define KVERN_ENGINE_MAPPED_FILE_H

// A whole file, mapped read-only. It must not be shortened while it is mapped: its pages would
// vanish.

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct mapped_file {
    const unsigned char *data; // NULL for an empty file, which cannot be mapped
    size_t bytes;
    bool mapped; // otherwise the bytes are somebody else's
} mapped_file;

// Maps a regular file; the error names it. On failure *out is empty. Errors: KVERN_ERR_IO,
// KVERN_ERR_OVERFLOW.
KVERN_CHECK kvern_status mapped_file_open(const char *path, mapped_file *out, engine_error *error);

// Unmaps what is mapped; all zero is permitted.
void mapped_file_close(mapped_file *file);

// Whether `data` points into the file.
bool mapped_file_holds(const mapped_file *file, const void *data);

// Tells the operating system that these bytes of the file are not needed any more; reading them
// again stays valid. Does nothing to bytes that are somebody else's.
void mapped_file_drop(const mapped_file *file, const void *data, size_t bytes);

#endif
