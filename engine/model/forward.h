// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_FORWARD_H
#define KVERN_ENGINE_FORWARD_H

// What every family's forward pass is made of. A family (engine/model/families/llama.c) strings
// these steps together; model_forward calls it.
//
// Steps over tokens (norms, rotations, roundings) and matrix products are separate parallel
// regions. A token's values never meet another token's outside kvern_read_attend.

#include "engine/kernels/linear/linear.h"
#include "engine/kernels/ops.h"
#include "engine/kernels/rope.h"
#include "engine/model/experts_scratch.h"
#include "engine/model/head_products.h"
#include "engine/model/model.h"
#include "engine/model/scratch.h"

// Scratch of a forward pass: one block of memory, each array with room for max_tokens tokens.
struct model_workspace {
    size_t max_tokens;
    size_t max_rows;
    size_t tokens;                  // of the newest step; 0 while it runs and after a failure
    float *array[SCRATCH_ARRAYS];   // [tokens, its width]: what the families' layers ask for
    float *rotary[MODEL_MAX_ROPES]; // [tokens, engine_rope_row] the rotary tables of the step
    float *scratch; // [tasks, scratch_stride] one row for every task of a step over tokens
    size_t scratch_stride;
    size_t tasks;
    experts_scratch experts;   // of models with experts
    head_scratch heads;        // of models with a matrix for each head
    int64_t *selected;         // [tokens, top_k] positions that an indexer selected
    int64_t *selected_counts;  // [tokens]
    kvern_selection selection; // of both, made by the latest layer with an indexer
    void *input_memory;        // of `input`
    linear_input input;        // what the next products read
    void *memory;              // the block that all of these lie in
};

struct forward_pass {
    const model_facts *facts;
    kvern_executor executor;
    const engine_ops *ops;
    uint32_t features;
    const engine_rope *ropes; // [facts->ropes]
    model_workspace *workspace;
    kvern_state *state; // with an open step
    size_t tokens;      // of the step, all rows
};

// Work on the tokens from `begin` to `end - 1`; `scratch` has room for the widest of them.
typedef void (*forward_work)(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                             float *scratch);

// Runs `work` over `tokens` tokens of `elements` values each: in parallel when there is enough.
void forward_each_token(const forward_pass *pass, size_t tokens, size_t elements, forward_work work,
                        const void *arg);

// Begins workspace->input for `tokens` tokens of `cols` values that `count` matrices will read.
void forward_begin_input(const forward_pass *pass, size_t tokens, size_t cols,
                         const linear *const *matrices, size_t count);

// workspace->input = RMSNorm(x, weight), for the products of `matrices`. Without a weight: x.
void forward_norm_input(const forward_pass *pass, const float *weight,
                        const linear *const *matrices, size_t count);

// workspace->input = the rows of `values`, which are as wide as `matrix` reads.
void forward_plain_input(const forward_pass *pass, const float *values, const linear *matrix);

// An activation function over an array: kvern_silu_array, kvern_gelu_array.
typedef void (*forward_activation)(uint32_t features, size_t n, const float *x, float *y);

// workspace->input = activation(gate) * values, for `matrix`, which is as wide; values of one token
// are `stride` floats behind those of the one before. The gate is that of the workspace, and
// overwritten.
void forward_gated_input(const forward_pass *pass, forward_activation activation,
                         const float *values, size_t stride, const linear *matrix);

// x += RMSNorm(values, weight); values [tokens, width].
void forward_add_norm(const forward_pass *pass, const float *values, const float *weight);

// Norms every head of q and of k of a layer by itself, RMSNorm over head_dim: of q alone in a
// shared layer.
void forward_norm_heads(const forward_pass *pass, size_t layer, const float *q_weight,
                        const float *k_weight);

// Norms `heads` vectors of `dim` values of every token by themselves, in place. Without a weight:
// each is divided by its root mean square.
void forward_norm_parts(const forward_pass *pass, float *values, size_t heads, size_t dim,
                        const float *weight);

// Rotates q and k to the positions of the step, as the layer does; q alone in a shared layer.
void forward_rotate(const forward_pass *pass, size_t layer);

// What the KV cache keeps of a layer.
const kvern_layer *forward_plan(const forward_pass *pass, size_t layer);

// Appends k and v to a layer of the state, or finds what the donor of a shared layer appended. On
// success *read is the caller's (kvern_read_release).
KVERN_CHECK kvern_status forward_append(const forward_pass *pass, size_t layer, kvern_read **read,
                                        engine_error *error);

// Attends the layer's queries to what a read sees, and to sinks (NULL: none): workspace mixed.
KVERN_CHECK kvern_status forward_attend(const forward_pass *pass, size_t layer, kvern_read *read,
                                        const float *sinks, engine_error *error);

// A product of workspace->input: y = weights * input, rows packed. With `add`, y += product. A bias
// is added at last; NULL: none.
linear_job forward_product(const forward_pass *pass, const linear *weights, const float *bias,
                           float *y, bool add);

// Runs products together.
KVERN_CHECK kvern_status forward_apply(const forward_pass *pass, const linear_job *jobs,
                                       size_t count, engine_error *error);

#endif
