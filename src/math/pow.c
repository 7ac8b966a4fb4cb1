// SPDX-License-Identifier: MIT
// base^exponent = 2^(exponent log2(base)) in double, rounded to float once: at most 0.50001 ulp.
//
// log2 has a relative error below 2^-49; where the result is finite, |exponent log2(base)| <= 150,
// so the argument of 2^t is wrong by 2^-41.8 at most, and the result by as much, relative to
// itself.

#include "src/base/assert.h"
#include "src/math/double_log.h"
#include "src/math/fpenv.h"

#include <kvern/math.h>

#include <stdbool.h>

static double log2_double(double x)
{
    int e;
    double m = kvern_split_double_(x, &e);
    return fma(kvern_log_near_one_(m - 1.0), 0x1.71547652b82fep+0, e);
}

// 2^t for -160 <= t <= 160, relative error below 2^-51: 2^n (1 + r P(r)), |r| <= 1/2, with P from
// tools/minimax.py.
static double exp2_double(double t)
{
    KVERN_ASSERT(t >= -160 && t <= 160);
    double n = rint(t);
    double r = t - n;
    double p = fma(0x1.e8b762feaa300p-28, r, 0x1.b689b4b002413p-24);
    p = fma(p, r, 0x1.62be68634da92p-20);
    p = fma(p, r, 0x1.ffcb3f1b1a8e6p-17);
    p = fma(p, r, 0x1.43091387c767fp-13);
    p = fma(p, r, 0x1.5d87fea4a7571p-10);
    p = fma(p, r, 0x1.3b2ab6fb8208cp-7);
    p = fma(p, r, 0x1.c6b08d7039559p-5);
    p = fma(p, r, 0x1.ebfbdff82c61fp-3);
    p = fma(p, r, 0x1.62e42fefa3a28p-1);
    p = fma(p, r, 1.0);
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

static bool is_integer(float x)
{
    return rintf(x) == x;
}

static bool is_odd_integer(float x)
{
    return is_integer(x) && !is_integer(x * 0.5f);
}

// |base|^exponent for a base that is neither NaN nor one, and an exponent neither NaN nor zero.
static float pow_of_magnitude(float base, float exponent)
{
    if (base == 0.0f || base == INFINITY) {
        return (base == 0.0f) == (exponent < 0.0f) ? INFINITY : 0.0f;
    }
    double t = (double)exponent * log2_double(base);
    // An infinite exponent lands here as well. Beyond these bounds the float result is fixed.
    return t > 130.0 ? INFINITY : t < -155.0 ? 0.0f : (float)exp2_double(t);
}

// The special cases of C's Annex F.
static float pow_float(float base, float exponent)
{
    if (base == 1.0f || exponent == 0.0f) {
        return 1.0f;
    }
    if (isnan(base) || isnan(exponent)) {
        return base + exponent;
    }
    if (base == -1.0f && isinf(exponent)) {
        return 1.0f;
    }
    if (base < 0.0f && isfinite(base) && isfinite(exponent) && !is_integer(exponent)) {
        return NAN;
    }
    float y = base == -1.0f ? 1.0f : pow_of_magnitude(fabsf(base), exponent);
    return signbit(base) && is_odd_integer(exponent) ? -y : y;
}

float kvern_pow(float base, float exponent)
{
    kvern_fp_saved saved = kvern_fp_enter();
    kvern_fp_pin(&base);
    kvern_fp_pin(&exponent);
    float y = pow_float(base, exponent);
    kvern_fp_pin(&y);
    kvern_fp_leave(saved);
    return y;
}
