// SPDX-License-Identifier: MIT
// The kernels of recurrent layers for one instruction set; equal to recurrence_plain.c bit for bit.
// Included once by recurrence_<isa>.c after a lanes header.
//
// Parameter: RECURRENCE_KERNELS, the name of the kernels.
//
// A block of S, [k_dim][32], is taken through all tokens before the next one. At k_dim 128 it is 16
// KiB, so it stays in the first-level cache, and what a token leaves to do to an element (the outer
// product, y) is done in one pass with what the next token begins with (the decay, m): an element
// is loaded and stored once per token for four operations.

#include "src/recurrent/recurrence_kernels.h"

#include "src/math/sigmoid_lanes.h"
#include "src/math/sum.h"
#include "src/math/unroll.h"

#include <math.h>

#define BLOCK KVERN_RECURRENCE_BLOCK

// 32 values.
typedef struct {
    lanes low, high;
} pair;

LANES_INLINE pair pair_zero(void)
{
    return (pair){lanes_zero(), lanes_zero()};
}

LANES_INLINE pair pair_load(const float *p)
{
    return (pair){lanes_load(p), lanes_load(p + 16)};
}

LANES_INLINE void pair_store(float *p, pair v)
{
    lanes_store(p, v.low);
    lanes_store(p + 16, v.high);
}

// The first `count` values, 1 to 32; zeros behind them.
LANES_INLINE pair pair_load_part(const float *p, size_t count)
{
    if (count >= BLOCK)
        return pair_load(p);
    if (count > 16)
        return (pair){lanes_load(p), lanes_load_part(p + 16, (int)count - 16)};
    return (pair){lanes_load_part(p, (int)count), lanes_zero()};
}

LANES_INLINE void pair_store_part(float *p, pair v, size_t count)
{
    if (count >= BLOCK) {
        pair_store(p, v);
    } else if (count > 16) {
        lanes_store(p, v.low);
        lanes_store_part(p + 16, v.high, (int)count - 16);
    } else {
        lanes_store_part(p, v.low, (int)count);
    }
}

LANES_INLINE pair pair_scale(pair v, lanes factor)
{
    return (pair){lanes_mul(v.low, factor), lanes_mul(v.high, factor)};
}

// a * b + c, where b is one number for all values.
LANES_INLINE pair pair_fma(pair a, lanes b, pair c)
{
    return (pair){lanes_fma(a.low, b, c.low), lanes_fma(a.high, b, c.high)};
}

// ---- Delta ----

// What token t adds to S in one block: beta (v - m).
LANES_INLINE pair difference(const kvern_recurrence_steps *steps, size_t t, size_t first, pair m)
{
    const float *v = steps->v + t * steps->v_stride + first;
    const pair value = pair_load_part(v, steps->v_dim - first);
    const lanes beta = lanes_set(steps->beta[t * steps->beta_stride]);
    return (pair){lanes_mul(beta, lanes_sub(value.low, m.low)),
                  lanes_mul(beta, lanes_sub(value.high, m.high))};
}

// The passes over a block do some of: `finish` token t (outer product, and y where `outputs`),
// `begin` the next token (decay, m).
LANES_INLINE void delta_pass(const kvern_recurrence_steps *steps, size_t t, float *s, pair d,
                             pair *y, pair *m, bool finish, bool begin, bool outputs, bool channels)
{
    const size_t next = finish ? t + 1 : t;
    const float *k = steps->k + t * steps->k_stride;
    const float *q = outputs ? steps->q + t * steps->q_stride : NULL;
    const float *next_k = begin ? steps->k + next * steps->k_stride : NULL;
    const float *decay = begin ? steps->decay + next * steps->decay_stride : NULL;
    const lanes one_decay = begin && !channels ? lanes_set(*decay) : lanes_zero();
    pair sum_y = pair_zero(), sum_m = pair_zero();
    for (size_t i = 0; i < steps->k_dim; i++) {
        pair x = pair_load(s + i * BLOCK);
        if (finish)
            x = pair_fma(d, lanes_set(k[i]), x);
        if (finish && outputs)
            sum_y = pair_fma(x, lanes_set(q[i]), sum_y);
        if (begin) {
            x = pair_scale(x, channels ? lanes_set(decay[i]) : one_decay);
            sum_m = pair_fma(x, lanes_set(next_k[i]), sum_m);
        }
        pair_store(s + i * BLOCK, x);
    }
    *y = sum_y;
    *m = sum_m;
}

LANES_INLINE void delta_block(const kvern_recurrence_steps *steps, size_t first, float *s,
                              bool outputs, bool channels)
{
    pair y, m, d = pair_zero();
    delta_pass(steps, 0, s, d, &y, &m, false, true, false, channels);
    for (size_t t = 0; t < steps->count; t++) {
        d = difference(steps, t, first, m);
        if (t + 1 < steps->count)
            delta_pass(steps, t, s, d, &y, &m, true, true, outputs, channels);
        else
            delta_pass(steps, t, s, d, &y, &m, true, false, outputs, channels);
        if (outputs)
            pair_store_part(steps->y + t * steps->y_stride + first, y, steps->v_dim - first);
    }
}

LANES_INLINE void delta_head(const kvern_recurrence_steps *steps, float *s, bool outputs,
                             bool channels)
{
    if (!steps->count)
        return;
    for (size_t first = 0; first < steps->v_dim; first += BLOCK)
        delta_block(steps, first, s + first * steps->k_dim, outputs, channels);
}

