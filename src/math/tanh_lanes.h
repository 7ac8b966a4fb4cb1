// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_TANH_LANES_H
#define KVERN_MATH_TANH_LANES_H

// plain_tanh (tanh.h) for sixteen lanes, bit for bit. A lanes header comes before this one.

#include "src/math/exp_lanes.h"
#include "src/math/tanh.h"

LANES_INLINE lanes lanes_tanh(lanes x)
{
    lanes a = lanes_abs(x);
    lanes u = lanes_mul(a, a);
    lanes p = lanes_fma(lanes_set(KVERN_TANH_C4), u, lanes_set(KVERN_TANH_C3));
    p = lanes_fma(p, u, lanes_set(KVERN_TANH_C2));
    p = lanes_fma(p, u, lanes_set(KVERN_TANH_C1));
    p = lanes_fma(p, u, lanes_set(KVERN_TANH_C0));
    lanes small = lanes_fma(p, lanes_mul(a, u), a);
    lanes one = lanes_set(1.0f);
    lanes e = lanes_exp_nonpositive(lanes_mul(lanes_set(-2.0f), a));
    lanes large = lanes_sub(one, lanes_div(lanes_add(e, e), lanes_add(one, e)));
    lanes_mask below = lanes_lt(a, lanes_set(KVERN_TANH_SPLIT));
    return lanes_copysign(lanes_select(below, small, large), x);
}

#endif
