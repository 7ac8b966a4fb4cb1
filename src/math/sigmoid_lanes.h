// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_SIGMOID_LANES_H
#define KVERN_MATH_SIGMOID_LANES_H

// The functions of sigmoid.h for sixteen lanes, bit for bit. A lanes header comes before this one.

#include "src/math/exp_lanes.h"
#include "src/math/sigmoid.h"

LANES_INLINE lanes lanes_sigmoid(lanes x)
{
    lanes one = lanes_set(1.0f);
    lanes e = lanes_exp_nonpositive(lanes_neg(lanes_abs(x)));
    lanes above = lanes_select(lanes_lt(x, lanes_zero()), e, one);
    return lanes_div(above, lanes_add(one, e));
}

LANES_INLINE lanes lanes_silu(lanes x)
{
    return lanes_mul(x, lanes_sigmoid(x));
}

LANES_INLINE lanes lanes_gelu(lanes x)
{
    lanes cubic = lanes_fma(lanes_set(KVERN_GELU_CUBIC), lanes_mul(x, x), lanes_set(1.0f));
    lanes z = lanes_mul(lanes_mul(x, lanes_set(KVERN_GELU_SCALE)), cubic);
    return lanes_mul(x, lanes_sigmoid(z));
}

#endif
