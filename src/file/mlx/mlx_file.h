// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MLX_FILE_H
#define KVERN_FILE_MLX_FILE_H

// The inside of a prompt cache file of mlx-lm, or of mlx-bun: one list of caches, whatever the
// layout. Everything in it has been checked, apart from what several caches say of one row.

#include "src/file/safetensors/reader.h"

#include <kvern/mlx_cache.h>

// What a list of caches holds.
typedef enum kvern_mlx_class {
    KVERN_MLX_KV,
    KVERN_MLX_CONCATENATE,
    KVERN_MLX_QUANTIZED,
    KVERN_MLX_ROTATING,
    KVERN_MLX_CHUNKED,
    KVERN_MLX_BATCH,
    KVERN_MLX_BATCH_ROTATING,
    KVERN_MLX_ARRAYS,
    KVERN_MLX_CLASSES
} kvern_mlx_class;

extern const char *const kvern_mlx_class_names[KVERN_MLX_CLASSES];

#define KVERN_MLX_MOST_SLOTS 8

// Of a stream: numbers, or words, scales and biases. [rows, heads, width, ...]
typedef struct kvern_mlx_stream {
    const kvern_tensor *parts[3];
    size_t dim;
} kvern_mlx_stream;

// One cache. Fields that its class does not have are 0.
typedef struct kvern_mlx_item {
    kvern_mlx_class class;
    size_t entry, member, members;
    size_t rows; // 0: it is empty
    size_t heads;
    int64_t width; // columns of the tensors
    kvern_mlx_stream keys, values;
    int64_t offset; // of its one row, or of each; -1: not known
    int64_t idx;    // columns that are filled; where a ring is written next
    int64_t keep, max_size, chunk, start;
    bool rotated;
    const kvern_tensor *offsets, *padding; // of a batch, per row
    uint32_t bits, group;
    size_t slot_count;
    const kvern_tensor *slots[KVERN_MLX_MOST_SLOTS]; // NULL: None
} kvern_mlx_item;

struct kvern_mlx_file {
    kvern_context *context;
    char *path; // a copy
    size_t path_bytes;
    kvern_mlx_layout layout;
    kvern_safetensors tensors; // of mlx-lm
    kvern_mapping *mapping;    // of mlx-bun, with
    kvern_tensor *bun_tensors; // as many as two per item
    kvern_mlx_item *items;
    size_t count, capacity, bun_count;
    kvern_mlx_note *notes;
    size_t note_count;
    int32_t *tokens;
    size_t token_count;
    size_t rows;
};

// Of a tensor of numbers, which is of one of these three.
static inline kvern_type kvern_mlx_type_of(const kvern_tensor *tensor)
{
    if (tensor->dtype == KVERN_DTYPE_F32)
        return KVERN_F32;
    return tensor->dtype == KVERN_DTYPE_BF16 ? KVERN_BF16 : KVERN_F16;
}

// Opens a file over a mapping, to which it holds a reference of its own (kvern_mlx_open).
KVERN_CHECK kvern_status kvern_mlx_read(kvern_mapping *mapping, const char *path,
                                        kvern_mlx_file **out);

// Adds an item, all zero. The pointer is good until the next one. Errors: KVERN_ERR_UNSUPPORTED
// (more than KVERN_MAX_LAYERS), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_mlx_add_item(kvern_mlx_file *file, kvern_mlx_item **out);

// The items of a file of mlx-lm whose tensors are open: mlx_parse.c. What of it was taken stays in
// the file, also on failure.
KVERN_CHECK kvern_status kvern_mlx_parse(kvern_mlx_file *file);

// Those of mlx-bun, whose mapping is open: bun_file.c.
bool kvern_mlx_is_bun(const kvern_mapping *mapping);
KVERN_CHECK kvern_status kvern_mlx_parse_bun(kvern_mlx_file *file);

// Reorders the first `dims` of `count` vectors of `dim` elements: from halves to neighbours,
// element i and i + dims / 2 becoming 2i and 2i + 1, or back. 0 dims: nothing.
void kvern_mlx_reorder(void *vectors, size_t count, size_t dim, size_t element_bytes, size_t dims,
                       bool to_pairs);

// KVERN_ERR_FORMAT with the file and the cache in front of the sentence.
KVERN_CHECK kvern_status kvern_mlx_bad(const kvern_mlx_file *file, const kvern_mlx_item *item,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
