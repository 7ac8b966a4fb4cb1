// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_FLOAT_ENVIRONMENT_H
#define KVERN_TESTS_SUPPORT_FLOAT_ENVIRONMENT_H

// Puts the calling thread into a floating-point environment in which the library's arithmetic would
// be wrong if it did not bring its own.

typedef enum float_environment {
    FLOAT_DEFAULT = 0,
    FLOAT_UPWARD,      // round towards +infinity
    FLOAT_DOWNWARD,    // round towards -infinity
    FLOAT_TOWARD_ZERO, // round towards zero
    FLOAT_FLUSH,       // subnormal operands and results become zero
    FLOAT_UPWARD_FLUSH,
    FLOAT_ENVIRONMENTS
} float_environment;

void float_environment_set(float_environment wanted);

// Whether the thread is (still) in that environment.
int float_environment_is(float_environment wanted);

#endif
