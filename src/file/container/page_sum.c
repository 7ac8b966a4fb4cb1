// SPDX-License-Identifier: MIT
#include "src/file/container/page_sum.h"

#include "src/cpu/isa.h"

kvern_page_sum_fn *kvern_page_sum_of(uint32_t features)
{
#define ENTER(set, SET) [KVERN_ISA_##SET] = kvern_page_sum_##set,
    static kvern_page_sum_fn *const sums[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};
#undef ENTER
    return sums[kvern_isa_of(features)];
}
