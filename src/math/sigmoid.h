// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_SIGMOID_H
#define KVERN_MATH_SIGMOID_H

// The logistic function 1 / (1 + exp(-x)) and the two activations that are x times it. The errors
// are in ulp; in parentheses the largest one over all floats.
//
// sigmoid: with e = exp(-|x|), which cannot overflow: 1 / (1 + e) for x >= 0, at most 1.5 (1.499),
// and e / (1 + e) for x < 0, at most 2.5 (2.402). Exactly +0 for x < -87, like exp. NaN for NaN.
//
// silu: x * sigmoid(x). At most 2.5 (2.248) for x >= 0, 3.5 (3.223) for -87 <= x < 0; exactly -0
// for x < -87. NaN for -infinity (infinity times zero, as in other libraries).
//
// gelu: the tanh form 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), computed as the same
// function x * sigmoid(z), z = 2 sqrt(2/pi) (x + 0.044715 x^3): no cancellation for negative x, and
// one exponential. At most 3 (2.628) for x >= 0. For x < 0 the exponential multiplies the relative
// error that the roundings in z make, about 3 * 2^-24, by |z|: at most 4 + 3 |z| (4 + 2.81 |z|);
// exactly -0 where z < -87, that is below about -9.9. NaN for -infinity.

#include "src/math/exp.h"

#define KVERN_GELU_CUBIC 0.044715f
#define KVERN_GELU_SCALE 0x1.988454p0f // 2 sqrt(2/pi)

static inline float plain_sigmoid(float x)
{
    float e = plain_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float plain_silu(float x)
{
    return x * plain_sigmoid(x);
}

static inline float plain_gelu(float x)
{
    float cubic = fmaf(KVERN_GELU_CUBIC, x * x, 1.0f);
    float z = (x * KVERN_GELU_SCALE) * cubic;
    return x * plain_sigmoid(z);
}

#endif
