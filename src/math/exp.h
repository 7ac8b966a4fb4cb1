// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_EXP_H
#define KVERN_MATH_EXP_H

// The exponential function, the hottest one of the library: a softmax takes one per score.
//
//     x < -87          exactly +0. The softmax relies on it: a weight is zero or a normal number.
//     -87 .. 88.72283  at most 1 ulp from the true value (0.911 is the largest over all floats)
//     x > 88.72283     +infinity; 88.72283 is the largest float whose exponential is finite
//     NaN              NaN
//     0, -0            exactly 1
//
// Method: n = x log2(e) to the nearest integer, r = x - n ln 2, |r| <= 0.3466; exp(r) = 1 + r + r^2
// P(r) with P of degree 4; n is added to the exponent. The first step of the reduction is exact: n
// * KVERN_EXP_LN2_HIGH and x are multiples of 2^-25 there and their difference is below 0.36. The
// second rounds once. P is the minimax polynomial of tools/minimax.py (relative error of exp(r)
// 2^-28.3) with the last bits of its coefficients varied at random, which lowered the largest error
// of a sample.
//
// Errors in ulp of the result: 0.5 the last step, 0.35 the one before it (half an ulp of 1 + r P,
// times r), 0.2 the rounding of r, 0.05 P. The largest never come together: the bound of 1 ulp is
// by test of every float.

#include "src/math/half.h"

#include <math.h>
#include <stdint.h>

#define KVERN_EXP_LOWEST -87.0f
#define KVERN_EXP_HIGHEST 0x1.62e42ep6f // 88.72283
#define KVERN_EXP_LOG2E 0x1.715476p0f
#define KVERN_EXP_LN2_HIGH 0x1.62e430p-1f
#define KVERN_EXP_LN2_LOW -0x1.05c610p-29f
#define KVERN_EXP_C2 0x1.fffffcp-2f
#define KVERN_EXP_C3 0x1.55548ap-3f
#define KVERN_EXP_C4 0x1.5558b8p-5f
#define KVERN_EXP_C5 0x1.123a12p-7f
#define KVERN_EXP_C6 0x1.6a24d4p-10f

// 1.5 * 2^23: adding it rounds a small float to an integer and leaves that integer in the low bits.
#define KVERN_EXP_ROUND 12582912.0f

static inline float plain_exp(float x)
{
    if (x < KVERN_EXP_LOWEST) {
        return 0.0f;
    }
    if (!(x <= KVERN_EXP_HIGHEST)) {
        return x + INFINITY; // NaN stays NaN
    }
    float t = fmaf(x, KVERN_EXP_LOG2E, KVERN_EXP_ROUND);
    float n = t - KVERN_EXP_ROUND;
    float r = fmaf(n, -KVERN_EXP_LN2_HIGH, x);
    r = fmaf(n, -KVERN_EXP_LN2_LOW, r);
    float p = fmaf(KVERN_EXP_C6, r, KVERN_EXP_C5);
    p = fmaf(p, r, KVERN_EXP_C4);
    p = fmaf(p, r, KVERN_EXP_C3);
    p = fmaf(p, r, KVERN_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return kvern_f32_from_bits(kvern_bits_from_f32(p) + (kvern_bits_from_f32(t) << 23));
}

#endif
