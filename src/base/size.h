// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_SIZE_H
#define KVERN_BASE_SIZE_H

// Size arithmetic that notices when a result does not fit. Each function returns false then and
// leaves *out undefined.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool kvern_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool kvern_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool kvern_u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool kvern_i64_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool kvern_i64_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline size_t kvern_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t kvern_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline int64_t kvern_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t kvern_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline size_t kvern_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

#endif
