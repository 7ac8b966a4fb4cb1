// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_ARRAY_KERNELS_H
#define KVERN_MATH_ARRAY_KERNELS_H

// The vector kernels behind the array functions of kvern/math.h, one set per instruction set. They
// are defined by array_template.h and take any count.

#include <stddef.h>
#include <stdint.h>

// X(function, type of x, type of y)
#define KVERN_MATH_ARRAYS(X)                                                                       \
    X(exp, float, float)                                                                           \
    X(tanh, float, float)                                                                          \
    X(sigmoid, float, float)                                                                       \
    X(silu, float, float)                                                                          \
    X(gelu, float, float)                                                                          \
    X(softplus, float, float)                                                                      \
    X(f32_to_bf16, float, uint16_t)                                                                \
    X(bf16_to_f32, uint16_t, float)                                                                \
    X(f32_to_f16, float, uint16_t)                                                                 \
    X(f16_to_f32, uint16_t, float)

#define KVERN_MATH_MEMBER(name, from, to) void (*name)(size_t n, const from *x, to *y);
typedef struct kvern_array_kernels {
    KVERN_MATH_ARRAYS(KVERN_MATH_MEMBER)
} kvern_array_kernels;
#undef KVERN_MATH_MEMBER

extern const kvern_array_kernels kvern_array_kernels_avx2;
extern const kvern_array_kernels kvern_array_kernels_avx512;
extern const kvern_array_kernels kvern_array_kernels_neon;

#endif
