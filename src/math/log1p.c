// SPDX-License-Identifier: MIT
// log(1 + x) in double, rounded to float once: at most 0.50001 ulp.
//
// 1 + x = m * 2^e; then e ln 2 + log(m), where m is within a factor sqrt(2) of 1, so that the terms
// cannot cancel. With e = 0, log(1 + x) is taken from x itself: 1 + x would lose its low bits.

#include "src/math/double_log.h"
#include "src/math/fpenv.h"

#include <kvern/math.h>

static float log1p_float(float x)
{
    if (!(x > -1.0f)) {
        return x == -1.0f ? -INFINITY : NAN;
    }
    if (x == 0.0f || x == INFINITY) {
        return x; // -0 stays -0
    }
    int e;
    double m = kvern_split_double_(1.0 + x, &e);
    double y = kvern_log_near_one_(e == 0 ? (double)x : m - 1.0);
    return (float)fma(e, 0x1.62e42fefa39efp-1, y);
}

float kvern_log1p(float x)
{
    kvern_fp_saved saved = kvern_fp_enter();
    kvern_fp_pin(&x);
    float y = log1p_float(x);
    kvern_fp_pin(&y);
    kvern_fp_leave(saved);
    return y;
}
