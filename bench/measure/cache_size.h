// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_CACHE_SIZE_H
#define KVERN_BENCH_CACHE_SIZE_H

// How much of what was read last a processor keeps.

#include <stddef.h>

// Bytes of the largest cache that the first processor reads memory through; 0 where the system does
// not say.
size_t cache_size_bytes(void);

#endif
