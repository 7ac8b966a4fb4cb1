// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LINEAR_INLINE_H
#define KVERN_ENGINE_LINEAR_INLINE_H

// Kernels are functions of constants (a type, a number of planes), which become code of their own
// where they are called: they must be inlined, and loops over registers must be unrolled.

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// In front of a loop with a small constant count.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

INLINE int32_t int_at(const unsigned char *p)
{
    int32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

INLINE float float_at(const unsigned char *p)
{
    float value;
    memcpy(&value, p, sizeof value);
    return value;
}

#endif
