// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_NPY_H
#define KVERN_CLI_NPY_H

// Writes a two-dimensional float32 array as a NumPy file (.npy, format version 1.0), a few rows at
// a time. The file appears when it is whole (cli/io/atomic_file.h).

#include "engine/base/error.h"

#include <stddef.h>

typedef struct npy_writer npy_writer;

// Begins a file of `rows` x `columns` values. The space is taken from the disk at once where the
// file system can do that, so that a full disk is known before the work is done. On failure *out is
// NULL. One writer at a time.
KVERN_CHECK kvern_status npy_create(const char *path, size_t rows, size_t columns, npy_writer **out,
                                    engine_error *error);

// Appends `rows` rows of packed values.
KVERN_CHECK kvern_status npy_write_rows(npy_writer *writer, const float *values, size_t rows,
                                        engine_error *error);

// Gives the file its name and ends the writer, whatever the result. Fewer rows than announced are
// a KVERN_ERR_ARGUMENT, and leave no file.
KVERN_CHECK kvern_status npy_finish(npy_writer *writer, engine_error *error);

// Ends the writer and removes what it wrote. NULL is allowed.
void npy_abandon(npy_writer *writer);

#endif
