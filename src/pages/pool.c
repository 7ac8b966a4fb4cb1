// SPDX-License-Identifier: MIT
#include "src/pages/pool.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"

struct kvern_arena {
    kvern_pool *pool;
    kvern_arena *next, *previous; // among the pool's arenas that have a free page
    uint64_t number;              // the newer, the larger
    void *data;
    size_t data_bytes, alignment; // as they were asked for
    size_t capacity, used;        // pages
    kvern_page *free;
    kvern_let_go_fn *let_go; // of memory that is not the heap's; else NULL
    void *user;
    kvern_page pages[];
};

struct kvern_pool {
    _Atomic size_t references;
    kvern_context *context;
    size_t page_bytes;
    size_t full_pages; // pages of 2 MiB
    bool single;       // each page is an arena by itself
    pthread_mutex_t lock;
    kvern_arena *open;  // arenas that have a free page, the newest first
    uint64_t arenas;    // added so far
    size_t total_pages; // over all arenas
    size_t free_pages;  // of them
};

// Unused bytes at the end of an arena that are worth whole huge pages: a fiftieth.
#define WASTE_DIVISOR 50

// Arenas of a large pool are this part of it, so that there are hundreds of them and not tens of
// thousands: a process may have some 65,000 mappings.
#define GROWTH_DIVISOR 128

// No arena is larger than this, unless a single page is.
#define MOST_ARENA_BYTES ((size_t)1 << 30)

kvern_status kvern_pool_create(kvern_context *context, size_t page_bytes, bool single,
                               kvern_pool **out)
{
    void *block;
    *out = NULL;
    kvern_status status = kvern_heap_take_zeroed(&context->heap, sizeof **out, &block);
    if (status)
        return status;
    kvern_pool *pool = block;
    kvern_context_retain(context);
    pool->references = 1;
    pool->context = context;
    pool->page_bytes = page_bytes;
    pool->full_pages = kvern_max_size(1, KVERN_HUGE_PAGE_BYTES / page_bytes);
    pool->single = single;
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return KVERN_OK;
}

void kvern_pool_retain(kvern_pool *pool)
{
    atomic_fetch_add_explicit(&pool->references, 1, memory_order_relaxed);
}

void kvern_pool_release(kvern_pool *pool)
{
    if (!pool || atomic_fetch_sub(&pool->references, 1) != 1)
        return;
    KVERN_ASSERT(pool->total_pages == 0 && pool->free_pages == 0 && !pool->open);
    kvern_context *context = pool->context;
    pthread_mutex_destroy(&pool->lock);
    kvern_heap_give(&context->heap, pool, sizeof *pool, KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}

size_t kvern_pool_page_bytes(const kvern_pool *pool)
{
    return pool->page_bytes;
}

kvern_context *kvern_pool_context(const kvern_pool *pool)
{
    return pool->context;
}

// ---- Arenas: nothing here is done under the lock ----

static size_t arena_bytes(size_t capacity)
{
    return sizeof(kvern_arena) + capacity * sizeof(kvern_page);
}

// Bytes and alignment of the memory of an arena of `capacity` pages. From 2 MiB on an arena takes
// whole huge pages where that wastes little; where it would waste much, its last pages go without.
static kvern_status size_data(const kvern_pool *pool, kvern_arena *arena)
{
    size_t bytes;
    if (!kvern_size_mul(arena->capacity, pool->page_bytes, &bytes) || bytes > SIZE_MAX / 4)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu pages of %zu bytes do not fit memory",
                          arena->capacity, pool->page_bytes);
    arena->data_bytes = bytes;
    arena->alignment = KVERN_HEAP_ALIGNMENT;
    if (arena->capacity < pool->full_pages)
        return KVERN_OK;
    const size_t whole = kvern_ceil_div(bytes, KVERN_HUGE_PAGE_BYTES) * KVERN_HUGE_PAGE_BYTES;
    arena->alignment = KVERN_HUGE_PAGE_BYTES;
    arena->data_bytes = kvern_ceil_div(bytes, 4096) * 4096;
    if (whole - bytes <= whole / WASTE_DIVISOR)
        arena->data_bytes = whole;
    return KVERN_OK;
}

