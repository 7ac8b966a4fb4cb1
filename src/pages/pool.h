// SPDX-License-Identifier: MIT
#ifndef KVERN_PAGES_POOL_H
#define KVERN_PAGES_POOL_H

// Pages of one size, reference counted, cut from arenas that come from the context's heap.
//
// Arenas start small and double until they hold 2 MiB, so that a small cache stays small and a
// large one lies in huge pages; the arenas of a large pool are a small part of it, so that there
// are not more of them than a process may have mappings. Under a budget an arena is only as large
// as what is wanted at the moment, but for that small part: its bytes may be needed elsewhere. An
// arena goes back to the allocator as soon as its last page is free. Where pages are to go back one
// by one, each is an arena by itself, without huge pages. A pool may be used by several threads; a
// page's content belongs to whoever holds the only reference. The allocator is never called under a
// lock, so it may call the library.
//
// The content of a page that is taken is what it held before, perhaps for someone else. Nothing
// reads slots that have no position: reads and exports go by lengths. Whoever writes pages
// somewhere as bytes has to leave such slots out.

#include "src/base/context.h"

#include <stdbool.h>

typedef struct kvern_pool kvern_pool;
typedef struct kvern_arena kvern_arena;

typedef struct kvern_page {
    _Atomic size_t references;
    void *data;         // page_bytes bytes, aligned to a cache line
    kvern_arena *arena; // NULL: it lies in memory of its holder's, and is no pool's to take back
    struct kvern_page *next; // while it is free, or a row's room (src/rows/row.h)
    size_t stored;           // tables of the context's store that have it (src/store/claim.h)
} kvern_page;

// Makes a pool of pages of `page_bytes` bytes (a positive multiple of 64); one reference for the
// caller. `single`: each page is an arena by itself.
KVERN_CHECK kvern_status kvern_pool_create(kvern_context *context, size_t page_bytes, bool single,
                                           kvern_pool **out);
void kvern_pool_retain(kvern_pool *pool);

// The pool goes when its last reference has gone, and its last page: rows move between caches, and
// may keep a pool's pages longer than what made it.
void kvern_pool_release(kvern_pool *pool);

size_t kvern_pool_page_bytes(const kvern_pool *pool);
kvern_context *kvern_pool_context(const kvern_pool *pool);

// Takes `count` pages, each with one reference and undefined content: all or none.
KVERN_CHECK kvern_status kvern_pool_take(kvern_pool *pool, size_t count, kvern_page **pages);

// The most bytes that the pool's arenas take while never more than `pages` pages are in use;
// UINT64_MAX when the number does not fit.
uint64_t kvern_pool_most_bytes(const kvern_pool *pool, uint64_t pages);

// Takes one page of `wanted` ones (not 0) that the caller is going to take one by one: an arena
// that has to be added for it has room for as many, if the allocator gives it.
KVERN_CHECK kvern_status kvern_pool_take_first(kvern_pool *pool, size_t wanted, kvern_page **page);

// Of the pool that the page came from.
size_t kvern_page_bytes(const kvern_page *page);

void kvern_page_retain(kvern_page *page);
void kvern_page_release(kvern_page *page);

// True when the caller's reference is the only one, so that it may write.
bool kvern_page_is_exclusive(const kvern_page *page);

// ---- Pages in memory that is not the heap's: a mapped file ----

// Called when the last page of the memory has gone, and whoever made them is done, on whatever
// thread that is.
typedef void kvern_let_go_fn(void *user);

// Makes `count` pages (at least one) of the pool's size out of memory at `data`, aligned to a cache
// line, that is only read: nobody is ever the only holder of such a page, so it is copied where it
// would be written. They count in no budget and in no kvern_memory. The pages can be had, each for
// the first time, while the caller holds the arena; let_go(user) is called when it and all of them
// have gone. On failure nothing is called.
KVERN_CHECK kvern_status kvern_pool_map(kvern_pool *pool, const void *data, size_t count,
                                        kvern_let_go_fn *let_go, void *user, kvern_arena **out);

// Page number `index`, with one reference for the caller.
kvern_page *kvern_arena_page(kvern_arena *arena, size_t index);

// The caller is done with making.
void kvern_arena_release(kvern_arena *arena); // NULL is allowed

#endif
