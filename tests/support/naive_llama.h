// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_NAIVE_LLAMA_H
#define KVERN_TESTS_NAIVE_LLAMA_H

// A llama forward pass in float64, written as the formulas are, over the dequantized tensors of a
// file. It is what the engine's logits are compared with.
//
// With `noise` it disturbs, at random, every place where the engine rounds, by about as much as the
// engine does: the spread of a few disturbed runs says how far the engine may be from the exact
// one.

#include "engine/model.h"

typedef struct naive_noise {
    double input; // of a matrix input, as a part of the largest magnitude in its block of 32
    double sum;   // of a product, as a part of the sum of the magnitudes
    double angle; // of a rotation, as a part of its position
    double kv;    // of a stored key or value, as a part of itself
    uint64_t seed;
} naive_noise;

// Logits [count, vocabulary] of one row of tokens. noise may be NULL. Running out of memory ends
// the program.
void naive_llama_logits(const gguf_file *file, const model_facts *facts, const int32_t *tokens,
                        size_t count, const naive_noise *noise, double *logits);

#endif
