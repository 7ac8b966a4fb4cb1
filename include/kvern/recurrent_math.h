// SPDX-License-Identifier: MIT
#ifndef KVERN_RECURRENT_MATH_H
#define KVERN_RECURRENT_MATH_H

// What recurrent layers compute around their state, for engines: convolutions, norms, gates. Like
// kvern/math.h, kvern.h does not include this header, and results have the same bits on every
// processor, whatever the caller's rounding mode and denormal flags are.
//
// A recurrent layer of a cache (kvern/recurrent.h) does all of this by itself, but for the gated
// norm behind it. The other functions are for blocks that the library does not know: a short
// convolution whose tail is a lane, a recurrence of the engine's own. docs/arithmetic.md,
// "Recurrent layers", defines them operation by operation; each comment here names who computes so.
//
// `features` says which kernels may run, as in kvern/math.h: a subset of kvern_cpu_features(), 0
// for plain C; the result does not depend on it. Everything is f32. Pointers are borrowed for the
// call. A NaN gives NaN where it takes part.

#include <kvern/composition.h>
#include <kvern/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvern_activation {
    KVERN_ACTIVATION_NONE = 0,   // x
    KVERN_ACTIVATION_SILU = 1,   // x * sigmoid(x)
    KVERN_ACTIVATION_SIGMOID = 2 // sigmoid(x)
} kvern_activation;

// ---- Convolution. ----

// A causal depthwise convolution over the tokens of one sequence, with the inputs before them
// carried from call to call. With X the tail followed by the rows of x,
//
//     y[t][c] = activation(bias[c] + sum over j of weight[j][c] * X[t + j][c])
//
// as one chain of fma that begins with the bias and goes from the oldest tap to the newest. So
// chunks give the bits of one call. (The short convolutions of Mamba, DeltaNet and LFM2; their
// checkpoints have the weight as [channels, taps], which the caller turns once.)
typedef struct kvern_convolution {
    size_t size;         // sizeof(kvern_convolution); set by kvern_convolution_default
    size_t channels;     // at least 1
    size_t taps;         // 1 to KVERN_MAX_CONV_KERNEL
    size_t count;        // tokens; 0 is allowed
    const float *weight; // [taps, channels]; the last tap meets the token itself
    const float *bias;   // [channels]; NULL: none
    const float *x;      // channel c of token t is x[t * x_stride + c]
    float *y;            // likewise; overlaps nothing
    float *tail; // [taps - 1, channels]: the inputs before the first token, the oldest first; zeros
                 // before the first token of a sequence. Receives the inputs before the token that
                 // follows the last one. NULL with one tap.
    int64_t x_stride; // floats from token to token, at least `channels`
    int64_t y_stride;
    kvern_activation activation; // SILU by default
    uint32_t reserved;           // 0
} kvern_convolution;

// Writes the defaults, packed tokens of `channels` and silu, to `size` bytes,
// sizeof(kvern_convolution) of the caller; count and the pointers remain to be set.
KVERN_API void kvern_convolution_init(kvern_convolution *convolution, size_t size, size_t channels,
                                      size_t taps);

// The same as a value.
static inline kvern_convolution kvern_convolution_default(size_t channels, size_t taps)
{
    kvern_convolution convolution;
    kvern_convolution_init(&convolution, sizeof convolution, channels, taps);
    return convolution;
}

// Convolves the tokens and moves the tail on. On failure nothing was written. Errors:
// KVERN_ERR_ARGUMENT (a NULL pointer that is needed, no channels, an unknown activation, reserved
// not 0), KVERN_ERR_RANGE (taps out of range, a stride below `channels`), KVERN_ERR_OVERFLOW (more
// floats than there are addresses).
KVERN_API KVERN_CHECK kvern_status kvern_convolve(uint32_t features,
                                                  const kvern_convolution *convolution);

// ---- Norms. ----

// y[i] = x[i] * (factor / sqrt(mean(x * x) + eps)) * weight[i] for i < n. weight may be NULL, y may
// be x. The mean is over the n numbers, n at least 1. The queries and keys of DeltaNet: no weight,
// factors 1 / dim and dim^-1/2, eps 1e-6, or 1e-6 / dim where the model adds it to the sum of
// squares (mlx-lm: normalize_qk in gated_delta.py).
KVERN_API void kvern_rms_scale_array(uint32_t features, size_t n, const float *x, float eps,
                                     float factor, const float *weight, float *y);

