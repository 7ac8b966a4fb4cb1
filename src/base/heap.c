// SPDX-License-Identifier: MIT
#include "src/base/heap.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Memory is mapped and given back in whole pages of the system, which have 64 KiB at most. What is
// mapped beyond a block is never touched.
#define LARGEST_SYSTEM_PAGE ((size_t)65536)

static size_t mapped_bytes(size_t bytes)
{
    return kvern_ceil_div(bytes, LARGEST_SYSTEM_PAGE) * LARGEST_SYSTEM_PAGE;
}

// Large blocks come straight from the kernel: they are aligned to huge pages, they return to the
// system at once when they are given back, and they cost no physical memory until they are written.
static void *map_aligned(size_t bytes, size_t alignment)
{
    const size_t whole = mapped_bytes(bytes), length = whole + alignment;
    if (whole < bytes || length < whole)
        return NULL;
    char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    const size_t before = (alignment - (uintptr_t)map % alignment) % alignment;
    if (before)
        munmap(map, before);
    if (alignment - before)
        munmap(map + before + whole, alignment - before);
#ifdef MADV_HUGEPAGE
    // Best effort: without huge pages the same memory works, only slower.
    (void)madvise(map + before, bytes, MADV_HUGEPAGE);
#endif
    return map + before;
}

static int is_mapped(size_t bytes, size_t alignment)
{
    return alignment >= KVERN_HUGE_PAGE_BYTES && bytes % 4096 == 0;
}

static void *system_allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    if (is_mapped(bytes, alignment))
        return map_aligned(bytes, alignment);
    void *block = NULL;
    const size_t least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    return posix_memalign(&block, least, bytes) == 0 ? block : NULL;
}

static void system_release(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)user;
    if (is_mapped(bytes, alignment))
        munmap(block, mapped_bytes(bytes));
    else
        free(block);
}

kvern_allocator kvern_system_allocator(void)
{
    return (kvern_allocator){.allocate = system_allocate, .release = system_release};
}

void kvern_heap_init(kvern_heap *heap, kvern_allocator allocator, uint64_t budget_bytes)
{
    memset(heap, 0, sizeof *heap);
    heap->allocator = allocator;
    heap->budget_bytes = budget_bytes;
}

static bool reclaim(kvern_heap *heap, uint64_t bytes)
{
    return heap->reclaim && heap->reclaim(heap->reclaim_user, bytes) > 0;
}

// Books the bytes before they are taken, so that two threads cannot pass the budget together.
// *wanted: what is held with them.
static kvern_status book(kvern_heap *heap, size_t bytes, uint64_t *wanted)
{
    uint64_t held = atomic_load(&heap->held_bytes);
    for (;;) {
        if (__builtin_add_overflow(held, (uint64_t)bytes, wanted))
            return kvern_fail(KVERN_ERR_OVERFLOW, "%zu bytes more do not fit any counter", bytes);
        if (!heap->budget_bytes || *wanted <= heap->budget_bytes) {
            if (atomic_compare_exchange_weak(&heap->held_bytes, &held, *wanted))
                return KVERN_OK;
        } else if (reclaim(heap, *wanted - heap->budget_bytes)) {
            held = atomic_load(&heap->held_bytes);
        } else {
            return kvern_fail(KVERN_ERR_BUDGET,
                              "%zu bytes more than the %" PRIu64
                              " held would exceed the budget of %" PRIu64 " bytes",
                              bytes, held, heap->budget_bytes);
        }
    }
}

static void note_peak(kvern_heap *heap, uint64_t held)
{
    uint64_t peak = atomic_load(&heap->peak_bytes);
    while (held > peak && !atomic_compare_exchange_weak(&heap->peak_bytes, &peak, held))
        ;
}

kvern_status kvern_heap_take(kvern_heap *heap, size_t bytes, size_t alignment, void **out)
{
    *out = NULL;
    uint64_t held;
    KVERN_ASSERT(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
    kvern_status status = book(heap, bytes, &held);
    if (status)
        return status;
    *out = heap->allocator.allocate(heap->allocator.user, bytes, alignment);
    if (!*out) {
        atomic_fetch_sub(&heap->held_bytes, bytes);
        return kvern_fail(KVERN_ERR_MEMORY, "the allocator gave no %zu bytes", bytes);
    }
    note_peak(heap, held);
    atomic_fetch_add(&heap->allocations, 1);
    return KVERN_OK;
}

kvern_status kvern_heap_take_zeroed(kvern_heap *heap, size_t bytes, void **out)
{
    kvern_status status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, out);
    if (!status)
        memset(*out, 0, bytes);
    return status;
}

void kvern_heap_give(kvern_heap *heap, void *block, size_t bytes, size_t alignment)
{
    if (!block)
        return;
    heap->allocator.release(heap->allocator.user, block, bytes, alignment);
    const uint64_t held = atomic_fetch_sub(&heap->held_bytes, bytes);
    KVERN_ASSERT(held >= bytes);
    (void)held;
}
