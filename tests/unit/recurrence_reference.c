// SPDX-License-Identifier: MIT
#include "tests/unit/recurrence_reference.h"

#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

// ---- Arithmetic with errors ----

#define ROUNDING 0x1.00001p-24 // of one operation, relative to its result; a little more than half
#define ULP 0x1.00001p-23      // an ulp, relative to a number, at most
#define UNDERFLOW_ERROR 0x1p-149 // where a result is subnormal
#define FLUSHED 2e-38            // what exp makes of its arguments below -87

static approximate exact(double value)
{
    return (approximate){value, 0};
}

// A value that an operation rounds, whose operands bring an error.
static approximate rounded(double value, double error)
{
    return (approximate){value, error + ROUNDING * (fabs(value) + error) + UNDERFLOW_ERROR};
}

static double product_error(approximate a, approximate b)
{
    return fabs(a.value) * b.error + fabs(b.value) * a.error + a.error * b.error;
}

static approximate add(approximate a, approximate b)
{
    return rounded(a.value + b.value, a.error + b.error);
}

static approximate subtract(approximate a, approximate b)
{
    return rounded(a.value - b.value, a.error + b.error);
}

static approximate multiply(approximate a, approximate b)
{
    return rounded(a.value * b.value, product_error(a, b));
}

// a * b + c
static approximate fused(approximate a, approximate b, approximate c)
{
    return rounded(a.value * b.value + c.value, product_error(a, b) + c.error);
}

// A function of a: its true value, the largest derivative between a - error and a + error, and the
// error of our own form of it in ulp.
static approximate function(approximate a, double value, double slope, double ulps)
{
    const double error = slope * a.error;
    return (approximate){value, error + ulps * ULP * (fabs(value) + error) + FLUSHED};
}

static approximate exponential(approximate a)
{
    const double value = exp(a.value);
    return function(a, value, value * exp(a.error), 1);
}

static approximate sigmoid(approximate a)
{
    return function(a, 1 / (1 + exp(-a.value)), 0.25, 2.5);
}

static approximate silu(approximate a)
{
    approximate y = function(a, a.value / (1 + exp(-a.value)), 1.1, 3.5);
    y.error += 87 * FLUSHED;
    return y;
}

static approximate softplus(approximate a)
{
    const double value = a.value > 30 ? a.value : log1p(exp(a.value));
    return function(a, value, 1, 3);
}

// ---- Before the steps ----

typedef struct reference {
    const kvern_recurrence_shape *shape;
    const kvern_recurrence_weights *weights;
    const kvern_recurrence_tokens *tokens;
    size_t channels, keys, values; // of a token
} reference;

static approximate convolved(const reference *r, size_t t, size_t channel)
{
    const size_t taps = r->shape->taps;
    const float *x = r->tokens->x;
    if (!taps)
        return exact(x[t * r->tokens->x_stride + channel]);
    approximate sum = exact(r->weights->conv_bias ? r->weights->conv_bias[channel] : 0);
    for (size_t j = 0; j < taps; j++) {
        if (t + j + 1 < taps) // before the first token
            continue;
        const double input = x[(t + j + 1 - taps) * r->tokens->x_stride + channel];
        sum = fused(exact(r->weights->conv[j * r->channels + channel]), exact(input), sum);
    }
    return silu(sum);
}

// k_dim channels from `channel` on, normalized unless the factor is zero. The sum of squares by
// any order is within n roundings.
static void head_of(const reference *r, size_t t, size_t channel, float factor, approximate *x)
{
    const size_t n = r->shape->k_dim;
    approximate sum = exact(0);
    for (size_t i = 0; i < n; i++) {
        x[i] = convolved(r, t, channel + i);
        sum = fused(x[i], x[i], sum);
    }
    if (factor == 0 || r->shape->rule == KVERN_RULE_SSD)
        return;
    const approximate mean = rounded(sum.value / (double)n, sum.error / (double)n);
    const approximate shifted = add(mean, exact(r->weights->norm_eps));
    const double root = sqrt(shifted.value), low = sqrt(shifted.value - shifted.error);
    const approximate norm = rounded(root, shifted.error / (2 * low));
    const double scale = factor / norm.value;
    const approximate f = rounded(scale, fabs(scale) * norm.error / (norm.value - norm.error));
    for (size_t i = 0; i < n; i++)
        x[i] = multiply(x[i], f);
}

