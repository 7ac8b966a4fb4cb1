// SPDX-License-Identifier: MIT
// The kernels of array_kernels.h over the lanes API. The file that includes this one has included a
// lanes header and defined KVERN_ARRAY_KERNELS, the name of the table of its instruction set.

#include "src/math/array_kernels.h"
#include "src/math/sigmoid_lanes.h"
#include "src/math/softplus_lanes.h"
#include "src/math/tanh_lanes.h"

#define KVERN_FLOAT_ARRAY(name)                                                                    \
    static void name##_array(size_t n, const float *x, float *y)                                   \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 16 <= n; i += 16) {                                                             \
            lanes_store(y + i, lanes_##name(lanes_load(x + i)));                                   \
        }                                                                                          \
        if (i < n) {                                                                               \
            int rest = (int)(n - i);                                                               \
            lanes_store_part(y + i, lanes_##name(lanes_load_part(x + i, rest)), rest);             \
        }                                                                                          \
    }

KVERN_FLOAT_ARRAY(exp)
KVERN_FLOAT_ARRAY(tanh)
KVERN_FLOAT_ARRAY(sigmoid)
KVERN_FLOAT_ARRAY(silu)
KVERN_FLOAT_ARRAY(gelu)
KVERN_FLOAT_ARRAY(softplus)

#define KVERN_CONVERSION_ARRAY(name, from, to, load, store, scalar)                                \
    static void name##_array(size_t n, const from *x, to *y)                                       \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 16 <= n; i += 16) {                                                             \
            store(y + i, load(x + i));                                                             \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            y[i] = scalar(x[i]);                                                                   \
        }                                                                                          \
    }

KVERN_CONVERSION_ARRAY(f32_to_bf16, float, uint16_t, lanes_load, lanes_store_bf16,
                       kvern_bf16_from_f32)
KVERN_CONVERSION_ARRAY(bf16_to_f32, uint16_t, float, lanes_load_bf16, lanes_store,
                       kvern_f32_from_bf16)
KVERN_CONVERSION_ARRAY(f32_to_f16, float, uint16_t, lanes_load, lanes_store_f16, kvern_f16_from_f32)
KVERN_CONVERSION_ARRAY(f16_to_f32, uint16_t, float, lanes_load_f16, lanes_store, kvern_f32_from_f16)

#define KVERN_ARRAY_MEMBER(name, from, to) .name = name##_array,
const kvern_array_kernels KVERN_ARRAY_KERNELS = {KVERN_MATH_ARRAYS(KVERN_ARRAY_MEMBER)};
