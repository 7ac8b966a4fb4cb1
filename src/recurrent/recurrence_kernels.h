// SPDX-License-Identifier: MIT
#ifndef KVERN_RECURRENT_RECURRENCE_KERNELS_H
#define KVERN_RECURRENT_RECURRENCE_KERNELS_H

// The kernels of recurrent layers. recurrence_plain.c is their definition; those of instruction
// sets, from recurrence_template.h, equal it bit for bit. docs/arithmetic.md states every step.

#include <kvern/recurrent_math.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Values of S that lie beside each other: two vectors of 16 lanes.
#define KVERN_RECURRENCE_BLOCK 32

// Memory that will be needed next. While a block of values takes token t, its share of what lies at
// `from + t * stride` is asked for, so that it has come when it is read.
typedef struct kvern_recurrence_piece {
    const float *from;
    size_t stride, floats; // from token to token; of a token
    size_t share;          // floats for each block, a multiple of 16
} kvern_recurrence_piece;

#define KVERN_RECURRENCE_PIECES 4

typedef struct kvern_recurrence_ahead {
    size_t count; // tokens that will follow
    kvern_recurrence_piece pieces[KVERN_RECURRENCE_PIECES];
} kvern_recurrence_ahead;

// Processed inputs of one value head, and where its outputs go. Strides count floats from token to
// token.
typedef struct kvern_recurrence_steps {
    size_t count, k_dim, v_dim;
    const float *q; // NULL: no outputs
    const float *k, *v, *decay, *beta;
    float *y;
    size_t q_stride, k_stride, v_stride, decay_stride, beta_stride, y_stride;
    const float *skip; // SSD: D of this head; NULL: none
    const float *from; // S before the first token; NULL: it is in place
    const float *then; // S of the head that follows, before its first token; NULL: not known
    kvern_recurrence_ahead ahead;
} kvern_recurrence_steps;

// Takes the tokens, at least one where S is not in place, through S of one head.
typedef void kvern_recurrence_steps_fn(const kvern_recurrence_steps *steps, float *s);

// A causal depthwise convolution, for one token: `rows` are its taps, the newest last, weight[j *
// weight_stride + c] belongs to rows[j][c]. bias may be NULL. With `silu` the sum s becomes
// silu(s).
typedef void kvern_convolve_fn(size_t channels, size_t taps, const float *const *rows,
                               const float *weight, size_t weight_stride, const float *bias,
                               bool silu, float *out);

// out[i] = x[i] * (factor / sqrt(mean(x^2) + eps)) * weight[i]; weight may be NULL, out may be x.
typedef void kvern_rms_scale_fn(size_t n, const float *x, float eps, float factor,
                                const float *weight, float *out);

// The norm of kvern/recurrent_math.h for one part, with a gate. weight may be NULL, out may be x or
// z.
typedef void kvern_normalize_gated_fn(size_t n, const float *x, const float *z, const float *weight,
                                      float eps, kvern_activation activation, bool gate_first,
                                      float *out);

// out[i] = exp(-(rate * softplus(a[i] + bias[i]))); bias may be NULL, out may be a.
typedef void kvern_decay_fn(size_t n, const float *a, const float *bias, float rate, float *out);

// dt[i] = softplus(a[i] + bias[i]), at least low, at most high (a NaN stays one); decay[i] =
// exp(-(rate * dt[i])). bias and decay may be NULL; dt or decay may be a.
typedef void kvern_step_size_fn(size_t n, const float *a, const float *bias, float low, float high,
                                float rate, float *dt, float *decay);

typedef struct kvern_recurrence_kernels {
    kvern_recurrence_steps_fn *delta;          // decay: one number per token
    kvern_recurrence_steps_fn *delta_channels; // decay: k_dim numbers per token
    kvern_recurrence_steps_fn *ssd;            // decay: one number per token
    kvern_convolve_fn *convolve;
    kvern_rms_scale_fn *rms_scale;
    kvern_normalize_gated_fn *normalize_gated;
    kvern_decay_fn *decay;
    kvern_step_size_fn *step_size;
} kvern_recurrence_kernels;

// The best kernels within `features`.
const kvern_recurrence_kernels *kvern_recurrence_kernels_of(uint32_t features);

extern const kvern_recurrence_kernels kvern_recurrence_plain;
extern const kvern_recurrence_kernels kvern_recurrence_avx2;
extern const kvern_recurrence_kernels kvern_recurrence_avx512;
extern const kvern_recurrence_kernels kvern_recurrence_neon;

#endif
