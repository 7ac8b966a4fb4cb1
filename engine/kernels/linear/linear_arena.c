// SPDX-License-Identifier: MIT
// One mapping for the packed weights of a model. It is mapped from the system and not taken from an
// allocator: its bytes are zero without being touched, it is aligned to huge pages, and most of a
// model's matrices are smaller than one of those.
#include "engine/kernels/linear/linear_arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

struct linear_arena {
    unsigned char *mapping; // as the system gave it; NULL when empty
    size_t mapped_bytes;
    unsigned char *start; // on a huge page
    size_t bytes;
    size_t used;
};

// Maps one huge page more than is asked for, to have room for the alignment: untouched memory costs
// nothing.
static bool map_weights(linear_arena *arena, size_t bytes)
{
    if (bytes == 0)
        return true;
    if (__builtin_add_overflow(bytes, HUGE_PAGE, &arena->mapped_bytes))
        return false;
    void *mapping =
        mmap(NULL, arena->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return false;
    arena->mapping = mapping;
    arena->start = arena->mapping + (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE) % HUGE_PAGE;
    arena->bytes = bytes;
#ifdef MADV_HUGEPAGE
    // A wish: without huge pages everything works the same.
    (void)madvise(arena->start, bytes, MADV_HUGEPAGE);
#endif
    return true;
}

kvern_status linear_arena_create(size_t bytes, linear_arena **out, engine_error *error)
{
    *out = NULL;
    linear_arena *arena = calloc(1, sizeof *arena);
    if (!arena || !map_weights(arena, bytes)) {
        free(arena);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu bytes of weights", bytes);
    }
    *out = arena;
    return KVERN_OK;
}

void linear_arena_destroy(linear_arena *arena)
{
    if (arena && arena->mapping)
        munmap(arena->mapping, arena->mapped_bytes);
    free(arena);
}

unsigned char *linear_arena_take(linear_arena *arena, size_t bytes)
{
    if (bytes > arena->bytes - arena->used)
        return NULL;
    unsigned char *taken = arena->start + arena->used;
    arena->used += bytes;
    return taken;
}