static void delta(const kvern_recurrence_steps *steps, float *s)
{
    if (steps->q)
        delta_head(steps, s, true, false);
    else
        delta_head(steps, s, false, false);
}

static void delta_channels(const kvern_recurrence_steps *steps, float *s)
{
    if (steps->q)
        delta_head(steps, s, true, true);
    else
        delta_head(steps, s, false, true);
}

// ---- SSD: nothing of a token depends on the one before but S itself, so an element passes through
// several tokens in a register ----

#define SSD_TOKENS 4

// `tokens` of them from t on, at most SSD_TOKENS.
LANES_INLINE void ssd_tokens(const kvern_recurrence_steps *steps, size_t t, size_t first, float *s,
                             bool outputs, int tokens)
{
    const size_t values = steps->v_dim - first;
    const float *k[SSD_TOKENS], *q[SSD_TOKENS];
    pair x[SSD_TOKENS], d[SSD_TOKENS], y[SSD_TOKENS];
    lanes decay[SSD_TOKENS];
    KVERN_UNROLL
    for (int j = 0; j < tokens; j++) {
        const size_t at = t + (size_t)j;
        k[j] = steps->k + at * steps->k_stride;
        q[j] = outputs ? steps->q + at * steps->q_stride : NULL;
        x[j] = pair_load_part(steps->v + at * steps->v_stride + first, values);
        d[j] = pair_scale(x[j], lanes_set(steps->beta[at * steps->beta_stride]));
        decay[j] = lanes_set(steps->decay[at * steps->decay_stride]);
        y[j] = pair_zero();
    }
    for (size_t i = 0; i < steps->k_dim; i++) {
        pair e = pair_load(s + i * BLOCK);
        KVERN_UNROLL
        for (int j = 0; j < tokens; j++) {
            e = pair_fma(d[j], lanes_set(k[j][i]), pair_scale(e, decay[j]));
            if (outputs)
                y[j] = pair_fma(e, lanes_set(q[j][i]), y[j]);
        }
        pair_store(s + i * BLOCK, e);
    }
    KVERN_UNROLL
    for (int j = 0; j < tokens && outputs; j++) {
        if (steps->skip)
            y[j] = pair_fma(x[j], lanes_set(*steps->skip), y[j]);
        pair_store_part(steps->y + (t + (size_t)j) * steps->y_stride + first, y[j], values);
    }
}

LANES_INLINE void ssd_head(const kvern_recurrence_steps *steps, float *s, bool outputs)
{
    for (size_t first = 0; first < steps->v_dim; first += BLOCK) {
        float *block = s + first * steps->k_dim;
        size_t t = 0;
        for (; t + SSD_TOKENS <= steps->count; t += SSD_TOKENS)
            ssd_tokens(steps, t, first, block, outputs, SSD_TOKENS);
        for (; t < steps->count; t++)
            ssd_tokens(steps, t, first, block, outputs, 1);
    }
}

static void ssd(const kvern_recurrence_steps *steps, float *s)
{
    if (steps->q)
        ssd_head(steps, s, true);
    else
        ssd_head(steps, s, false);
}

// ---- What comes before ----

LANES_INLINE lanes load_some(const float *p, int count)
{
    return count == 16 ? lanes_load(p) : lanes_load_part(p, count);
}

LANES_INLINE void store_some(float *p, lanes v, int count)
{
    if (count == 16)
        lanes_store(p, v);
    else
        lanes_store_part(p, v, count);
}

// Channels c to c + count - 1.
LANES_INLINE void convolve_lanes(size_t c, int count, size_t taps, const float *const *rows,
                                 const float *weight, size_t weight_stride, const float *bias,
                                 bool silu, float *out)
{
    lanes sum = bias ? load_some(bias + c, count) : lanes_zero();
    for (size_t j = 0; j < taps; j++)
        sum = lanes_fma(load_some(weight + j * weight_stride + c, count),
                        load_some(rows[j] + c, count), sum);
    store_some(out + c, silu ? lanes_silu(sum) : sum, count);
}

static void convolve(size_t channels, size_t taps, const float *const *rows, const float *weight,
                     size_t weight_stride, const float *bias, bool silu, float *out)
{
    size_t c = 0;
    for (; c + 16 <= channels; c += 16)
        convolve_lanes(c, 16, taps, rows, weight, weight_stride, bias, silu, out);
    if (c < channels)
        convolve_lanes(c, (int)(channels - c), taps, rows, weight, weight_stride, bias, silu, out);
}

static void rms_scale(size_t n, const float *x, float eps, float factor, const float *weight,
                      float *out)
{
    lanes sum = lanes_zero();
    float lane[16];
    for (size_t i = 0; i < n; i += 16) {
        const lanes v = load_some(x + i, n - i < 16 ? (int)(n - i) : 16);
        sum = lanes_fma(v, v, sum);
    }
    lanes_store(lane, sum);
    const float scale = factor / sqrtf(kvern_sum16(lane) / (float)n + eps);
    for (size_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        lanes v = lanes_mul(load_some(x + i, count), lanes_set(scale));
        if (weight)
            v = lanes_mul(v, load_some(weight + i, count));
        store_some(out + i, v, count);
    }
}

const kvern_recurrence_kernels RECURRENCE_KERNELS = {
    .delta = delta,
    .delta_channels = delta_channels,
    .ssd = ssd,
    .convolve = convolve,
    .rms_scale = rms_scale,
};
