// SPDX-License-Identifier: MIT
#include "engine/kernels/ops.h"

#include "engine/base/instruction_sets.h"
#include "engine/kernels/ops_kernels.h"

#include <kvern/cpu.h>

#define OPS_SET(isa)                                                                               \
    {                                                                                              \
        .rms_norm = engine_rms_norm_##isa, .rotate_pairs = engine_rotate_pairs_##isa,              \
        .rotate_halves = engine_rotate_halves_##isa, .add = engine_add_##isa,                      \
        .add_scaled = engine_add_scaled_##isa, .multiply = engine_multiply_##isa                   \
    }

// The sets of this build and what they need, the best one first.
static const struct {
    uint32_t feature;
    engine_ops ops;
} SETS[] = {
#ifdef ENGINE_HAS_AVX512
    {KVERN_CPU_AVX512, OPS_SET(avx512)},
#endif
#ifdef ENGINE_HAS_AVX2
    {KVERN_CPU_AVX2, OPS_SET(avx2)},
#endif
    {0, OPS_SET(plain)},
};

const engine_ops *engine_ops_select(uint32_t features)
{
    size_t i = 0;
    while ((features & SETS[i].feature) != SETS[i].feature) {
        i++;
    }
    return &SETS[i].ops;
}
