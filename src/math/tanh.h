// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_TANH_H
#define KVERN_MATH_TANH_H

// The hyperbolic tangent: softcaps take it. At most 1.5 ulp from the true value (1.38 is the
// largest over all floats), odd, +-1 from about +-9.01 on, NaN for NaN, -0 for -0.
//
// Below 0.625 an odd polynomial: x + x u P(u) with u = x^2, P of degree 4: the minimax polynomial
// of tools/minimax.py (relative error 2^-27.8) with the last bits varied like those of exp; 0.67
// ulp. Above, 1 - 2 e / (1 + e) with e = exp(-2 |x|), whose subtraction halves the errors made
// before it.

#include "src/math/exp.h"

#define KVERN_TANH_SPLIT 0.625f
#define KVERN_TANH_C0 -0x1.555532p-2f
#define KVERN_TANH_C1 0x1.110722p-3f
#define KVERN_TANH_C2 -0x1.b83c14p-5f
#define KVERN_TANH_C3 0x1.5225d2p-6f
#define KVERN_TANH_C4 -0x1.75e26ap-8f

static inline float plain_tanh(float x)
{
    float a = fabsf(x);
    if (a < KVERN_TANH_SPLIT) {
        float u = a * a;
        float p = fmaf(KVERN_TANH_C4, u, KVERN_TANH_C3);
        p = fmaf(p, u, KVERN_TANH_C2);
        p = fmaf(p, u, KVERN_TANH_C1);
        p = fmaf(p, u, KVERN_TANH_C0);
        return copysignf(fmaf(p, a * u, a), x);
    }
    float e = plain_exp(-2.0f * a);
    return copysignf(1.0f - (e + e) / (1.0f + e), x);
}

#endif
