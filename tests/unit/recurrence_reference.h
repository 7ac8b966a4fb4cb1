// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_UNIT_RECURRENCE_REFERENCE_H
#define KVERN_TESTS_UNIT_RECURRENCE_REFERENCE_H

// A recurrence in double precision that carries, with every number, how far the library's float
// computation of it may be from the true value: each operation adds its own rounding (half an ulp,
// or the bound of an elementary function) to what its operands bring along.

#include "src/recurrent/recurrence.h"

typedef struct approximate {
    double value, error;
} approximate;

// The outputs y [count][value_heads][v_dim] of the tokens from an empty state, and S afterwards,
// [value_heads][v_dim][k_dim].
void recurrence_reference(const kvern_recurrence_shape *shape,
                          const kvern_recurrence_weights *weights,
                          const kvern_recurrence_tokens *tokens, approximate *y, approximate *s);

#endif
