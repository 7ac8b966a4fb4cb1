// SPDX-License-Identifier: MIT
#include "src/pages/pool.h"

#include "src/base/fail.h"
#include "src/base/size.h"

struct kvern_arena {
    kvern_pool *pool;
    kvern_arena *next, *previous; // among the pool's arenas
    void *data;
    size_t data_bytes, alignment; // as they were asked for
    size_t capacity, used;        // pages
    kvern_page *free;
    kvern_page pages[];
};

struct kvern_pool {
    _Atomic size_t references;
    kvern_context *context;
    size_t page_bytes;
    size_t full_pages; // pages of 2 MiB
    size_t most_pages; // of an arena
    pthread_mutex_t lock;
    kvern_arena *arenas;
    size_t total_pages; // over all arenas
    size_t free_pages;  // of them
};

// Unused bytes at the end of an arena that are worth a whole huge page: a fiftieth.
#define WASTE_DIVISOR 50

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
    pool->most_pages = single ? 1 : pool->full_pages;
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

static size_t arena_bytes(size_t capacity)
{
    return sizeof(kvern_arena) + capacity * sizeof(kvern_page);
}

// Bytes and alignment of the memory of an arena of `capacity` pages. A full arena takes exactly one
// huge page where that wastes little; where it would waste much, its pages go without the huge
// page.
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
    arena->alignment = KVERN_HUGE_PAGE_BYTES;
    arena->data_bytes = kvern_ceil_div(bytes, 4096) * 4096;
    if (bytes < KVERN_HUGE_PAGE_BYTES &&
        KVERN_HUGE_PAGE_BYTES - bytes <= KVERN_HUGE_PAGE_BYTES / WASTE_DIVISOR)
        arena->data_bytes = KVERN_HUGE_PAGE_BYTES;
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

// Adds an arena of `capacity` pages; the caller holds the lock.
static kvern_status add_arena(kvern_pool *pool, size_t capacity)
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
    arena->next = pool->arenas;
    if (arena->next)
        arena->next->previous = arena;
    pool->arenas = arena;
    pool->total_pages += capacity;
    pool->free_pages += capacity;
    return KVERN_OK;
}

// The reference that it had on its pool is left to the caller.
static void remove_arena(kvern_pool *pool, kvern_arena *arena)
{
    kvern_heap *heap = &pool->context->heap;
    if (arena->previous)
        arena->previous->next = arena->next;
    else
        pool->arenas = arena->next;
    if (arena->next)
        arena->next->previous = arena->previous;
    pool->total_pages -= arena->capacity;
    pool->free_pages -= arena->capacity;
    kvern_heap_give(heap, arena->data, arena->data_bytes, arena->alignment);
    kvern_heap_give(heap, arena, arena_bytes(arena->capacity), KVERN_HEAP_ALIGNMENT);
}

// Adds an arena of at most `most` pages for at least one of `wanted`: as large as the pool already
// is, so that arenas double; if that is refused, as small as the need, so that a budget can be used
// up to its last page.
static kvern_status grow(kvern_pool *pool, size_t wanted, size_t most)
{
    const size_t need = kvern_min_size(wanted, most);
    const size_t wish = kvern_min_size(kvern_max_size(need, pool->total_pages), most);
    kvern_status status = add_arena(pool, wish);
    if (status && wish > need)
        status = add_arena(pool, need);
    return status;
}

static kvern_page *pop_page(kvern_arena *arena)
{
    kvern_page *page = arena->free;
    arena->free = page->next;
    arena->used++;
    arena->pool->free_pages--;
    page->references = 1;
    return page;
}

// Pages are taken from the newest arenas first; older ones fill up and stay. With arenas of one
// page there are many, and none is free.
static kvern_arena *find_free(kvern_pool *pool)
{
    kvern_arena *arena = pool->free_pages ? pool->arenas : NULL;
    while (arena && !arena->free)
        arena = arena->next;
    return arena;
}

// Returns whether an arena has gone, so that the caller, without the lock, gives up its reference
// on the pool.
static bool push_page(kvern_page *page)
{
    kvern_arena *arena = page->arena;
    page->next = arena->free;
    arena->free = page;
    arena->pool->free_pages++;
    if (--arena->used > 0)
        return false;
    remove_arena(arena->pool, arena);
    return true;
}

static kvern_status take_locked(kvern_pool *pool, size_t count, size_t most, kvern_page **pages)
{
    kvern_arena *arena = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!arena || !arena->free)
            arena = find_free(pool);
        kvern_status status = arena ? KVERN_OK : grow(pool, count - i, most);
        if (status) {
            while (i > 0) {
                if (push_page(pages[--i]))
                    kvern_pool_release(pool); // never the last one: the taker has one
            }
            return status;
        }
        if (!arena)
            arena = find_free(pool);
        pages[i] = pop_page(arena);
    }
    return KVERN_OK;
}

static kvern_status take(kvern_pool *pool, size_t count, size_t most, kvern_page **pages)
{
    pthread_mutex_lock(&pool->lock);
    kvern_status status = take_locked(pool, count, most, pages);
    pthread_mutex_unlock(&pool->lock);
    if (!status)
        atomic_fetch_add(&pool->context->page_bytes, (uint64_t)count * pool->page_bytes);
    return status;
}

kvern_status kvern_pool_take(kvern_pool *pool, size_t count, kvern_page **pages)
{
    return take(pool, count, pool->most_pages, pages);
}

kvern_status kvern_pool_take_within(kvern_pool *pool, size_t most, kvern_page **page)
{
    return take(pool, 1, kvern_min_size(most, pool->most_pages), page);
}

size_t kvern_page_bytes(const kvern_page *page)
{
    return page->arena->pool->page_bytes;
}

void kvern_page_retain(kvern_page *page)
{
    atomic_fetch_add_explicit(&page->references, 1, memory_order_relaxed);
}

void kvern_page_release(kvern_page *page)
{
    if (atomic_fetch_sub(&page->references, 1) != 1)
        return;
    kvern_pool *pool = page->arena->pool;
    atomic_fetch_sub(&pool->context->page_bytes, (uint64_t)pool->page_bytes);
    pthread_mutex_lock(&pool->lock);
    const bool gone = push_page(page);
    pthread_mutex_unlock(&pool->lock); // without an arena of its own, the pool may go from here on
    if (gone)
        kvern_pool_release(pool);
}

bool kvern_page_is_exclusive(const kvern_page *page)
{
    return atomic_load(&page->references) == 1;
}
