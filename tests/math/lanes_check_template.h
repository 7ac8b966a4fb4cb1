// SPDX-License-Identifier: MIT
// The functions of lanes_check.h for the lanes header that was included before. LANES_CHECK and
// LANES_CHECK_PART name them.

#include "src/math/sigmoid_lanes.h"
#include "src/math/tanh_lanes.h"
#include "tests/math/lanes_check.h"

// clang-format off
void LANES_CHECK(lanes_operation operation, const lanes_words *a, const lanes_words *b,
                 const lanes_words *c, lanes_words *out)
{
    lanes x = lanes_load(a->f), y = lanes_load(b->f), z = lanes_load(c->f);
    lanes_int i = lanes_int_load(a->i), j = lanes_int_load(b->i);
    const lanes four[4] = {x, y, z, lanes_neg(x)};
    lanes even, odd;
    lanes_load_bf16_pairs(a->h, &even, &odd);
    *out = *c;
    switch (operation) {
    case LANES_add: lanes_store(out->f, lanes_add(x, y)); break;
    case LANES_sub: lanes_store(out->f, lanes_sub(x, y)); break;
    case LANES_mul: lanes_store(out->f, lanes_mul(x, y)); break;
    case LANES_div: lanes_store(out->f, lanes_div(x, y)); break;
    case LANES_fma: lanes_store(out->f, lanes_fma(x, y, z)); break;
    case LANES_sqrt: lanes_store(out->f, lanes_sqrt(x)); break;
    case LANES_rint: lanes_store(out->f, lanes_rint(x)); break;
    case LANES_exp: lanes_store(out->f, lanes_exp(x)); break;
    case LANES_exp_nonpositive: lanes_store(out->f, lanes_exp_nonpositive(x)); break;
    case LANES_exp_nonpositive_where:
        lanes_store(out->f, lanes_exp_nonpositive_where(lanes_mask_from_bits(c->u[0]), x));
        break;
    case LANES_scale: lanes_store(out->f, lanes_scale(x, y, z)); break;
    case LANES_tanh: lanes_store(out->f, lanes_tanh(x)); break;
    case LANES_sigmoid: lanes_store(out->f, lanes_sigmoid(x)); break;
    case LANES_silu: lanes_store(out->f, lanes_silu(x)); break;
    case LANES_gelu: lanes_store(out->f, lanes_gelu(x)); break;
    case LANES_sum_each: lanes_sum_each(four, out->f); break;
    case LANES_load: lanes_store(out->f, x); break;
    case LANES_set: lanes_store(out->f, lanes_set(a->f[0])); break;
    case LANES_zero: lanes_store(out->f, lanes_zero()); break;
    case LANES_max: lanes_store(out->f, lanes_max(x, y)); break;
    case LANES_min: lanes_store(out->f, lanes_min(x, y)); break;
    case LANES_neg: lanes_store(out->f, lanes_neg(x)); break;
    case LANES_abs: lanes_store(out->f, lanes_abs(x)); break;
    case LANES_copysign: lanes_store(out->f, lanes_copysign(x, y)); break;
    case LANES_to_int: lanes_int_store(out->i, lanes_to_int(x)); break;
    case LANES_from_int: lanes_store(out->f, lanes_from_int(i)); break;
    case LANES_int_set: lanes_int_store(out->i, lanes_int_set(a->i[0])); break;
    case LANES_int_add: lanes_int_store(out->i, lanes_int_add(i, j)); break;
    case LANES_int_sub: lanes_int_store(out->i, lanes_int_sub(i, j)); break;
    case LANES_int_and: lanes_int_store(out->i, lanes_int_and(i, j)); break;
    case LANES_int_or: lanes_int_store(out->i, lanes_int_or(i, j)); break;
    case LANES_int_xor: lanes_int_store(out->i, lanes_int_xor(i, j)); break;
    case LANES_int_shl: lanes_int_store(out->i, lanes_int_shl(i, 23)); break;
    case LANES_int_shr: lanes_int_store(out->i, lanes_int_shr(i, 5)); break;
    case LANES_int_shr_logical: lanes_int_store(out->i, lanes_int_shr_logical(i, 16)); break;
    case LANES_int_eq: out->u[0] = lanes_mask_bits(lanes_int_eq(i, j)); break;
    case LANES_lt: out->u[0] = lanes_mask_bits(lanes_lt(x, y)); break;
    case LANES_le: out->u[0] = lanes_mask_bits(lanes_le(x, y)); break;
    case LANES_gt: out->u[0] = lanes_mask_bits(lanes_gt(x, y)); break;
    case LANES_ge: out->u[0] = lanes_mask_bits(lanes_ge(x, y)); break;
    case LANES_eq: out->u[0] = lanes_mask_bits(lanes_eq(x, y)); break;
    case LANES_isnan: out->u[0] = lanes_mask_bits(lanes_isnan(x)); break;
    case LANES_not_lt: out->u[0] = lanes_mask_bits(lanes_not_lt(x, y)); break;
    case LANES_mask_from_bits:
        out->u[0] = lanes_mask_bits(lanes_mask_from_bits(a->u[0]));
        break;
    case LANES_mask_and:
        out->u[0] = lanes_mask_bits(lanes_mask_and(lanes_lt(x, y), lanes_mask_from_bits(c->u[0])));
        break;
    case LANES_mask_or:
        out->u[0] = lanes_mask_bits(lanes_mask_or(lanes_lt(x, y), lanes_mask_from_bits(c->u[0])));
        break;
    case LANES_select:
        lanes_store(out->f, lanes_select(lanes_mask_from_bits(c->u[0]), x, y));
        break;
    case LANES_clear:
        lanes_store(out->f, lanes_clear(lanes_mask_from_bits(c->u[0]), x));
        break;
    case LANES_keep:
        lanes_store(out->f, lanes_keep(lanes_mask_from_bits(c->u[0]), x));
        break;
    case LANES_swap1: lanes_store(out->f, lanes_swap(x, 1)); break;
    case LANES_swap2: lanes_store(out->f, lanes_swap(x, 2)); break;
    case LANES_swap4: lanes_store(out->f, lanes_swap(x, 4)); break;
    case LANES_swap8: lanes_store(out->f, lanes_swap(x, 8)); break;
    case LANES_load_bf16: lanes_store(out->f, lanes_load_bf16(a->h + 1)); break;
    case LANES_load_f16: lanes_store(out->f, lanes_load_f16(a->h + 1)); break;
    case LANES_pairs_even: lanes_store(out->f, even); break;
    case LANES_pairs_odd: lanes_store(out->f, odd); break;
    case LANES_store_bf16: lanes_store_bf16(out->h + 1, x); break;
    case LANES_store_f16: lanes_store_f16(out->h + 1, x); break;
    case LANES_largest_each: lanes_largest_each(four, out->f); break;
    default: break;
    }
}
// clang-format on

void LANES_CHECK_PART(const float *from, float *to, int count, lanes_words *loaded)
{
    lanes v = lanes_load_part(from, count);
    lanes_store(loaded->f, v);
    lanes_store_part(to, v, count);
}
