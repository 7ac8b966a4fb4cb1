// SPDX-License-Identifier: MIT
#include "src/attend/latent_kernels.h"

#include "src/cpu/isa.h"

#define ENTER(set, SET) [KVERN_ISA_##SET] = &kvern_latent_##set,
static const kvern_latent_kernels *const kernels[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};

const kvern_latent_kernels *kvern_latent_kernels_of(uint32_t features)
{
    return kernels[kvern_isa_of(features)];
}
