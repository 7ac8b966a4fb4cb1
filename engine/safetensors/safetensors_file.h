// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SAFETENSORS_FILE_H
#define KVERN_ENGINE_SAFETENSORS_FILE_H

// One safetensors file: a header of JSON that names tensors and says where they lie, and their
// data. Everything is checked when the file is opened: afterwards nothing can be read outside of
// it.

#include "engine/base/mapped_file.h"
#include "engine/weights/weights.h"

typedef struct safetensors_file {
    mapped_file file;
    void *header; // JSON; owns the names
    weights_tensor *tensors;
    size_t count;
} safetensors_file;

// Opens a file. On failure *out is all zero. Errors: KVERN_ERR_IO, KVERN_ERR_FORMAT (the header is
// no JSON of this kind; offsets, shapes and types disagree; data overlap, leave a gap or leave the
// file), KVERN_ERR_UNSUPPORTED (more than four dimensions), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status safetensors_file_open(const char *path, safetensors_file *out,
                                               engine_error *error);

// The same over memory that the caller keeps; `name` names it in errors.
KVERN_CHECK kvern_status safetensors_file_read(const void *data, size_t bytes, const char *name,
                                               safetensors_file *out, engine_error *error);

void safetensors_file_close(safetensors_file *file); // all zero is permitted

#endif
