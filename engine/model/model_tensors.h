// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_TENSORS_H
#define KVERN_ENGINE_MODEL_TENSORS_H

// The tensors of a model. A family says which ones a layer has and where they go (a list of
// specifications); the same list is checked against the file before anything is loaded, measured,
// and loaded. Every tensor of the file must be on a list: one that nobody knows would change what
// the model computes.

#include "engine/kernels/linear/linear.h"
#include "engine/model/layer_inputs.h"
#include "engine/model/model.h"

#define MODEL_MAX_SPECS 32
#define MODEL_NAME_BYTES 96

// What a format may store in another way than the engine wants it; see weights_format.
typedef enum model_tensor_kind {
    MODEL_TENSOR_PLAIN = 0,
    MODEL_TENSOR_NORM = 1,   // a norm's weight, to which the family may want 1 added
    MODEL_TENSOR_ROTATED = 2 // rows that rotate, in heads: see model_family.rope_style
} model_tensor_kind;

// One tensor: exactly one of `matrix`, `stack` and `vector` is set, or none, for a tensor that some
// files have and nothing reads. All belong to whoever made the list; a vector is released with
// free().
//
// A stack of `count` matrices is a tensor of three dimensions, "blk.3.ffn_gate_exps.weight", or one
// tensor for each, "blk.3.ffn_gate.7.weight". A vector with a count has that many rows of cols.
typedef struct tensor_spec {
    char name[MODEL_NAME_BYTES]; // the engine's
    size_t rows;                 // 1 for a vector
    size_t cols;
    size_t count; // of a stack; of a vector with one for each matrix of a stack; otherwise 0
    linear *matrix;
    linear_stack *stack;
    float **vector;
    model_tensor_kind kind;
    size_t head; // of MODEL_TENSOR_ROTATED: rows of a head
    bool optional;
    bool unread;
    // Of a matrix that is a part of a fused one, whose name the spec has: `rows` rows of its
    // `fused_rows`, from `first_row` on. The parts of a tensor are listed all, and the first one
    // begins with row 0. 0: the tensor is the matrix. Of a vector elements count as rows, `cols` of
    // the `fused_rows`.
    size_t fused_rows;
    size_t first_row;
    // Of a part that has some rows of each of so many equal pieces of the tensor, heads for
    // example, in all of which it has the same place: `first_row` is that in the first piece.
    size_t pieces;
    bool flat;   // of a stack of parts: the tensor has two dimensions, `fused_rows` rows for each
    bool turned; // of such a stack: its matrices are [cols, rows], the file's [rows, cols]. Of a
                 // stack that is not flat: the file's are [cols, rows], and of a fused one parts
                 // are taken when they have been turned
} tensor_spec;

typedef struct tensor_specs {
    const char *prefix; // "blk.3.", or ""
    size_t count;
    tensor_spec spec[MODEL_MAX_SPECS];
    // Norms of the heads of queries and of keys, which are balanced (key_balance.h); NULL: none
    float *const *query_norm;
    float *const *key_norm;
} tensor_specs;

// Adds a tensor and returns it, for `kind`, `head` and `optional`. The list has room for all that a
// family asks for.
tensor_spec *tensor_spec_matrix(tensor_specs *list, const char *name, size_t rows, size_t cols,
                                linear *out);
// The same for `rows` rows of a matrix of `fused_rows`, from `first_row` on.
tensor_spec *tensor_spec_part(tensor_specs *list, const char *name, size_t fused_rows,
                              size_t first_row, size_t rows, size_t cols, linear *out);
// `name` ends with "_exps.weight".
tensor_spec *tensor_spec_stack(tensor_specs *list, const char *name, size_t count, size_t rows,
                               size_t cols, linear_stack *out);
tensor_spec *tensor_spec_vector(tensor_specs *list, const char *name, size_t n, float **out);
void tensor_spec_norm(tensor_specs *list, const char *name, size_t n, float **out);
// One that may be there and is not read: a matrix of so many rows, or a vector of cols where `rows`
// is 1.
void tensor_spec_unread(tensor_specs *list, const char *name, size_t rows, size_t cols);

// Everything that a model of these facts has outside of its layers, and the layers themselves.
typedef struct model_parts {
    linear embedding;       // [vocabulary, width]
    linear output;          // [vocabulary, width]; the embedding itself when tied
    float *output_norm;     // [width]
    float *rope_divisors;   // [rope dim / 2], or NULL; used while loading
    float *unused_divisors; // the same, of contexts of another length
    layer_inputs inputs;    // where facts have them
    void *layers;           // [layers] of the family's objects
} model_parts;

// Makes the list of the tensors outside of layers (`index` below 0) or of layer `index`.
// `prefix[MODEL_NAME_BYTES]` holds the names' beginning.
void model_list_tensors(const model_facts *facts, model_parts *parts, long index, char *prefix,
                        tensor_specs *list);

// Checks that the file has every tensor that a model of these facts needs, in the right shape and
// with elements that can be computed with, and no other. Reads no weight. Errors: KVERN_ERR_FORMAT
// (a tensor is missing or has another shape), KVERN_ERR_UNSUPPORTED (an element type, or a tensor
// that nobody knows), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY; the text names the tensor. On success
// *packed_bytes is what the matrices take in memory.
KVERN_CHECK kvern_status model_check_tensors(const weights *source, const model_facts *facts,
                                             size_t *packed_bytes, engine_error *error);

// How tensors are loaded.
typedef struct model_loader {
    const weights *source;
    const model_facts *facts;
    const kvern_executor *executor;
    uint32_t features;       // for the products
    bool precise;            // every matrix reads activations in 16 bits
    model_progress progress; // may be NULL
    void *user;
    engine_error *error;
    linear_arena *arena;
    uint32_t formats; // of the matrices loaded so far: a set of LINEAR_FORMAT_BIT
    size_t most_cols; // of these
    uint64_t done_bytes;
} model_loader;

// Loads what is outside of layers (`index` below 0) or layer `index`. A failure leaves a part.
KVERN_CHECK kvern_status model_load_tensors(model_loader *loader, model_parts *parts, long index);

// Releases the vectors of parts that are all zero, loaded, or loaded in part; not parts->layers.
void model_unload_tensors(const model_facts *facts, model_parts *parts);

#endif
