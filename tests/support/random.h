// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_RANDOM_H
#define KVERN_TESTS_SUPPORT_RANDOM_H

// A small random generator for tests: the same seed gives the same sequence on every machine.

#include <stdint.h>

typedef struct test_random {
    uint64_t state;
} test_random;

static inline test_random test_random_seed(uint64_t seed)
{
    return (test_random){seed};
}

// 64 random bits (a Weyl sequence, mixed: splitmix64).
static inline uint64_t test_random_next(test_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// A whole number from 0 to bound - 1.
static inline uint64_t test_random_below(test_random *random, uint64_t bound)
{
    return test_random_next(random) % bound;
}

// Uniform in [-1, 1), a multiple of 2^-23.
static inline float test_random_signed(test_random *random)
{
    return (float)((int32_t)(test_random_next(random) >> 40) - (1 << 23)) * 0x1p-23f;
}

#endif