static approximate step_size(const reference *r, size_t t, size_t at)
{
    const approximate a = exact(r->tokens->a[t * r->tokens->a_stride + at]);
    return softplus(r->weights->dt_bias ? add(a, exact(r->weights->dt_bias[at])) : a);
}

static approximate decay_of(const reference *r, size_t head, approximate size)
{
    const approximate rate = exponential(exact(r->weights->a_log[head]));
    approximate exponent = multiply(rate, size);
    exponent.value = -exponent.value;
    return exponential(exponent);
}

// Between the limits, or at one of them: neither changes an error but to shrink it.
static approximate limited(const reference *r, approximate size)
{
    size.value = fmin(fmax(size.value, (double)r->weights->dt_low), (double)r->weights->dt_high);
    return size;
}

// ---- Steps ----

typedef struct step {
    approximate *q, *k, *decay; // k_dim each
    approximate beta, v, skip;
} step;

// One row of S takes one token.
static approximate take_step(const reference *r, const step *now, approximate *s)
{
    const size_t n = r->shape->k_dim;
    approximate m = exact(0), y = exact(0);
    for (size_t i = 0; i < n; i++) {
        s[i] = multiply(s[i], now->decay[i]);
        m = fused(s[i], now->k[i], m);
    }
    const approximate d = r->shape->rule == KVERN_RULE_SSD
                              ? multiply(now->beta, now->v)
                              : multiply(now->beta, subtract(now->v, m));
    for (size_t i = 0; i < n; i++) {
        s[i] = fused(now->k[i], d, s[i]);
        y = fused(s[i], now->q[i], y);
    }
    return r->shape->rule == KVERN_RULE_SSD ? fused(now->skip, now->v, y) : y;
}

static void prepare_step(const reference *r, size_t t, size_t head, step *now)
{
    const kvern_recurrence_shape *shape = r->shape;
    const bool ssd = shape->rule == KVERN_RULE_SSD;
    const size_t key = head / (shape->value_heads / shape->key_heads) * shape->k_dim;
    head_of(r, t, (ssd ? r->values + r->keys : 0) + key, r->weights->q_factor, now->q);
    head_of(r, t, (ssd ? r->values : r->keys) + key, r->weights->k_factor, now->k);
    for (size_t i = 0; i < shape->k_dim; i++) {
        const bool channels = shape->rule == KVERN_RULE_DELTA_CHANNELS;
        approximate size = step_size(r, t, channels ? head * shape->k_dim + i : head);
        if (ssd)
            size = limited(r, size);
        now->decay[i] = decay_of(r, head, size);
        now->beta = size;
    }
    if (!ssd)
        now->beta = multiply(sigmoid(exact(r->tokens->b[t * r->tokens->b_stride + head])),
                             exact(r->weights->beta_factor));
    now->skip = exact(ssd && r->weights->skip ? r->weights->skip[head] : 0);
}

void recurrence_reference(const kvern_recurrence_shape *shape,
                          const kvern_recurrence_weights *weights,
                          const kvern_recurrence_tokens *tokens, approximate *y, approximate *s)
{
    const reference r = {shape,
                         weights,
                         tokens,
                         kvern_recurrence_channels(shape),
                         shape->key_heads * shape->k_dim,
                         shape->value_heads * shape->v_dim};
    const size_t n = shape->k_dim, v_channel = shape->rule == KVERN_RULE_SSD ? 0 : 2 * r.keys;
    approximate *room = calloc(3 * n, sizeof *room);
    assert_non_null(room);
    step now = {.q = room, .k = room + n, .decay = room + 2 * n};
    for (size_t i = 0; i < r.values * n; i++)
        s[i] = exact(0);
    for (size_t t = 0; t < tokens->count; t++) {
        for (size_t head = 0; head < shape->value_heads; head++) {
            prepare_step(&r, t, head, &now);
            for (size_t e = head * shape->v_dim; e < (head + 1) * shape->v_dim; e++) {
                now.v = convolved(&r, t, v_channel + e);
                y[t * r.values + e] = take_step(&r, &now, s + e * n);
            }
        }
    }
    free(room);
}
