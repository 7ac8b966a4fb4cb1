// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_HEAP_H
#define KVERN_BASE_HEAP_H

// Every byte that the library takes goes through a heap: the caller's allocator behind a budget and
// exact counters. A heap may be used by several threads.

#include <kvern/context.h>
#include <stdatomic.h>

// Gives memory back to the heap that nobody uses: at least `bytes` bytes, or none. Returns how
// many.
typedef uint64_t kvern_reclaim_fn(void *user, uint64_t bytes);

typedef struct kvern_heap {
    kvern_allocator allocator;
    kvern_reclaim_fn *reclaim; // asked when the budget refuses; may be NULL
    void *reclaim_user;
    uint64_t budget_bytes; // 0: no limit
    _Atomic uint64_t held_bytes;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t allocations;
} kvern_heap;

// Alignment of ordinary blocks: a cache line, so that vector loads and per-thread slots are
// aligned.
#define KVERN_HEAP_ALIGNMENT 64

// Blocks of at least this size may be backed by huge pages.
#define KVERN_HUGE_PAGE_BYTES ((size_t)2 << 20)

// The allocator that is used when the caller brings none.
kvern_allocator kvern_system_allocator(void);

void kvern_heap_init(kvern_heap *heap, kvern_allocator allocator, uint64_t budget_bytes);

// Takes a block (bytes > 0); its content is undefined. On failure *out is NULL and nothing is held.
KVERN_CHECK kvern_status kvern_heap_take(kvern_heap *heap, size_t bytes, size_t alignment,
                                         void **out);

// The same with KVERN_HEAP_ALIGNMENT and all bytes zero.
KVERN_CHECK kvern_status kvern_heap_take_zeroed(kvern_heap *heap, size_t bytes, void **out);

// Gives a block back with the size and alignment it was taken with. NULL is allowed.
void kvern_heap_give(kvern_heap *heap, void *block, size_t bytes, size_t alignment);

#endif