static void link_pages(kvern_arena *arena)
{
    for (size_t i = arena->capacity; i-- > 0;) {
        kvern_page *page = &arena->pages[i];
        page->arena = arena;
        page->data = (char *)arena->data + i * arena->pool->page_bytes;
        page->next = arena->free;
        arena->free = page;
    }
}

static kvern_status create_arena(kvern_pool *pool, size_t capacity, kvern_arena **out)
{
    kvern_heap *heap = &pool->context->heap;
    void *block;
    kvern_status status = kvern_heap_take_zeroed(heap, arena_bytes(capacity), &block);
    if (status)
        return status;
    kvern_arena *arena = block;
    arena->pool = pool;
    arena->capacity = capacity;
    if (!(status = size_data(pool, arena)))
        status = kvern_heap_take(heap, arena->data_bytes, arena->alignment, &arena->data);
    if (status) {
        kvern_heap_give(heap, arena, arena_bytes(capacity), KVERN_HEAP_ALIGNMENT);
        return status;
    }
    link_pages(arena);
    kvern_pool_retain(pool);
    *out = arena;
    return KVERN_OK;
}

// The reference on its pool goes last: it may be the last one.
static void destroy_arena(kvern_arena *arena)
{
    KVERN_ASSERT(arena->used == 0 && !arena->next && !arena->previous);
    kvern_pool *pool = arena->pool;
    kvern_heap *heap = &pool->context->heap;
    kvern_heap_give(heap, arena->data, arena->data_bytes, arena->alignment);
    kvern_heap_give(heap, arena, arena_bytes(arena->capacity), KVERN_HEAP_ALIGNMENT);
    kvern_pool_release(pool);
}

// ---- Under the lock ----

// Pages are taken from the newest arenas first; older ones fill up and stay.
static void link_arena(kvern_arena *arena)
{
    kvern_arena **at = &arena->pool->open, *previous = NULL;
    while (*at && (*at)->number > arena->number) {
        previous = *at;
        at = &previous->next;
    }
    arena->previous = previous;
    arena->next = *at;
    if (arena->next)
        arena->next->previous = arena;
    *at = arena;
}

static void unlink_arena(kvern_arena *arena)
{
    if (arena->previous)
        arena->previous->next = arena->next;
    else
        arena->pool->open = arena->next;
    if (arena->next)
        arena->next->previous = arena->previous;
    arena->next = arena->previous = NULL;
}

static kvern_page *pop_page(kvern_arena *arena)
{
    kvern_page *page = arena->free;
    arena->free = page->next;
    arena->used++;
    KVERN_ASSERT(page->references == 0 && arena->used <= arena->capacity);
    page->references = 1;
    return page;
}

// Takes up to `count` pages out of arenas that are there, and says how many.
static size_t take_free(kvern_pool *pool, size_t count, kvern_page **pages)
{
    size_t taken = 0;
    KVERN_ASSERT(pool->free_pages <= pool->total_pages && !pool->open == !pool->free_pages);
    while (taken < count && pool->open) {
        kvern_arena *arena = pool->open;
        pages[taken++] = pop_page(arena);
        pool->free_pages--;
        if (!arena->free)
            unlink_arena(arena);
    }
    return taken;
}

// Adds a new arena, less what is taken of it: up to `count` pages. Says how many.
static size_t add_arena(kvern_pool *pool, kvern_arena *arena, size_t count, kvern_page **pages)
{
    size_t taken = 0;
    while (taken < count && arena->free)
        pages[taken++] = pop_page(arena);
    arena->number = ++pool->arenas;
    pool->total_pages += arena->capacity;
    pool->free_pages += arena->capacity - taken;
    if (arena->free)
        link_arena(arena);
    return taken;
}

