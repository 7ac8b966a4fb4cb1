// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_SOFTPLUS_H
#define KVERN_MATH_SOFTPLUS_H

// softplus(x) = log(1 + exp(x)), the step size of a recurrent layer. At most 2.5 ulp
// for x >= 0 and 3 ulp for -87 <= x < 0 (2.335 and 2.892 are the largest over all floats); exactly
// +0 for x < -87, like exp, and x itself from about 17 on. NaN for NaN.
//
// Method: the larger of x and 0, plus log(1 + e) with e = exp(-|x|), which cannot overflow. As e is
// in [0, 1], s = 2 e / (2 + e) is at most 2/3, and log(1 + e) = log((1 + s/2) / (1 - s/2)) has no
// cancellation: s + s u P(u) with u = s^2 and P of degree 3 from tools/minimax.py (relative error
// 2^-27.5).

#include "src/math/exp.h"

#define KVERN_SOFTPLUS_C0 0x1.555502p-4f
#define KVERN_SOFTPLUS_C1 0x1.99d208p-7f
#define KVERN_SOFTPLUS_C2 0x1.1ebd0cp-9f
#define KVERN_SOFTPLUS_C3 0x1.1ed7c2p-11f

static inline float plain_softplus(float x)
{
    float e = plain_exp(-fabsf(x));
    float s = (e + e) / (2.0f + e);
    float u = s * s;
    float p = fmaf(KVERN_SOFTPLUS_C3, u, KVERN_SOFTPLUS_C2);
    p = fmaf(p, u, KVERN_SOFTPLUS_C1);
    p = fmaf(p, u, KVERN_SOFTPLUS_C0);
    float y = fmaf(p, s * u, s);
    return x < 0.0f ? y : x + y;
}

#endif
