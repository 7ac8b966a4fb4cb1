// SPDX-License-Identifier: MIT
#include "engine/kernels/ops.h"

#include "engine/kernels/ops_kernels.h"

#include <kvern/cpu.h>

#define OPS_SET(isa)                                                                               \
    {                                                                                              \
        .rms_norm = engine_rms_norm_##isa, .rotate_pairs = engine_rotate_pairs_##isa,              \
        .rotate_halves = engine_rotate_halves_##isa, .add = engine_add_##isa,                      \
        .multiply = engine_multiply_##isa                                                          \
    }

static const engine_ops ops_plain = OPS_SET(plain);
#if defined(__x86_64__)
static const engine_ops ops_avx2 = OPS_SET(avx2);
static const engine_ops ops_avx512 = OPS_SET(avx512);
#endif

const engine_ops *engine_ops_select(uint32_t features)
{
#if defined(__x86_64__)
    if (features & KVERN_CPU_AVX512) {
        return &ops_avx512;
    }
    if (features & KVERN_CPU_AVX2) {
        return &ops_avx2;
    }
#else
    (void)features;
#endif
    return &ops_plain;
}
