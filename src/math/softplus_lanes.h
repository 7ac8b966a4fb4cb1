// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_SOFTPLUS_LANES_H
#define KVERN_MATH_SOFTPLUS_LANES_H

// plain_softplus (softplus.h) for sixteen lanes, bit for bit. A lanes header comes before this one.

#include "src/math/exp_lanes.h"
#include "src/math/softplus.h"

// The two halves of it, each a chain of dependent operations. exp(-|x|):
LANES_INLINE lanes lanes_softplus_exp(lanes x)
{
    return lanes_exp_nonpositive(lanes_neg(lanes_abs(x)));
}

// The rest, with e of the half above.
LANES_INLINE lanes lanes_softplus_rest(lanes x, lanes e)
{
    lanes s = lanes_div(lanes_add(e, e), lanes_add(lanes_set(2.0f), e));
    lanes u = lanes_mul(s, s);
    lanes p = lanes_fma(lanes_set(KVERN_SOFTPLUS_C3), u, lanes_set(KVERN_SOFTPLUS_C2));
    p = lanes_fma(p, u, lanes_set(KVERN_SOFTPLUS_C1));
    p = lanes_fma(p, u, lanes_set(KVERN_SOFTPLUS_C0));
    lanes y = lanes_fma(p, lanes_mul(s, u), s);
    return lanes_select(lanes_lt(x, lanes_zero()), y, lanes_add(x, y));
}

LANES_INLINE lanes lanes_softplus(lanes x)
{
    return lanes_softplus_rest(x, lanes_softplus_exp(x));
}

#endif