// Returns the arena when this was its last page: it has gone from the pool, and remains to be
// destroyed without the lock. From here on the pool may go, unless there is such an arena.
static kvern_arena *push_page(kvern_page *page)
{
    kvern_arena *arena = page->arena;
    kvern_pool *pool = arena->pool;
    KVERN_ASSERT(arena->used > 0 && page->stored == 0);
    if (!arena->free)
        link_arena(arena);
    page->next = arena->free;
    arena->free = page;
    pool->free_pages++;
    if (--arena->used > 0)
        return NULL;
    unlink_arena(arena);
    pool->total_pages -= arena->capacity;
    pool->free_pages -= arena->capacity;
    return arena;
}

// ---- Taking ----

// Pages of the next arena, of which `needed` are wanted at once. Without a budget a small pool
// doubles up to 2 MiB; beyond that, and under a budget, whose bytes others need too, an arena is
// what is wanted now or a small part of what the pool has. From 2 MiB on it holds a multiple of
// that: what is left over would lie outside of huge pages, and reads of it would take a tenth
// longer.
static size_t wish(const kvern_pool *pool, size_t needed, size_t total)
{
    const size_t most = kvern_max_size(pool->full_pages, MOST_ARENA_BYTES / pool->page_bytes);
    size_t growth = total / GROWTH_DIVISOR;
    if (pool->single)
        return 1;
    if (pool->context->heap.budget_bytes == 0)
        growth = kvern_max_size(growth, kvern_min_size(total, pool->full_pages));
    // What is wanted now is cut into arenas, too: they go back one by one.
    const size_t wanted =
        kvern_min_size(needed, kvern_max_size(pool->full_pages, total / GROWTH_DIVISOR));
    const size_t pages = kvern_min_size(kvern_max_size(wanted, growth), most);
    return pages < pool->full_pages ? pages : pages - pages % pool->full_pages;
}

// An arena of `wished` pages, or when that is refused one that is just large enough, so that a
// budget can be used up to its last page.
static kvern_status create_some_arena(kvern_pool *pool, size_t wished, size_t needed,
                                      kvern_arena **out)
{
    const size_t least = kvern_min_size(needed, pool->single ? 1 : pool->full_pages);
    kvern_status status = create_arena(pool, wished, out);
    if (status && wished > least)
        status = create_arena(pool, least, out);
    return status;
}

// An arena is added when no page is free: it holds what is wanted then, which counts, or the larger
// growth of wish(). At worst every page is an arena by itself, and all arenas of 2 MiB or more
// waste what size_data() lets them: a part of their size, so that one arena of many full ones
// wastes no more than they would.
uint64_t kvern_pool_most_bytes(const kvern_pool *pool, uint64_t pages)
{
    const size_t own = pool->page_bytes + sizeof(kvern_page) + sizeof(kvern_arena);
    const size_t full_bytes = pool->full_pages * pool->page_bytes;
    const size_t whole = kvern_ceil_div(full_bytes, KVERN_HUGE_PAGE_BYTES) * KVERN_HUGE_PAGE_BYTES;
    const size_t waste = whole / WASTE_DIVISOR + 4096;
    uint64_t total = pages, bytes;
    if (pages == 0)
        return 0;
    if (!pool->single)
        total += pages / GROWTH_DIVISOR;
    if (!pool->single && pool->context->heap.budget_bytes == 0)
        total += pool->full_pages;
    if (!kvern_u64_mul(total, own, &bytes))
        return UINT64_MAX;
    const uint64_t full = total / pool->full_pages;
    if (KVERN_HUGE_PAGE_BYTES % pool->page_bytes == 0)
        return bytes;
    return bytes > UINT64_MAX / 2 ? UINT64_MAX : bytes + full * waste;
}

// Arenas are made between the locks: an allocator may do anything that a caller may, also give back
// pages of this pool. What a new arena is made for is taken out of it before others see it.
// `wanted` pages an arena may be made for at least, even if fewer are to be taken now.
static kvern_status take(kvern_pool *pool, size_t count, size_t wanted, kvern_page **pages)
{
    kvern_status status = KVERN_OK;
    kvern_arena *fresh = NULL;
    size_t taken = 0;
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        if (fresh)
            taken += add_arena(pool, fresh, count - taken, pages + taken);
        taken += take_free(pool, count - taken, pages + taken);
        const size_t total = pool->total_pages;
        pthread_mutex_unlock(&pool->lock);
        const size_t needed = count - taken;
        if (needed == 0)
            break;
        if ((status = create_some_arena(pool, wish(pool, kvern_max_size(needed, wanted), total),
                                        needed, &fresh)))
            break;
    }
    atomic_fetch_add(&pool->context->page_bytes, (uint64_t)taken * pool->page_bytes);
    while (status && taken > 0)
        kvern_page_release(pages[--taken]);
    return status;
}

