// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LINEAR_H
#define KVERN_ENGINE_LINEAR_H

// Matrix products of a model: the weights of a tensor [rows = outputs, cols = inputs] times
// activations [tokens, cols], giving [tokens, rows].
//
//   linear_source_of                           a tensor, or one matrix of a stack of them
//   linear_packed_bytes, linear_arena_create   room for all matrices of a model
//   linear_create                              repacks one matrix into tiles, still quantized
//   linear_input_init, linear_input_row        activations of a chunk, rounded once, shared by
//                                              every matrix that reads them
//   linear_apply                               several products in one parallel region
//   linear_row                                 one dequantized row: the embedding of a token
//
// Same bits: y[t][o] depends on row o of the weights and on token t's activations, and on nothing
// else: not on the number of tokens, their place, the split over threads or the instruction set.
// docs/linear.md states the arithmetic.
//
// Thread rule: weights are immutable after linear_create and may be used by any number of threads.

#include "engine/base/error.h"
#include "engine/weights/weights.h"

#include <kvern/context.h>

// Memory of the repacked weights of a model: one mapping, so that huge pages can back many small
// matrices.
typedef struct linear_arena linear_arena;

// What activations are rounded to before they meet quantized weights, in blocks of 32 inputs with
// one float32 scale. Matrices with float weights read activations as they are.
typedef enum linear_precision {
    LINEAR_INT8 = 0,  // twice as fast when many tokens are computed at once; docs/linear.md has
                      // what it costs
    LINEAR_INT16 = 1, // no visible error; the same speed when weights come from memory
} linear_precision;

// How a matrix reads activations: follows from its type and precision.
typedef enum linear_format {
    LINEAR_FORMAT_INT8 = 0,
    LINEAR_FORMAT_INT16 = 1,
    LINEAR_FORMAT_F32 = 2,
} linear_format;

#define LINEAR_FORMATS 3
#define LINEAR_FORMAT_BIT(format) (1u << (format))

typedef struct linear_tile linear_tile;

// One matrix. A value: copying it copies a view of the same packed weights, which belong to the
// arena. Fields may be read.
typedef struct linear {
    size_t rows;         // outputs
    size_t cols;         // inputs
    uint32_t type;       // an element_type
    uint32_t scale_type; // of affine types
    uint32_t group;      // of affine types: inputs that share a scale; else 0
    linear_format format;
    const unsigned char *tiles; // ceil(rows / 32) tiles
    size_t tile_bytes;
    void (*kernel)(const linear_tile *tile);
} linear;

// Matrices of one shape and type behind each other in the arena, such as the experts of a layer.
typedef struct linear_stack {
    linear first;
    size_t count;  // 0: there is none
    size_t stride; // bytes of each in the arena
} linear_stack;

static inline linear linear_stack_at(const linear_stack *stack, size_t index)
{
    linear matrix = stack->first;
    matrix.tiles += index * stack->stride;
    return matrix;
}

// A matrix as it lies in memory or in a model's file: rows behind each other.
typedef struct linear_source {
    text_view name; // for messages
    uint32_t type;  // an element_type
    const void *data;
    size_t bytes; // of data
    size_t rows;
    size_t cols;
    weights_groups groups; // of affine types, and of MXFP4 with scales of its own
    // Of q and k, where the file has the two halves of a head's rotating rows behind each other and
    // the engine wants them in turn (row i of the first half, row i of the second, i + 1 of the
    // first, ...): the rows of a head. 0: rows stay where they are.
    size_t interleave;
    // Of a part of a matrix that is made of runs of `run_rows` rows, whose beginnings are
    // `run_stride` rows apart in the data: `rows` and `bytes` count the part alone. 0: rows follow
    // each other.
    size_t run_rows;
    size_t run_stride;
    const weights *file; // whose pages are given back once they are packed; NULL: none
} linear_source;