// An RMS norm with a gate z, for `count` rows of `parts` parts of `dim` numbers, each part a norm
// of its own:
//
//     norm(u)[i] = u[i] * (1 / sqrt(mean(u * u) + eps)) * weight[i]
//     gate_first 0: out = norm(x) * activation(z)      gate_first 1: out = norm(x * activation(z))
//
// Qwen3-Next, 3.5: parts are value heads, silu, one weight for all (mlx-lm:
// Qwen3NextRMSNormGated). Kimi Linear: the same with sigmoid. Mamba2: one part, or one per group,
// silu, gate_first, and a weight per part (MambaRMSNormGated).
typedef struct kvern_gated_norm {
    size_t size;         // sizeof(kvern_gated_norm); set by kvern_gated_norm_default
    size_t dim;          // numbers of a part, at least 1
    size_t parts;        // of a row, behind each other, at least 1
    size_t count;        // rows; 0 is allowed
    const float *x;      // number i of part p of row r is x[r * x_stride + p * dim + i]
    const float *z;      // likewise; NULL: no gate
    const float *weight; // [dim] or, with weight_per_part, [parts, dim]; NULL: ones
    float *out;          // like x; may be x or z with the same stride, overlaps nothing else
    int64_t x_stride;    // floats from row to row, at least parts * dim
    int64_t z_stride;
    int64_t out_stride;
    float eps;                   // not negative, finite; 1e-6 by default
    kvern_activation activation; // of z; SILU by default
    uint32_t gate_first;         // 0 or 1
    uint32_t weight_per_part;    // 0 or 1
} kvern_gated_norm;

// Writes the defaults, packed rows and what Qwen3-Next has, to `size` bytes,
// sizeof(kvern_gated_norm) of the caller; count and the pointers remain to be set.
KVERN_API void kvern_gated_norm_init(kvern_gated_norm *norm, size_t size, size_t dim, size_t parts);

// The same as a value.
static inline kvern_gated_norm kvern_gated_norm_default(size_t dim, size_t parts)
{
    kvern_gated_norm norm;
    kvern_gated_norm_init(&norm, sizeof norm, dim, parts);
    return norm;
}

// Computes the rows. On failure nothing was written. Errors: KVERN_ERR_ARGUMENT (a NULL pointer
// that is needed, no dim, no parts, an unknown activation or flag, an eps that is negative or not
// finite), KVERN_ERR_RANGE (a stride below parts * dim), KVERN_ERR_OVERFLOW.
KVERN_API KVERN_CHECK kvern_status kvern_normalize_gated(uint32_t features,
                                                         const kvern_gated_norm *norm);

// ---- Gates. beta, the other one, is kvern_sigmoid_array. ----

// The decays of n tokens of a head, or of n key channels of a token:
//
//     decay[i] = exp(-(exp(a_log) * softplus(a[i] + dt_bias[i])))
//
// dt_bias may be NULL (none), decay may be a. A decay is in [0, 1]: exactly 0 where the exponent is
// below -87. (Gated DeltaNet and Kimi; mlx-lm: compute_g in gated_delta.py.)
KVERN_API void kvern_decay_array(uint32_t features, size_t n, const float *a, const float *dt_bias,
                                 float a_log, float *decay);

// The step sizes of n tokens of a head, and their decays:
//
//     dt[i] = softplus(a[i] + dt_bias[i]), at least low, at most high
//     decay[i] = exp(-(exp(a_log) * dt[i]))
//
// dt_bias may be NULL (none), decay may be NULL (not wanted), dt or decay may be a. (Mamba2;
// mlx-lm: compute_dt in ssm.py.)
KVERN_API void kvern_step_size_array(uint32_t features, size_t n, const float *a,
                                     const float *dt_bias, float low, float high, float a_log,
                                     float *dt, float *decay);

#ifdef __cplusplus
}
#endif

#endif
