// SPDX-License-Identifier: MIT
// The definition of the kernels of recurrent layers (docs/arithmetic.md, "Recurrent layers").
#include "src/recurrent/recurrence_kernels.h"

#include "src/base/assert.h"
#include "src/math/sigmoid.h"
#include "src/math/softplus.h"
#include "src/math/sum.h"

#include <math.h>
#include <string.h>

#define BLOCK KVERN_RECURRENCE_BLOCK

// ---- One token through one block of 32 values: s is [k_dim][32]. ----

// S = S * decay, and m = S k. decay_step is 1 for a decay per channel, else 0.
static void decay_and_recall(size_t k_dim, float *s, const float *decay, size_t decay_step,
                             const float *k, float m[BLOCK])
{
    for (size_t e = 0; e < BLOCK; e++)
        m[e] = 0;
    for (size_t i = 0; i < k_dim; i++) {
        for (size_t e = 0; e < BLOCK; e++) {
            s[i * BLOCK + e] *= decay[i * decay_step];
            m[e] = fmaf(s[i * BLOCK + e], k[i], m[e]);
        }
    }
}

// S = S + k d^T.
static void store_outer(size_t k_dim, float *s, const float *k, const float d[BLOCK])
{
    for (size_t i = 0; i < k_dim; i++) {
        for (size_t e = 0; e < BLOCK; e++)
            s[i * BLOCK + e] = fmaf(k[i], d[e], s[i * BLOCK + e]);
    }
}

// y = S q.
static void read_out(size_t k_dim, const float *s, const float *q, float y[BLOCK])
{
    for (size_t e = 0; e < BLOCK; e++)
        y[e] = 0;
    for (size_t i = 0; i < k_dim; i++) {
        for (size_t e = 0; e < BLOCK; e++)
            y[e] = fmaf(s[i * BLOCK + e], q[i], y[e]);
    }
}

// v of a block; zero behind v_dim.
static void load_values(const kvern_recurrence_steps *steps, size_t t, size_t first, float v[BLOCK])
{
    for (size_t e = 0; e < BLOCK; e++)
        v[e] = first + e < steps->v_dim ? steps->v[t * steps->v_stride + first + e] : 0;
}

static void store_outputs(const kvern_recurrence_steps *steps, size_t t, size_t first,
                          const float y[BLOCK])
{
    for (size_t e = 0; e < BLOCK && first + e < steps->v_dim; e++)
        steps->y[t * steps->y_stride + first + e] = y[e];
}

// ---- The rules ----

static void delta_token(const kvern_recurrence_steps *steps, size_t t, size_t first, float *s,
                        size_t decay_step)
{
    const float *k = steps->k + t * steps->k_stride;
    const float beta = steps->beta[t * steps->beta_stride];
    float v[BLOCK], m[BLOCK], y[BLOCK];
    load_values(steps, t, first, v);
    decay_and_recall(steps->k_dim, s, steps->decay + t * steps->decay_stride, decay_step, k, m);
    for (size_t e = 0; e < BLOCK; e++)
        v[e] = beta * (v[e] - m[e]);
    store_outer(steps->k_dim, s, k, v);
    if (!steps->q)
        return;
    read_out(steps->k_dim, s, steps->q + t * steps->q_stride, y);
    store_outputs(steps, t, first, y);
}

static void start(const kvern_recurrence_steps *steps, float *s)
{
    const size_t values = (steps->v_dim + BLOCK - 1) / BLOCK * BLOCK;
    KVERN_ASSERT(steps->k_dim > 0 && steps->v_dim > 0);
    if (steps->from)
        memcpy(s, steps->from, values * steps->k_dim * sizeof *s);
}

static void run_delta(const kvern_recurrence_steps *steps, float *s, size_t decay_step)
{
    start(steps, s);
    for (size_t first = 0; first < steps->v_dim; first += BLOCK) {
        for (size_t t = 0; t < steps->count; t++)
            delta_token(steps, t, first, s + first * steps->k_dim, decay_step);
    }
}

static void delta(const kvern_recurrence_steps *steps, float *s)
{
    run_delta(steps, s, 0);
}

static void delta_channels(const kvern_recurrence_steps *steps, float *s)
{
    run_delta(steps, s, 1);
}

