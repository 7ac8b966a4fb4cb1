// SPDX-License-Identifier: MIT
#include "src/attend/softmax.h"

#include "src/cpu/isa.h"

#define ENTER(set, SET) [KVERN_ISA_##SET] = &kvern_softmax_##set,
static const kvern_softmax_kernels *const kernels[] = {ENTER(plain, PLAIN)
                                                           KVERN_VECTOR_ISAS(ENTER)};

kvern_softmax_kernels kvern_softmax_kernels_of(uint32_t features)
{
    return *kernels[kvern_isa_of(features)];
}
