// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_NAIVE_PARTS_H
#define KVERN_TESTS_NAIVE_PARTS_H

// What forward passes in float64 are made of, written as the formulas are, over the dequantized
// tensors of a file: naive_llama.c and naive_gemma3.c put them together. They are what the engine's
// logits are compared with. Running out of memory ends the program.
//
// With noise they disturb, at random, every place where the engine rounds, by about as much as the
// engine does: the spread of a few disturbed runs says how far the engine may be from the exact
// one.

#include "engine/model/model.h"
#include "tests/support/random.h"

typedef struct naive_noise {
    double input; // of a matrix input, as a part of the largest magnitude in its block of 32
    double sum;   // of a product, as a part of the sum of the magnitudes
    double angle; // of a rotation, as a part of its position
    double kv;    // of a stored key or value, as a part of itself
    uint64_t seed;
} naive_noise;

// A forward pass over one row of `count` tokens.
typedef struct naive_run {
    const gguf_file *file;
    const model_facts *facts;
    naive_noise noise;
    test_random random;
    size_t count;
} naive_run;

// noise may be NULL.
naive_run naive_begin(const gguf_file *file, const model_facts *facts, size_t count,
                      const naive_noise *noise);

// n zeros; free().
double *naive_numbers(size_t n);

// The values of a tensor; free().
float *naive_decode(const naive_run *run, const char *name);

// x + a random part of `amplitude`.
double naive_disturbed(naive_run *run, double x, double amplitude);

// y[tokens, rows] = x[tokens, cols] times the transposed matrix; `add`: y += that.
void naive_product(naive_run *run, const float *matrix, const double *x, size_t rows, size_t cols,
                   bool add, double *y);

// The same with the matrix "blk.<layer>.<name>.weight", and ".bias" if there is one.
void naive_layer_product(naive_run *run, size_t layer, const char *name, const double *x,
                         size_t rows, size_t cols, bool add, double *y);

// RMSNorm of `vectors` vectors of n elements, each by itself. y may be x.
void naive_norm(const naive_run *run, const float *weight, const double *x, size_t vectors,
                size_t n, double *y);
void naive_layer_norm(const naive_run *run, size_t layer, const char *name, const double *x,
                      size_t vectors, size_t n, double *y);

// The angle by which pair i of a token at `position` turns.
double naive_angle(naive_run *run, size_t position, size_t i, double base, double factor);

// Rounds what is stored as keys or values.
void naive_store(naive_run *run, double *x, size_t n);

// How a layer attends.
typedef struct naive_attention {
    const model_layer_facts *layer; // heads
    size_t window;                  // 0: everything
    double scale;
    double softcap; // 0: none
} naive_attention;

// Attention of [tokens, heads, head_dim] over k and v [tokens, kv_heads, head_dim], causal.
void naive_layer_attend(const naive_run *run, const naive_attention *how, const double *q,
                        const double *k, const double *v, double *out);

#endif
