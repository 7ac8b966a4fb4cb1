// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_MATH_INPUTS_H
#define KVERN_TESTS_MATH_INPUTS_H

// Floats to test with, bit comparison, and the choice between a sample and everything.

#include "src/math/half.h"
#include "tests/support/check.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"

#include <stdbool.h>
#include <stdlib.h>

// Zeros, infinities, NaNs (quiet, signalling, with payloads), subnormals, the bounds of exp, tanh
// and sigmoid with their neighbours, ties of the conversions to half types.
static const uint32_t special_bits[] = {
    0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff8001ff,
    0x7fbfffff, 0x7fffffff, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x7f7fffff,
    0xff7fffff, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x42ae0000, 0xc2ae0000, 0xc2ae0001,
    0xc2adffff, 0x42b17217, 0x42b17218, 0xc2b17218, 0x42b0c0a5, 0x3eb17218, 0x3f1fffff, 0x3f200000,
    0xbf200000, 0x41102cb3, 0x41102cb4, 0x3f000000, 0x3fc00000, 0x40200000, 0x4b000001, 0x4b7fffff,
    0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fdfff, 0x387fe000, 0x3f808000, 0x3f818000,
    0x3f808001, 0x7f7f8000, 0x00008000, 0x4f000000, 0xcf000000, 0x5f000000, 0x7f000000, 0x00000080,
};

#define SPECIAL_COUNT (sizeof(special_bits) / sizeof(special_bits[0]))

// A mixture: special values, any bits, and values of ordinary size.
static inline float random_input(test_random *random)
{
    switch (test_random_below(random, 4)) {
    case 0:
        return kvern_f32_from_bits(special_bits[test_random_below(random, SPECIAL_COUNT)]);
    case 1:
        return kvern_f32_from_bits((uint32_t)test_random_next(random));
    case 2:
        return test_random_signed(random) * 100.0f;
    default:
        return test_random_signed(random) * 2.0f;
    }
}

static inline bool same_bits(float a, float b)
{
    return kvern_bits_from_f32(a) == kvern_bits_from_f32(b);
}

// The payload and sign of a NaN that arithmetic made are not part of the promise.
static inline bool same_bits_or_nan(float a, float b)
{
    return same_bits(a, b) || (a != a && b != b);
}

#if HAS_SANITIZER || !defined(__x86_64__)
#define EVERY_FLOAT_TAKES_DAYS 1 // sanitizers, and the emulators of other processors
#else
#define EVERY_FLOAT_TAKES_DAYS 0
#endif

// The step through all floats: `sample`, or 1 in the long form of the tests. Runs that repeat the
// same work (with fewer kernels, with sanitizers) keep to a denser sample there.
static inline uint32_t stride_of_floats(uint32_t sample)
{
    if (!check_is_long()) {
        return sample;
    }
    return EVERY_FLOAT_TAKES_DAYS || getenv("KVERN_CPU") != NULL ? sample / 8 : 1;
}

#endif
