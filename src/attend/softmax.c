// SPDX-License-Identifier: MIT
#include "src/attend/softmax.h"

#include <kvern/cpu.h>

kvern_softmax_kernels kvern_softmax_kernels_of(uint32_t features)
{
#if defined(__x86_64__)
    if (features & KVERN_CPU_AVX512)
        return kvern_softmax_kernels_avx512();
    if (features & KVERN_CPU_AVX2)
        return kvern_softmax_kernels_avx2();
#elif defined(__aarch64__)
    if (features & KVERN_CPU_NEON)
        return kvern_softmax_kernels_neon();
#endif
    (void)features;
    return kvern_softmax_kernels_plain();
}
