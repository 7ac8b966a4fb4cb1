// SPDX-License-Identifier: MIT
#include "src/recurrent/recurrence_kernels.h"

#include "src/cpu/isa.h"

#define ENTER(set, SET) [KVERN_ISA_##SET] = &kvern_recurrence_##set,
static const kvern_recurrence_kernels *const kernels[] = {ENTER(plain, PLAIN)
                                                              KVERN_VECTOR_ISAS(ENTER)};

const kvern_recurrence_kernels *kvern_recurrence_kernels_of(uint32_t features)
{
    return kernels[kvern_isa_of(features)];
}
