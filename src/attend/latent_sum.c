// SPDX-License-Identifier: MIT
#include "src/attend/latent_sum.h"

#include "src/cpu/isa.h"

#define ENTER(set, SET) [KVERN_ISA_##SET] = kvern_latent_sum_##set,
static kvern_latent_sum_fn *const kernels[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};

kvern_latent_sum_fn *kvern_latent_sum_of(uint32_t features)
{
    return kernels[kvern_isa_of(features)];
}
