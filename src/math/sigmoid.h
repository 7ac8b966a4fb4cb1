// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_SIGMOID_H
#define KVERN_MATH_SIGMOID_H

// The logistic function 1 / (1 + exp(-x)) and the two activations that are x times it.
//
// sigmoid: with e = exp(-|x|), which cannot overflow: 1 / (1 + e) for x >= 0 and e / (1 + e) for x
// < 0. At most 1.5 ulp for x >= 0 and 2.5 ulp for -87 <= x < 0 (largest over all floats: 1.49
// and 2.25); exactly +0 below -87, like exp; NaN for NaN.
//
// silu: x * sigmoid(x), at most 3 ulp; NaN for -infinity (0 times infinity, as in other libraries).
//
// gelu: the tanh form 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), computed as the same
// function x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): no cancellation for negative x, and one
// exponential. The argument z of the sigmoid has a relative error of 2.5 * 2^-24 at most, which the
// exponential makes 2.5 |z| * 2^-24; so at most 3 ulp for x >= 0, and 4 + 3 |z| ulp for x < 0
// (exactly -0 where z < -87, that is below about -9.9). NaN for -infinity.

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
