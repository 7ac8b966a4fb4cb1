// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_OPS_H
#define KVERN_ENGINE_OPS_H

// The operations of a forward pass between the matrix products and the attention.
//
// Every output element has one fixed order of IEEE f32 operations, stated here and in
// docs/engine.md, so every kernel set gives the same bits. fma(a, b, c) is a * b + c rounded once.

#include <stddef.h>
#include <stdint.h>

// A set of kernels for one instruction set. None of them allocates or keeps anything; inputs and
// outputs do not overlap except where one pointer is both.
typedef struct engine_ops {
    // RMSNorm of one token: out[i] = (x[i] * r) * weight[i] with r = 1 / sqrt(s / n + epsilon).
    // s is the sum of squares over 16 lanes: lane j takes the elements j, j + 16, ... ascending,
    // lane = fma(x, x, lane); then lane j gains lane j + 8, then j + 4, j + 2, j + 1.
    void (*rms_norm)(const float *x, const float *weight, float epsilon, size_t n, float *out);

    // Rotates the pairs (x[2i], x[2i + 1]) of `heads` heads that lie `stride` elements apart:
    //     x[2i]     = fma(x[2i], cos[i], -(x[2i + 1] * sin[i]))
    //     x[2i + 1] = fma(x[2i + 1], cos[i], x[2i] * sin[i])
    // `table` is one row of an engine_rope table: dim values cos, dim values sin, each pair's value
    // twice, the even sines negated. dim is even.
    void (*rotate_pairs)(float *x, size_t heads, size_t stride, const float *table, size_t dim);

    // The same rotation of the pairs (x[i], x[i + dim / 2]). `table`: dim / 2 values cos, dim / 2
    // values sin.
    void (*rotate_halves)(float *x, size_t heads, size_t stride, const float *table, size_t dim);

    // x[i] = x[i] + y[i]
    void (*add)(float *x, const float *y, size_t n);

    // x[i] = fma(scale, y[i], x[i])
    void (*add_scaled)(float *x, float scale, const float *y, size_t n);

    // x[i] = x[i] * y[i]
    void (*multiply)(float *x, const float *y, size_t n);
} engine_ops;

// The best kernels within `features` (kvern_context_cpu_features). Static.
const engine_ops *engine_ops_select(uint32_t features);

#endif
