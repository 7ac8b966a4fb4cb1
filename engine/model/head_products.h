// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_HEAD_PRODUCTS_H
#define KVERN_ENGINE_HEAD_PRODUCTS_H

// Products of vectors of heads with a matrix for each head.

#include "engine/kernels/linear/linear.h"
#include "engine/model/scratch.h"

typedef struct forward_pass forward_pass;

// The part of a workspace that they need.
typedef struct head_scratch {
    head_sizes sizes;
    linear *matrices;     // [heads]
    linear_job *jobs;     // [heads]
    linear_input *inputs; // [heads]
    unsigned char *input; // what these are made in
} head_scratch;

// Measures the scratch of `max_tokens` tokens (memory NULL), or points it into `memory`, behind
// `*bytes` bytes, and adds to them. `formats` are those of the model's matrices. False on overflow.
bool head_scratch_carve(head_scratch *scratch, unsigned char *memory, size_t *bytes,
                        size_t max_tokens, uint32_t formats);

// Vectors of heads: element d of head h of token t is at [t * token + h * head + d].
typedef struct head_vectors {
    float *data;
    size_t token;
    size_t head;
} head_vectors;

// y = matrix of the head * x, for every head of the stack and every token of the pass.
KVERN_CHECK kvern_status forward_heads(const forward_pass *pass, const linear_stack *stack,
                                       head_vectors x, head_vectors y, engine_error *error);

#endif
