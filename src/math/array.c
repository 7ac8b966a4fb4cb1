// SPDX-License-Identifier: MIT
// The functions of kvern/math.h over arrays: the plain loops, and the choice of a kernel.

#include "src/cpu/isa.h"
#include "src/math/array_kernels.h"
#include "src/math/fpenv.h"
#include "src/math/half.h"
#include "src/math/sigmoid.h"
#include "src/math/softplus.h"
#include "src/math/tanh.h"

#include <kvern/math.h>

#define plain_f32_to_bf16 kvern_bf16_from_f32
#define plain_bf16_to_f32 kvern_f32_from_bf16
#define plain_f32_to_f16 kvern_f16_from_f32
#define plain_f16_to_f32 kvern_f32_from_f16

#define PLAIN_ARRAY(name, from, to)                                                                \
    static void name##_array(size_t n, const from *x, to *y)                                       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            y[i] = plain_##name(x[i]);                                                             \
        }                                                                                          \
    }
KVERN_MATH_ARRAYS(PLAIN_ARRAY)

#define PLAIN_MEMBER(name, from, to) .name = name##_array,
static const kvern_array_kernels kvern_array_kernels_plain = {KVERN_MATH_ARRAYS(PLAIN_MEMBER)};

#define ENTER(set, SET) [KVERN_ISA_##SET] = &kvern_array_kernels_##set,
static const kvern_array_kernels *const kernels[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};

#define PUBLIC_ARRAY(name, from, to)                                                               \
    void kvern_##name##_array(uint32_t features, size_t n, const from *x, to *y)                   \
    {                                                                                              \
        kvern_fp_saved saved = kvern_fp_enter();                                                   \
        kernels[kvern_isa_of(features)]->name(n, x, y);                                            \
        kvern_fp_leave(saved);                                                                     \
    }
KVERN_MATH_ARRAYS(PUBLIC_ARRAY)

#define PUBLIC_SCALAR(name)                                                                        \
    float kvern_##name(float x)                                                                    \
    {                                                                                              \
        kvern_fp_saved saved = kvern_fp_enter();                                                   \
        kvern_fp_pin(&x);                                                                          \
        float y = plain_##name(x);                                                                 \
        kvern_fp_pin(&y);                                                                          \
        kvern_fp_leave(saved);                                                                     \
        return y;                                                                                  \
    }
PUBLIC_SCALAR(exp)
PUBLIC_SCALAR(tanh)
PUBLIC_SCALAR(sigmoid)
PUBLIC_SCALAR(softplus)
