// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_LINEAR_CASE_H
#define KVERN_TESTS_SUPPORT_LINEAR_CASE_H

// Matrix products in few words, for tests. Whatever fails inside fails the test.

#include "engine/kernels/linear/linear.h"
#include "tests/support/random.h"

// A kernel set and the features that choose it.
typedef struct linear_variant {
    const char *name;
    uint32_t features;
} linear_variant;

#define LINEAR_VARIANTS 5
extern const linear_variant linear_variants[LINEAR_VARIANTS]; // the first one is plain C

// The machine has it, and KVERN_CPU allows it.
bool linear_variant_runs(const linear_variant *variant);

// A matrix in an arena of its own (linear_arena_destroy).
typedef struct packed {
    linear_arena *arena;
    linear weights;
} packed;

packed pack(const weights_tensor *tensor, linear_precision precision, uint32_t features,
            const kvern_executor *executor);

// Activations x[tokens, cols] in memory of their own (free).
typedef struct prepared {
    void *memory;
    linear_input input;
} prepared;

prepared prepare(const float *x, size_t cols, size_t tokens, uint32_t formats, uint32_t features);

// y[tokens, rows] of one product.
void multiply(const linear *weights, const float *x, size_t tokens, uint32_t features,
              const kvern_executor *executor, float *y);

// Room for `count` floats (free).
float *floats(size_t count);

// Activations with outliers, zero blocks, tiny and large blocks (free).
float *random_activations(size_t tokens, size_t cols, test_random *random);

#endif
