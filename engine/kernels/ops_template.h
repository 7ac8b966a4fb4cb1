// SPDX-License-Identifier: MIT
// The kernels of engine/kernels/ops.h, included once per instruction set: ops_plain.c, ops_avx2.c,
// ops_avx512.c define OPS(name), which adds their suffix. The loops run over blocks of 16 with a
// constant count, so that the compiler turns them into vectors of whatever width the file is
// compiled for; as each element has its own operations in a stated order, the bits are the same.

#include "engine/kernels/ops_kernels.h"

#include <math.h>
#include <stddef.h>

#define OPS_LANES 16

static float OPS(sum_squares)(const float *restrict x, size_t n)
{
    float lane[OPS_LANES] = {0};
    size_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES) {
        for (size_t j = 0; j < OPS_LANES; j++) {
            lane[j] = fmaf(x[i + j], x[i + j], lane[j]);
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        lane[j] = fmaf(x[i + j], x[i + j], lane[j]);
    }
    for (size_t step = OPS_LANES / 2; step > 0; step /= 2) {
        for (size_t j = 0; j < step; j++) {
            lane[j] = lane[j] + lane[j + step];
        }
    }
    return lane[0];
}

void OPS(engine_rms_norm)(const float *restrict x, const float *restrict weight, float epsilon,
                          size_t n, float *restrict out)
{
    float scale = 1.0f / sqrtf(OPS(sum_squares)(x, n) / (float)n + epsilon);
    size_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES) {
        for (size_t j = 0; j < OPS_LANES; j++) {
            out[i + j] = x[i + j] * scale * weight[i + j];
        }
    }
    for (; i < n; i++) {
        out[i] = x[i] * scale * weight[i];
    }
}

static void OPS(rotate_head)(float *restrict x, const float *restrict cosines,
                             const float *restrict sines, size_t dim)
{
    size_t i = 0;
    for (; i + OPS_LANES <= dim; i += OPS_LANES) {
        float turned[OPS_LANES];
        for (size_t j = 0; j < OPS_LANES; j += 2) {
            turned[j] = x[i + j + 1];
            turned[j + 1] = x[i + j];
        }
        for (size_t j = 0; j < OPS_LANES; j++) {
            x[i + j] = fmaf(x[i + j], cosines[i + j], turned[j] * sines[i + j]);
        }
    }
    for (; i < dim; i += 2) {
        float even = x[i];
        float odd = x[i + 1];
        x[i] = fmaf(even, cosines[i], odd * sines[i]);
        x[i + 1] = fmaf(odd, cosines[i + 1], even * sines[i + 1]);
    }
}

void OPS(engine_rotate_pairs)(float *restrict x, size_t heads, size_t stride,
                              const float *restrict table, size_t dim)
{
    for (size_t head = 0; head < heads; head++) {
        OPS(rotate_head)(x + head * stride, table, table + dim, dim);
    }
}

static void OPS(rotate_head_halves)(float *restrict low, float *restrict high,
                                    const float *restrict cosines, const float *restrict sines,
                                    size_t pairs)
{
    for (size_t i = 0; i < pairs; i++) {
        float first = low[i];
        float second = high[i];
        low[i] = fmaf(first, cosines[i], -(second * sines[i]));
        high[i] = fmaf(second, cosines[i], first * sines[i]);
    }
}

void OPS(engine_rotate_halves)(float *restrict x, size_t heads, size_t stride,
                               const float *restrict table, size_t dim)
{
    size_t pairs = dim / 2;
    for (size_t head = 0; head < heads; head++) {
        float *low = x + head * stride;
        size_t i = 0;
        for (; i + OPS_LANES <= pairs; i += OPS_LANES) {
            OPS(rotate_head_halves)
            (low + i, low + pairs + i, table + i, table + pairs + i, OPS_LANES);
        }
        OPS(rotate_head_halves)
        (low + i, low + pairs + i, table + i, table + pairs + i, pairs - i);
    }
}

void OPS(engine_add)(float *restrict x, const float *restrict y, size_t n)
{
    size_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES) {
        for (size_t j = 0; j < OPS_LANES; j++) {
            x[i + j] += y[i + j];
        }
    }
    for (; i < n; i++) {
        x[i] += y[i];
    }
}

void OPS(engine_add_scaled)(float *restrict x, float scale, const float *restrict y, size_t n)
{
    size_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES) {
        for (size_t j = 0; j < OPS_LANES; j++) {
            x[i + j] = fmaf(scale, y[i + j], x[i + j]);
        }
    }
    for (; i < n; i++) {
        x[i] = fmaf(scale, y[i], x[i]);
    }
}

void OPS(engine_multiply)(float *restrict x, const float *restrict y, size_t n)
{
    size_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES) {
        for (size_t j = 0; j < OPS_LANES; j++) {
            x[i + j] *= y[i + j];
        }
    }
    for (; i < n; i++) {
        x[i] *= y[i];
    }
}
