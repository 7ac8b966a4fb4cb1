// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_KERNEL_INPUTS_H
#define KVERN_TESTS_SUPPORT_KERNEL_INPUTS_H

// What tests of kernels feed them with.

#include "tests/support/guarded.h"
#include "tests/support/random.h"

typedef enum mixture {
    ORDINARY, // around 1
    WIDE,     // most exponents, subnormal numbers, the smallest ones of every type, both zeros
    MIXTURES
} mixture;

void kernel_inputs_fill(test_random *random, mixture kind, float *x, size_t count);

// An infinity, a NaN, or a number at the edge of a type.
float kernel_inputs_special(test_random *random);

// What a kernel is told to prefetch, of a buffer: nothing, its beginning, or where it ends.
const void *kernel_inputs_next(const guarded *buffer, test_random *random);

#endif
