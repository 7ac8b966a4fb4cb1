// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_MATH_LANES_CHECK_H
#define KVERN_TESTS_MATH_LANES_CHECK_H

// One call per operation of the lanes headers, so that test_lanes.c can compare it with plain C.

#include <stdint.h>

typedef union {
    float f[16];
    int32_t i[16];
    uint32_t u[16];
    uint16_t h[32];
} lanes_words;

// X(operation)
#define LANES_FLOAT_OPERATIONS(X)                                                                  \
    X(add)                                                                                         \
    X(sub)                                                                                         \
    X(mul)                                                                                         \
    X(div)                                                                                         \
    X(fma)                                                                                         \
    X(sqrt)                                                                                        \
    X(rint)                                                                                        \
    X(exp)                                                                                         \
    X(exp_nonpositive)                                                                             \
    X(exp_nonpositive_where)                                                                       \
    X(scale)                                                                                       \
    X(tanh)                                                                                        \
    X(sigmoid)                                                                                     \
    X(silu)                                                                                        \
    X(gelu)                                                                                        \
    X(sum_each)

// Those that move bits or make integers: a NaN keeps its payload.
#define LANES_BIT_OPERATIONS(X)                                                                    \
    X(load)                                                                                        \
    X(set)                                                                                         \
    X(zero)                                                                                        \
    X(max)                                                                                         \
    X(min)                                                                                         \
    X(neg)                                                                                         \
    X(abs)                                                                                         \
    X(copysign)                                                                                    \
    X(to_int)                                                                                      \
    X(from_int)                                                                                    \
    X(int_set)                                                                                     \
    X(int_add)                                                                                     \
    X(int_sub)                                                                                     \
    X(int_and)                                                                                     \
    X(int_or)                                                                                      \
    X(int_xor)                                                                                     \
    X(int_shl)                                                                                     \
    X(int_shr)                                                                                     \
    X(int_shr_logical)                                                                             \
    X(int_eq)                                                                                      \
    X(lt)                                                                                          \
    X(le)                                                                                          \
    X(gt)                                                                                          \
    X(ge)                                                                                          \
    X(eq)                                                                                          \
    X(isnan)                                                                                       \
    X(not_lt)                                                                                      \
    X(mask_from_bits)                                                                              \
    X(mask_and)                                                                                    \
    X(mask_or)                                                                                     \
    X(select)                                                                                      \
    X(clear)                                                                                       \
    X(swap1)                                                                                       \
    X(swap2)                                                                                       \
    X(swap4)                                                                                       \
    X(swap8)                                                                                       \
    X(keep)                                                                                        \
    X(load_bf16)                                                                                   \
    X(load_f16)                                                                                    \
    X(pairs_even)                                                                                  \
    X(pairs_odd)                                                                                   \
    X(store_bf16)                                                                                  \
    X(store_f16)                                                                                   \
    X(largest_each)

typedef enum {
#define LANES_NAME(name) LANES_##name,
    LANES_FLOAT_OPERATIONS(LANES_NAME) LANES_FIRST_BIT_OPERATION,
    LANES_BEFORE_BITS_ = LANES_FIRST_BIT_OPERATION - 1,
    LANES_BIT_OPERATIONS(LANES_NAME) LANES_OPERATION_COUNT
#undef LANES_NAME
} lanes_operation;

// out starts as a copy of c; a mask result is its bits in out[0]. Operations
// on four vectors take a, b, c and -a.
typedef void lanes_check(lanes_operation operation, const lanes_words *a, const lanes_words *b,
                         const lanes_words *c, lanes_words *out);

// lanes_store_part(to, lanes_load_part(from, count), count); *loaded gets all sixteen lanes.
typedef void lanes_check_part(const float *from, float *to, int count, lanes_words *loaded);

lanes_check lanes_check_avx2, lanes_check_avx512, lanes_check_neon;
lanes_check_part lanes_check_part_avx2, lanes_check_part_avx512, lanes_check_part_neon;

#endif
