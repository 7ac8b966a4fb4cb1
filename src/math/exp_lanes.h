// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_EXP_LANES_H
#define KVERN_MATH_EXP_LANES_H

// plain_exp (exp.h) for sixteen lanes, bit for bit. A lanes header comes before this one.

#include "src/math/exp.h"

#ifndef LANES_INLINE
#error "include lanes_avx2.h, lanes_avx512.h or lanes_neon.h first"
#endif

// The polynomial part: exp(x - n ln 2). *t gets n in its low bits, above `round`.
LANES_INLINE lanes lanes_exp_reduced_(lanes x, float round, lanes *t, lanes *n)
{
    *t = lanes_fma(x, lanes_set(KVERN_EXP_LOG2E), lanes_set(round));
    *n = lanes_sub(*t, lanes_set(round));
    lanes r = lanes_fma(*n, lanes_set(-KVERN_EXP_LN2_HIGH), x);
    r = lanes_fma(*n, lanes_set(-KVERN_EXP_LN2_LOW), r);
    lanes p = lanes_fma(lanes_set(KVERN_EXP_C6), r, lanes_set(KVERN_EXP_C5));
    p = lanes_fma(p, r, lanes_set(KVERN_EXP_C4));
    p = lanes_fma(p, r, lanes_set(KVERN_EXP_C3));
    p = lanes_fma(p, r, lanes_set(KVERN_EXP_C2));
    p = lanes_fma(p, r, lanes_set(1.0f));
    return lanes_fma(p, r, lanes_set(1.0f));
}

LANES_INLINE lanes lanes_exp(lanes x)
{
    lanes t, n;
    lanes p = lanes_exp_reduced_(x, KVERN_EXP_ROUND, &t, &n);
    lanes_int scaled = lanes_int_add(lanes_bits(p), lanes_int_shl(lanes_bits(t), 23));
    lanes beyond = lanes_add(x, lanes_set(INFINITY)); // NaN stays NaN
    lanes_mask within = lanes_le(x, lanes_set(KVERN_EXP_HIGHEST));
    lanes y = lanes_select(within, lanes_from_bits(scaled), beyond);
    return lanes_clear(lanes_lt(x, lanes_set(KVERN_EXP_LOWEST)), y);
}

// The same bits as lanes_exp where x <= 0 or x is NaN, with fewer instructions; unspecified
// elsewhere. What a softmax needs, whose largest score is subtracted first. The power of two is
// multiplied (which is exact), so a NaN passes without being looked for. Without the end: what is
// below KVERN_EXP_LOWEST must still become zero.
LANES_INLINE lanes lanes_exp_nonpositive_(lanes x)
{
    lanes t, n;
    lanes p = lanes_exp_reduced_(x, KVERN_EXP_ROUND + 127, &t, &n);
    return lanes_scale(p, n, t);
}

LANES_INLINE lanes lanes_exp_nonpositive(lanes x)
{
    return lanes_keep(lanes_not_lt(x, lanes_set(KVERN_EXP_LOWEST)), lanes_exp_nonpositive_(x));
}

// The same where the mask is true, and +0 elsewhere, whatever x is there.
LANES_INLINE lanes lanes_exp_nonpositive_where(lanes_mask mask, lanes x)
{
    const lanes_mask kept = lanes_mask_and(mask, lanes_not_lt(x, lanes_set(KVERN_EXP_LOWEST)));
    return lanes_keep(kept, lanes_exp_nonpositive_(x));
}

#endif
