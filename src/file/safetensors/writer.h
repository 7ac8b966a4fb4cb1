// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_SAFETENSORS_WRITER_H
#define KVERN_FILE_SAFETENSORS_WRITER_H

// Writing a safetensors file. First all tensors are described, in the order in which they are going
// to lie, then their data come as one stream; so a file of any size takes a small buffer. The file
// appears under its name when it is complete (src/file/disk/atomic_file.h). The same calls give the
// same bytes.
//
//     kvern_safetensors_writer_begin(context, NULL, path, &writer);
//     kvern_safetensors_say(&writer, "format", "mlx");
//     kvern_safetensors_describe(&writer, "0", KVERN_DTYPE_F32, 2, shape, 1);
//     kvern_safetensors_start(&writer);
//     kvern_safetensors_put(&writer, data, bytes);
//     kvern_safetensors_commit(&writer);        or kvern_safetensors_abandon(&writer)
//
// The format allows no gap between tensors. One that is to be aligned may be preceded by a tensor
// of zeros named "pad.N" (U8), and the header is padded with spaces so that the data begin aligned.

#include "src/file/disk/atomic_file.h"
#include "src/file/safetensors/dtype.h"

// Where the bytes go that are not to be a file: in order, each put in at most as many calls as
// there are tensors and gaps in it. `data` NULL: zeros.
typedef struct kvern_safetensors_sink {
    void *user;
    kvern_status (*put)(void *user, const void *data, size_t bytes);
} kvern_safetensors_sink;

typedef struct kvern_safetensors_pad {
    uint64_t begin; // in the data
    size_t bytes;
} kvern_safetensors_pad;

typedef struct kvern_safetensors_writer {
    kvern_context *context; // the caller's
    kvern_atomic_file file;
    const kvern_safetensors_sink *sink; // NULL: to the file
    void *header, *metadata;            // json_t
    char *text;                         // the header as the file has it, with its length in front
    size_t text_bytes;
    size_t alignment;        // of the data
    uint64_t described, put; // bytes of data
    kvern_safetensors_pad *pads;
    size_t pad_count, pad_capacity;
    size_t next_pad;
    unsigned char *buffer;
    size_t buffered;
} kvern_safetensors_writer;

// Begins a file; commit or abandon follows. The context and `calls` (NULL: the system's) are
// borrowed until then. On failure *out is all zero. Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_safetensors_writer_begin(kvern_context *context,
                                                        const kvern_disk_calls *calls,
                                                        const char *path,
                                                        kvern_safetensors_writer *out);

// The same to a sink, which is borrowed until commit or abandon: no file is made.
KVERN_CHECK kvern_status kvern_safetensors_writer_begin_sink(kvern_context *context,
                                                             const kvern_safetensors_sink *sink,
                                                             kvern_safetensors_writer *out);

// Adds metadata. `value` is UTF-8. Errors: KVERN_ERR_ARGUMENT (not UTF-8, or the key is there),
// KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status kvern_safetensors_say(kvern_safetensors_writer *writer, const char *key,
                                               const char *value);

// Adds a tensor behind those that there are, at a multiple of `alignment`, a power of two.
// Errors: KVERN_ERR_ARGUMENT (a name that is there), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_safetensors_describe(kvern_safetensors_writer *writer,
                                                    const char *name, kvern_dtype dtype,
                                                    size_t dims, const uint64_t *shape,
                                                    size_t alignment);

// Everything is described: writes the header. Errors: KVERN_ERR_IO, KVERN_ERR_RANGE (a header
// above KVERN_MOST_HEADER_BYTES), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_safetensors_start(kvern_safetensors_writer *writer);

// The file's bytes in front of the data, after the start.
static inline const char *kvern_safetensors_header(const kvern_safetensors_writer *writer,
                                                   size_t *bytes)
{
    *bytes = writer->text_bytes;
    return writer->text;
}

// Adds data: of the first tensor, then of the next ones; a call may span several. More than was
// described is KVERN_ERR_ARGUMENT. Errors: KVERN_ERR_IO.
KVERN_CHECK kvern_status kvern_safetensors_put(kvern_safetensors_writer *writer, const void *data,
                                               size_t bytes);

// Completes the file, which has all of its data (else KVERN_ERR_ARGUMENT). Either way the object is
// done with; on failure what was there before is there (atomic_file.h). Errors: KVERN_ERR_IO.
KVERN_CHECK kvern_status kvern_safetensors_commit(kvern_safetensors_writer *writer);

// Leaves nothing behind. All zero is allowed.
void kvern_safetensors_abandon(kvern_safetensors_writer *writer);

#endif
