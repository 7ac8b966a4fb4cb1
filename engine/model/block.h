// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_BLOCK_H
#define KVERN_ENGINE_BLOCK_H

// What the layers of every family here have in common: attention between four matrices, and a gated
// feed-forward network of three. A family adds its norms and its activation.

#include "engine/model/forward.h"
#include "engine/model/model_tensors.h"

typedef struct block {
    linear q;      // [heads * head_dim, width]
    linear k;      // [kv_heads * head_dim, width]
    linear v;      // [kv_heads * value_dim, width]
    linear output; // [width, heads * value_dim]
    linear gate;   // [feed_forward, width]
    linear up;     // [feed_forward, width]
    linear down;   // [width, feed_forward]
} block;

// Takes the matrices of a layer out of the file. Failures: those of model_tensors_matrix.
KVERN_CHECK kvern_status block_load(model_tensors *tensors, const model_facts *facts, size_t layer,
                                    block *out);

// workspace q, k, v = the projections of RMSNorm(x, norm).
KVERN_CHECK kvern_status block_project(const block *block, const forward_pass *pass,
                                       const float *norm, engine_error *error);

// Appends k and v and attends q; y [tokens, width] is the output matrix times what attention gives,
// or with `add` y grows by that.
KVERN_CHECK kvern_status block_attend(const block *block, const forward_pass *pass, size_t layer,
                                      float *y, bool add, engine_error *error);

// y = down * (activation(gate * n) * (up * n)) with n = RMSNorm(x, norm); with `add` y grows by it.
KVERN_CHECK kvern_status block_feed_forward(const block *block, const forward_pass *pass,
                                            const float *norm, forward_activation activation,
                                            float *y, bool add, engine_error *error);

#endif
