// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_ATOMIC_FILE_H
#define KVERN_CLI_ATOMIC_FILE_H

// A file that appears when it is whole.
//
// The data goes to a temporary file in the same folder, which takes the final name at the end: a
// reader never sees half a file, and a failure or a signal leaves nothing behind. A path that
// exists and is no regular file (a device, a pipe) is written to directly.

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct atomic_file atomic_file;

// Begins a file with the permissions that the umask leaves. One at a time. On failure *out is NULL.
// Errors of all calls: KVERN_ERR_IO, KVERN_ERR_MEMORY; the text names the file.
KVERN_CHECK kvern_status atomic_file_create(const char *path, atomic_file **out,
                                            engine_error *error);

// Takes the space of `bytes` from the disk at once where the file system can do that, so that a
// full disk is known before the work is done.
KVERN_CHECK kvern_status atomic_file_take_space(atomic_file *file, uint64_t bytes,
                                                engine_error *error);

KVERN_CHECK kvern_status atomic_file_write(atomic_file *file, const void *data, size_t bytes,
                                           engine_error *error);

// Gives the file its name and ends it, whatever the result.
KVERN_CHECK kvern_status atomic_file_finish(atomic_file *file, engine_error *error);

// Ends it and removes what was written. NULL is allowed.
void atomic_file_abandon(atomic_file *file);

// The path as the caller wrote it.
const char *atomic_file_name(const atomic_file *file);

#endif
