// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_TENSORS_H
#define KVERN_ENGINE_MODEL_TENSORS_H

// Taking a model's tensors out of its file, with their shapes checked. Every tensor of the file
// must be taken, once: one that nobody knows would change what the model computes.

#include "engine/kernels/linear/linear.h"
#include "engine/model/model.h"

typedef struct model_tensors {
    // Set by the caller before model_tensors_begin; the rest zero.
    const gguf_file *file;
    const kvern_executor *executor;
    uint32_t features;       // for the products
    model_progress progress; // may be NULL
    void *user;
    engine_error *error;

    linear_arena *arena; // the caller's after model_tensors_begin
    size_t arena_bytes;
    uint32_t formats; // of the matrices taken so far: a set of LINEAR_FORMAT_BIT
    uint64_t done_bytes;
    uint64_t total_bytes;
    const gguf_tensor **taken; // [taken_count], room for every tensor of the file
    size_t taken_count;
} model_tensors;

// Makes the arena, with room for every matrix of the file. On failure nothing is owned. Errors:
// KVERN_ERR_UNSUPPORTED, KVERN_ERR_FORMAT, KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status model_tensors_begin(model_tensors *tensors);

// Releases what only loading needed; not the arena.
void model_tensors_end(model_tensors *tensors);

// Tensor names of layer `layer`: "blk.<layer>.<name>", written to `buffer`, which is returned.
typedef char model_tensor_name[96];
const char *model_layer_tensor(model_tensor_name buffer, size_t layer, const char *name);

// Takes a vector of n elements, decoded to f32; owned by the caller (free). On failure *out is
// unchanged. Errors: KVERN_ERR_FORMAT (absent, another shape), KVERN_ERR_UNSUPPORTED (an element
// type that cannot be decoded), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status model_tensors_vector(model_tensors *tensors, const char *name, size_t n,
                                              float **out);

// A vector of a layer: the name after "blk.<layer>.", its elements, where it goes.
typedef struct model_layer_vector {
    const char *name;
    size_t n;
    float **out;
} model_layer_vector;

// Takes several of them. What was taken before a failure stays.
KVERN_CHECK kvern_status model_tensors_layer_vectors(model_tensors *tensors, size_t layer,
                                                     const model_layer_vector *vectors,
                                                     size_t count);

// Takes a matrix [rows, cols], packed into the arena. Same failures.
KVERN_CHECK kvern_status model_tensors_matrix(model_tensors *tensors, const char *name, size_t rows,
                                              size_t cols, linear *out);

// Checks that every tensor has been taken. KVERN_ERR_UNSUPPORTED names the first that was not.
KVERN_CHECK kvern_status model_tensors_all_taken(model_tensors *tensors);

#endif
