// SPDX-License-Identifier: MIT
// The functions of kvern/math.h over arrays: the plain loops, and the choice of a kernel.

#include "src/math/array_kernels.h"
#include "src/math/fpenv.h"
#include "src/math/half.h"
#include "src/math/sigmoid.h"
#include "src/math/tanh.h"

#include <kvern/cpu.h>
#include <kvern/math.h>

#define plain_f32_to_bf16 kvern_bf16_from_f32
#define plain_bf16_to_f32 kvern_f32_from_bf16
#define plain_f32_to_f16 kvern_f16_from_f32
#define plain_f16_to_f32 kvern_f32_from_f16

#define PLAIN_ARRAY(name, from, to)                                                                \
    static void name##_array_plain(size_t n, const from *x, to *y)                                 \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            y[i] = plain_##name(x[i]);                                                             \
        }                                                                                          \
    }
KVERN_MATH_ARRAYS(PLAIN_ARRAY)

#if defined(__x86_64__)
#define CHOOSE(features, name)                                                                     \
    ((features)&KVERN_CPU_AVX512 ? kvern_##name##_array_avx512                                     \
     : (features)&KVERN_CPU_AVX2 ? kvern_##name##_array_avx2                                       \
                                 : name##_array_plain)
#elif defined(__aarch64__)
#define CHOOSE(features, name)                                                                     \
    ((features)&KVERN_CPU_NEON ? kvern_##name##_array_neon : name##_array_plain)
#else
#define CHOOSE(features, name) ((void)(features), name##_array_plain)
#endif

#define PUBLIC_ARRAY(name, from, to)                                                               \
    void kvern_##name##_array(uint32_t features, size_t n, const from *x, to *y)                   \
    {                                                                                              \
        kvern_fp_saved saved = kvern_fp_enter();                                                   \
        CHOOSE(features, name)(n, x, y);                                                           \
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
