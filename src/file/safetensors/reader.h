// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_SAFETENSORS_READER_H
#define KVERN_FILE_SAFETENSORS_READER_H

// Reading a safetensors file: eight bytes with the length of a header of JSON, the header, which
// names tensors and says where they lie, and their data. Everything is checked when the file is
// opened, so that nothing outside of it can be read afterwards; what the data mean is not looked
// at.
//
// The file is mapped, and data are used where they lie. The header is parsed by jansson, whose
// memory is the C library's, not the context's; KVERN_MOST_HEADER_BYTES bounds it.

#include "src/file/disk/mapping.h"
#include "src/file/safetensors/dtype.h"

#include <stdbool.h>

// Headers have some hundred bytes per tensor. Parsed, they take up to some twenty times as much.
#define KVERN_MOST_HEADER_BYTES ((size_t)16 << 20)

#define KVERN_TENSOR_DIMS 8

// A tensor, of which everything has been checked.
typedef struct kvern_tensor {
    const char *name; // UTF-8
    kvern_dtype dtype;
    size_t dims;                       // 0: one number
    uint64_t shape[KVERN_TENSOR_DIMS]; // the slowest first
    uint64_t elements;
    const unsigned char *data; // `bytes` bytes; aligned as the file has them
    size_t bytes;
} kvern_tensor;

typedef struct kvern_safetensors {
    kvern_mapping *mapping;
    const char *path;      // for messages; the caller's
    void *header;          // a json_t, which owns all strings
    void *metadata;        // within it, or NULL
    size_t data_begin;     // in the file
    kvern_tensor *tensors; // by name, in the order of strcmp
    size_t count, capacity;
} kvern_safetensors;

// Opens a file; `path` is borrowed until the file is closed. On failure *out is all zero. Errors:
// KVERN_ERR_IO, KVERN_ERR_FORMAT (the header is no JSON of this kind or too long; names, types,
// shapes and offsets disagree; the data of tensors overlap, leave a gap or leave the file),
// KVERN_ERR_UNSUPPORTED (a type or a number of dimensions that is not known here),
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_safetensors_open(kvern_context *context, const char *path,
                                                kvern_safetensors *out);

// The same over a mapping, to which it holds a reference of its own.
KVERN_CHECK kvern_status kvern_safetensors_read(kvern_mapping *mapping, const char *path,
                                                kvern_safetensors *out);

void kvern_safetensors_close(kvern_safetensors *file); // all zero is allowed

// The tensor of that name; NULL: there is none.
const kvern_tensor *kvern_safetensors_find(const kvern_safetensors *file, const char *name);

// The tensor of that name, type and number of dimensions. Errors: KVERN_ERR_FORMAT.
KVERN_CHECK kvern_status kvern_safetensors_need(const kvern_safetensors *file, const char *name,
                                                kvern_dtype dtype, size_t dims,
                                                const kvern_tensor **out);

// A string of the metadata; NULL: there is none of that key.
const char *kvern_safetensors_metadata(const kvern_safetensors *file, const char *key);

// All of it, in the file's order. `visit` returns what ends the walk; KVERN_OK goes on.
KVERN_CHECK kvern_status kvern_safetensors_each_metadata(
    const kvern_safetensors *file,
    kvern_status (*visit)(void *user, const char *key, const char *value), void *user);

#endif
