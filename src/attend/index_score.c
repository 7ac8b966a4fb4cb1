// SPDX-License-Identifier: MIT
#include "src/attend/index_score.h"

#include "src/cpu/isa.h"

#define ENTER(set, SET) [KVERN_ISA_##SET] = kvern_index_score_##set,
static kvern_index_score_fn *const kernels[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};

kvern_index_score_fn *kvern_index_score_of(uint32_t features)
{
    return kernels[kvern_isa_of(features)];
}
