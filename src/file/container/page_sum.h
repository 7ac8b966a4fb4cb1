// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_CONTAINER_PAGE_SUM_H
#define KVERN_FILE_CONTAINER_PAGE_SUM_H

// Checksums of pages: XXH3, 64 bits, seed 0. xxHash's header takes the widest vectors that its file
// is compiled for; it is compiled once for each instruction set, so that memory is the limit: with
// the 128 bits of x86-64's baseline it was arithmetic. The sums are the same whatever computes
// them.

#include <stddef.h>
#include <stdint.h>

typedef uint64_t kvern_page_sum_fn(const void *data, size_t bytes);

// The best one within `features` (bits of kvern/cpu.h).
kvern_page_sum_fn *kvern_page_sum_of(uint32_t features);

kvern_page_sum_fn kvern_page_sum_plain;
kvern_page_sum_fn kvern_page_sum_avx2;
kvern_page_sum_fn kvern_page_sum_avx512;
kvern_page_sum_fn kvern_page_sum_neon;

#endif
