// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_FORWARD_H
#define KVERN_ENGINE_FORWARD_H

// What every family's forward pass is made of. A family (engine/llama.c) strings these steps
// together; model_forward calls it.
//
// Steps over tokens (norms, rotations, roundings) and matrix products are separate parallel
// regions. A token's values never meet another token's outside kvern_read_attend.

#include "engine/linear/linear.h"
#include "engine/model.h"
#include "engine/ops.h"
#include "engine/rope.h"

// Scratch of a forward pass: one block of memory, each array with room for max_tokens tokens.
struct model_workspace {
    size_t max_tokens;
    size_t max_rows;
    float *x;       // [tokens, width] the residual stream
    float *q;       // [tokens, heads, head_dim]
    float *k;       // [tokens, kv_heads, head_dim]
    float *v;       // [tokens, kv_heads, value_dim]
    float *mixed;   // [tokens, heads, value_dim] what attention gives
    float *gate;    // [tokens, feed_forward]
    float *up;      // [tokens, feed_forward]
    float *rotary;  // [tokens, engine_rope_row] the rotary table of the step
    float *scratch; // [tasks, scratch_stride] one row for every task of a step over tokens
    size_t scratch_stride;
    size_t tasks;
    void *input_memory; // of `input`
    linear_input input; // what the next products read
    void *memory;       // the block that all of these lie in
};

typedef struct forward_pass {
    const model_facts *facts;
    kvern_executor executor;
    const engine_ops *ops;
    uint32_t features;
    const engine_rope *rope;
    model_workspace *workspace;
    kvern_state *state; // with an open step
    size_t tokens;      // of the step, all rows
} forward_pass;

// Work on the tokens from `begin` to `end - 1`; `scratch` has room for the widest of them.
typedef void (*forward_work)(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                             float *scratch);

// Runs `work` over `tokens` tokens of `elements` values each: in parallel when there is enough.
void forward_each_token(const forward_pass *pass, size_t tokens, size_t elements, forward_work work,
                        const void *arg);

// Begins workspace->input for `tokens` tokens of `cols` values that `count` matrices will read.
void forward_begin_input(const forward_pass *pass, size_t tokens, size_t cols,
                         const linear *const *matrices, size_t count);

// workspace->input = RMSNorm(x, weight), for the products of `matrices`.
void forward_norm_input(const forward_pass *pass, const float *weight,
                        const linear *const *matrices, size_t count);

// workspace->input = the rows of `values`, which are as wide as `matrix` reads.
void forward_plain_input(const forward_pass *pass, const float *values, const linear *matrix);

// workspace->input = silu(gate) * up, for `matrix`. gate is overwritten.
void forward_swiglu_input(const forward_pass *pass, const linear *matrix);

// Rotates q and k to the positions of the step.
void forward_rotate(const forward_pass *pass);

// Appends k and v to a layer of the state and attends q: workspace->mixed.
KVERN_CHECK kvern_status forward_attend(const forward_pass *pass, size_t layer,
                                        engine_error *error);

// A product of workspace->input: y = weights * input, rows packed. With `add`, y += product.
linear_job forward_product(const forward_pass *pass, const linear *weights, float *y, bool add);

// Runs products together.
KVERN_CHECK kvern_status forward_apply(const forward_pass *pass, const linear_job *jobs,
                                       size_t count, engine_error *error);

#endif