// The matrix of a tensor of one or two dimensions (index 0), or number `index` of those that lie
// behind each other in one of three, such as the weights of experts. Its shape is checked when it
// is measured. Errors: KVERN_ERR_UNSUPPORTED (more dimensions, a type that cannot be decoded),
// KVERN_ERR_RANGE (no such index), KVERN_ERR_OVERFLOW.
KVERN_CHECK kvern_status linear_source_of(const weights_tensor *tensor, size_t index,
                                          linear_source *out, engine_error *error);

// Narrows a source to `rows` rows from row `first` on.
void linear_source_narrow(linear_source *source, size_t first, size_t rows);

// Bytes that a matrix takes in an arena: those of the file, rows rounded up to a multiple of 32,
// and the whole to a multiple of 64. Errors: KVERN_ERR_UNSUPPORTED (a type that has no products),
// KVERN_ERR_FORMAT (cols are no multiple of the type's block or do not fit source->bytes, or rows
// cannot be interleaved), KVERN_ERR_OVERFLOW.
KVERN_CHECK kvern_status linear_packed_bytes(const linear_source *source, size_t *bytes,
                                             engine_error *error);

// Room for `bytes` bytes of packed weights (a sum of linear_packed_bytes; 0 is allowed). Memory is
// taken as it is written. On failure *out is NULL. Errors: KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status linear_arena_create(size_t bytes, linear_arena **out, engine_error *error);

// Ends the arena and with it every matrix in it. NULL is allowed.
void linear_arena_destroy(linear_arena *arena);

// Packs a matrix into the arena. While it goes on, pages of source->file that have been read are
// given back to the system (weights_drop_pages), so that the weights are not held twice. `features`
// are the KVERN_CPU_ bits that the products may use. On failure *out and the arena are unchanged.
// Errors: those of linear_packed_bytes, and KVERN_ERR_MEMORY when the arena has no room left.
KVERN_CHECK kvern_status linear_create(linear_arena *arena, const linear_source *source,
                                       linear_precision precision, uint32_t features,
                                       const kvern_executor *executor, linear *out,
                                       engine_error *error);

// Writes row `row` (less than weights->rows) to out[cols]: the values of engine_dequantize.
void linear_row(const linear *weights, size_t row, float *out);

// Activations of `tokens` tokens in the formats that the matrices ask for, in memory of the
// caller's.
typedef struct linear_input {
    size_t cols;
    size_t tokens;
    unsigned char *records[LINEAR_FORMATS]; // NULL for a format that was not asked for
    void (*round)(const float *x, size_t cols, linear_format format, unsigned char *records,
                  size_t stride);
} linear_input;

// Bytes that linear_input_init needs. `formats` is a set of LINEAR_FORMAT_BIT(weights.format).
// Errors: KVERN_ERR_OVERFLOW.
KVERN_CHECK kvern_status linear_input_bytes(size_t cols, size_t tokens, uint32_t formats,
                                            size_t *bytes);

// Prepares *input over `memory` (aligned to 64 bytes, linear_input_bytes long, borrowed while the
// input is used). Its rows have no values yet.
void linear_input_init(linear_input *input, void *memory, size_t cols, size_t tokens,
                       uint32_t formats, uint32_t features);

// Sets the activations of one token from x[cols]. Different tokens may be set by different threads
// at the same time. A value that is not finite makes every output that reads its block a NaN.
void linear_input_row(const linear_input *input, size_t token, const float *x);

// One product: y[t * y_stride + o] for every token t of the input and every row o of the weights.
typedef struct linear_job {
    const linear *weights;
    const linear_input *input; // every row set, weights->cols wide, with weights->format
    float *y;
    size_t y_stride;   // floats between tokens, at least weights->rows
    bool add;          // y += product (one more rounding) instead of y = product
    const float *bias; // [weights->rows] added to y at last (one more rounding); NULL: none
} linear_job;

// Runs `count` independent products in one call of the executor (NULL: on this thread). Outputs
// must not overlap each other or the inputs. Allocates nothing. Errors: KVERN_ERR_ARGUMENT (an
// input does not fit its weights, or a stride is too small); nothing is written then.
KVERN_CHECK kvern_status linear_apply(const linear_job *jobs, size_t count,
                                      const kvern_executor *executor);

#endif
