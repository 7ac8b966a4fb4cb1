// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_ROUNDING_H
#define KVERN_TESTS_SUPPORT_ROUNDING_H

// Rounding to the element types by arithmetic, written without a look at the library's conversions
// by bit patterns: what these two agree on is right.

#include <kvern/composition.h>

// x rounded to the nearest value of `type`, ties to even; infinite when it is too large.
float rounded(kvern_type type, float x);

// Half of the distance of the values of `type` around x, at most: the error of one rounding.
double rounding_error(kvern_type type, double x);

// The element at index `at` of a tensor of `type`, and storing one (rounded).
float element_get(kvern_type type, const void *tensor, size_t at);
void element_set(kvern_type type, void *tensor, size_t at, float x);

#endif