kvern_status kvern_pool_take(kvern_pool *pool, size_t count, kvern_page **pages)
{
    return take(pool, count, 0, pages);
}

kvern_status kvern_pool_take_first(kvern_pool *pool, size_t wanted, kvern_page **page)
{
    return take(pool, 1, wanted, page);
}

size_t kvern_page_bytes(const kvern_page *page)
{
    return page->arena->pool->page_bytes;
}

void kvern_page_retain(kvern_page *page)
{
    atomic_fetch_add_explicit(&page->references, 1, memory_order_relaxed);
}

// ---- Memory that is not the heap's ----

kvern_status kvern_pool_map(kvern_pool *pool, const void *data, size_t count,
                            kvern_let_go_fn *let_go, void *user, kvern_arena **out)
{
    size_t bytes;
    void *block;
    *out = NULL;
    KVERN_ASSERT(count > 0 && (uintptr_t)data % KVERN_HEAP_ALIGNMENT == 0);
    if (!kvern_size_mul(count, sizeof(kvern_page), &bytes) || bytes > SIZE_MAX / 4)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu pages do not fit memory", count);
    kvern_status status = kvern_heap_take_zeroed(&pool->context->heap, arena_bytes(count), &block);
    if (status)
        return status;
    kvern_arena *arena = block;
    arena->pool = pool;
    arena->data = (void *)data;
    arena->capacity = count;
    arena->used = 1; // whoever makes the pages
    arena->let_go = let_go;
    arena->user = user;
    kvern_pool_retain(pool);
    for (size_t i = 0; i < count; i++) {
        arena->pages[i].arena = arena;
        arena->pages[i].data = (char *)arena->data + i * pool->page_bytes;
    }
    *out = arena;
    return KVERN_OK;
}

kvern_page *kvern_arena_page(kvern_arena *arena, size_t index)
{
    kvern_page *page = &arena->pages[index];
    KVERN_ASSERT(arena->let_go && index < arena->capacity);
    if (atomic_fetch_add(&page->references, 1) > 0)
        return page;
    pthread_mutex_lock(&arena->pool->lock);
    arena->used++;
    pthread_mutex_unlock(&arena->pool->lock);
    return page;
}

void kvern_arena_release(kvern_arena *arena)
{
    if (!arena)
        return;
    kvern_pool *pool = arena->pool;
    pthread_mutex_lock(&pool->lock);
    KVERN_ASSERT(arena->let_go && arena->used > 0);
    const bool gone = --arena->used == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!gone)
        return;
    arena->let_go(arena->user);
    kvern_heap_give(&pool->context->heap, arena, arena_bytes(arena->capacity),
                    KVERN_HEAP_ALIGNMENT);
    kvern_pool_release(pool);
}

void kvern_page_release(kvern_page *page)
{
    const size_t before = atomic_fetch_sub(&page->references, 1);
    KVERN_ASSERT(before > 0);
    if (before != 1)
        return;
    if (page->arena->let_go) {
        kvern_arena_release(page->arena);
        return;
    }
    kvern_pool *pool = page->arena->pool;
    atomic_fetch_sub(&pool->context->page_bytes, (uint64_t)pool->page_bytes);
    pthread_mutex_lock(&pool->lock);
    kvern_arena *gone = push_page(page);
    pthread_mutex_unlock(&pool->lock);
    if (gone)
        destroy_arena(gone);
}

bool kvern_page_is_exclusive(const kvern_page *page)
{
    const bool may_change = !page->arena || !page->arena->let_go;
    return atomic_load(&page->references) == 1 && may_change;
}