static void ssd_token(const kvern_recurrence_steps *steps, size_t t, size_t first, float *s)
{
    const float dt = steps->beta[t * steps->beta_stride];
    const float decay = steps->decay[t * steps->decay_stride];
    float x[BLOCK], d[BLOCK], y[BLOCK];
    load_values(steps, t, first, x);
    for (size_t e = 0; e < BLOCK; e++)
        d[e] = dt * x[e];
    for (size_t i = 0; i < steps->k_dim * BLOCK; i++)
        s[i] *= decay;
    store_outer(steps->k_dim, s, steps->k + t * steps->k_stride, d);
    if (!steps->q)
        return;
    read_out(steps->k_dim, s, steps->q + t * steps->q_stride, y);
    for (size_t e = 0; e < BLOCK && steps->skip; e++)
        y[e] = fmaf(*steps->skip, x[e], y[e]);
    store_outputs(steps, t, first, y);
}

static void ssd(const kvern_recurrence_steps *steps, float *s)
{
    start(steps, s);
    for (size_t first = 0; first < steps->v_dim; first += BLOCK) {
        for (size_t t = 0; t < steps->count; t++)
            ssd_token(steps, t, first, s + first * steps->k_dim);
    }
}

// ---- What comes before ----

static void convolve(size_t channels, size_t taps, const float *const *rows, const float *weight,
                     size_t weight_stride, const float *bias, bool silu, float *out)
{
    KVERN_ASSERT(taps > 0 && weight_stride >= channels);
    for (size_t c = 0; c < channels; c++) {
        float sum = bias ? bias[c] : 0;
        for (size_t j = 0; j < taps; j++)
            sum = fmaf(weight[j * weight_stride + c], rows[j][c], sum);
        out[c] = silu ? plain_silu(sum) : sum;
    }
}

// The sum of squares: 16 sums, each of every 16th number, then the tree.
static float sum_squares(size_t n, const float *x)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    return kvern_sum16(lane);
}

static void rms_scale(size_t n, const float *x, float eps, float factor, const float *weight,
                      float *out)
{
    KVERN_ASSERT(n > 0);
    const float scale = factor / sqrtf(sum_squares(n, x) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * scale * weight[i] : x[i] * scale;
}

static float activate(kvern_activation activation, float x)
{
    switch (activation) {
    case KVERN_ACTIVATION_SILU:
        return plain_silu(x);
    case KVERN_ACTIVATION_SIGMOID:
        return plain_sigmoid(x);
    default:
        return x;
    }
}

static void normalize_gated(size_t n, const float *x, const float *z, const float *weight,
                            float eps, kvern_activation activation, bool gate_first, float *out)
{
    float lane[16] = {0};
    KVERN_ASSERT(n > 0);
    for (size_t i = 0; i < n; i++) {
        const float u = gate_first ? x[i] * activate(activation, z[i]) : x[i];
        lane[i % 16] = fmaf(u, u, lane[i % 16]);
    }
    const float scale = 1 / sqrtf(kvern_sum16(lane) / (float)n + eps);
    for (size_t i = 0; i < n; i++) {
        const float gate = activate(activation, z[i]);
        float y = (gate_first ? x[i] * gate : x[i]) * scale;
        if (weight)
            y *= weight[i];
        out[i] = gate_first ? y : y * gate;
    }
}

static void step_size(size_t n, const float *a, const float *bias, float low, float high,
                      float rate, float *dt, float *decay)
{
    for (size_t i = 0; i < n; i++) {
        float x = plain_softplus(bias ? a[i] + bias[i] : a[i]);
        x = x < low ? low : x > high ? high : x;
        dt[i] = x;
        if (decay)
            decay[i] = plain_exp(-(rate * x));
    }
}

static void decay(size_t n, const float *a, const float *bias, float rate, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = plain_exp(-(rate * plain_softplus(bias ? a[i] + bias[i] : a[i])));
}

const kvern_recurrence_kernels kvern_recurrence_plain = {
    .delta = delta,
    .delta_channels = delta_channels,
    .ssd = ssd,
    .convolve = convolve,
    .rms_scale = rms_scale,
    .normalize_gated = normalize_gated,
    .decay = decay,
    .step_size = step_size,
};
