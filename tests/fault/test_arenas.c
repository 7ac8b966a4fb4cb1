// SPDX-License-Identifier: MIT
// How pages come from the allocator: in how many blocks, with how much that nobody asked for, and
// what an allocator may do meanwhile.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/sanitizer.h"

#include <kvern/kvern.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define GIB ((uint64_t)1 << 30)
#define MOST_MAPPINGS 65530 // of a process, as Linux comes

static void append(kvern_cache *cache, int64_t count)
{
    feed f = feed_create(cache, &(uint64_t){7}, &count, 1);
    assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, NULL));
    feed_destroy(&f);
}

static kvern_memory memory_of(const kvern_context *context)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(context, &memory));
    return memory;
}

// ---- Large caches ----

// Hands out addresses of a range that nobody may touch for large blocks, and counts them.
typedef struct atlas {
    char *range;
    size_t used, blocks, most_blocks;
} atlas;

#define RANGE_BYTES (300 * GIB)

static void *atlas_allocate(void *user, size_t bytes, size_t alignment)
{
    atlas *a = user;
    if (alignment < (size_t)2 << 20)
        return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    char *block = a->range + a->used;
    a->used += (bytes + alignment - 1) / alignment * alignment;
    assert_true(a->used <= RANGE_BYTES);
    a->blocks++;
    a->most_blocks = a->blocks > a->most_blocks ? a->blocks : a->most_blocks;
    return block;
}

static void atlas_release(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)bytes;
    if (alignment < (size_t)2 << 20)
        free(block);
    else
        ((atlas *)user)->blocks--;
}

// Rows of 32 GiB each, reserved at once or in steps, are hundreds of blocks, not one per 2 MiB.
static void check_blocks(uint64_t budget, int64_t step)
{
    atlas a = {0};
    char *range = mmap(NULL, RANGE_BYTES + ((size_t)2 << 20), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(range != MAP_FAILED);
    a.range = range + (((size_t)2 << 20) - (uintptr_t)range % ((size_t)2 << 20));
    kvern_context_options options = kvern_context_options_default();
    options.threads = 1;
    options.budget_bytes = budget;
    options.allocator.user = &a;
    options.allocator.allocate = atlas_allocate;
    options.allocator.release = atlas_release;
    const kvern_layer layer = kvern_layer_default(32, 128); // 16 KiB per token
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 8, &cache));
    const int64_t tokens = (int64_t)(32 * GIB) / (16 << 10);
    for (int64_t reached = step; reached <= tokens; reached += step) {
        for (size_t r = 0; r < 8; r++)
            assert_ok(kvern_cache_reserve(cache, r, reached, 0));
    }
    assert_int_equal(kvern_cache_bytes(cache), 256 * GIB);
    print_message("256 GiB in %zu blocks\n", a.most_blocks);
    assert_true(a.most_blocks < MOST_MAPPINGS / 32);
    const kvern_memory memory = memory_of(context);
    assert_true(memory.held_bytes <= 256 * GIB + 256 * GIB / 100);
    kvern_cache_destroy(cache);
    assert_int_equal(a.blocks, 0);
    kvern_composition_release(composition);
    kvern_context_release(context);
    munmap(range, RANGE_BYTES + ((size_t)2 << 20));
}

static void large_caches_are_few_blocks(void **state)
{
    (void)state;
    for (int budget = 0; budget < 2; budget++) {
        check_blocks(budget ? 280 * GIB : 0, (int64_t)(32 * GIB) / (16 << 10));
        check_blocks(budget ? 280 * GIB : 0, 1 << 14);
    }
}

static bool can_map_much(void)
{
    struct rlimit limit;
    int mode = 2;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file) {
        if (fscanf(file, "%d", &mode) != 1)
            mode = 2;
        fclose(file);
    }
    return mode != 2 && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

// The same from the system: more than a mapping per 2 MiB could give. No page of it is touched.
static void more_than_128_GiB_can_be_reserved(void **state)
{
    (void)state;
    if (HAS_SANITIZER || !can_map_much()) {
        print_message("not run: a sanitizer, or a system that maps no such address space\n");
        skip();
    }
    const kvern_layer layer = kvern_layer_default(32, 128);
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 5, &cache));
    for (size_t r = 0; r < 5; r++)
        assert_ok(kvern_cache_reserve(cache, r, (int64_t)(28 * GIB) / (16 << 10), 0));
    assert_int_equal(kvern_cache_bytes(cache), 140 * GIB);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// ---- Budgets ----

// Under a budget nothing is taken for later: others may need it. A row that grows page by page
// holds its pages, and little beside them.
static void budgets_are_not_taken_for_later(void **state)
{
    (void)state;
    const uint64_t page = 64 * 2 * 64 * 2;
    bed *b = bed_within(kvern_layer_default(1, 64), 1, 64 << 20);
    const uint64_t before = b->books.held_bytes;
    for (uint64_t pages = 1; pages <= 700; pages++) {
        append(b->cache, 64);
        const uint64_t held = b->books.held_bytes - before;
        assert_int_equal(kvern_cache_bytes(b->cache), pages * page);
        assert_true(held >= pages * page);
        // A header of 128 bytes per page at most, a table, and a 128th.
        assert_true(held <= pages * (page + 128 + 32) + pages * page / 128 + 1024);
    }
    bed_destroy(b);
}

// Without one, arenas double: a handful of blocks for the same row.
static void arenas_double_without_a_budget(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_default(1, 64), 1);
    const uint64_t allocations = b->books.allocations;
    for (int pages = 1; pages <= 128; pages++)
        append(b->cache, 64);
    assert_true(b->books.allocations <= allocations + 8 * 2 + 6); // arenas of two blocks, tables
    assert_true(b->books.held_bytes <= 128 * 64 * 256 + (2 << 20));
    bed_destroy(b);
}

// ---- Allocators that call back ----

// An allocator that makes room by ending another cache, and looks at the context's memory. What it
// gives is bounded.
typedef struct evictor {
    kvern_context *context;
    kvern_cache *victim;
    size_t held, most;
    size_t evictions, looks;
} evictor;

static void look(evictor *e)
{
    if (!e->context)
        return;
    const kvern_memory memory = memory_of(e->context);
    assert_true(memory.held_bytes > 0);
    e->looks++;
}

static void *evictor_allocate(void *user, size_t bytes, size_t alignment)
{
    evictor *e = user;
    look(e);
    if (e->held + bytes > e->most && e->victim) {
        kvern_cache *victim = e->victim;
        e->victim = NULL;
        e->evictions++;
        kvern_cache_destroy(victim);
    }
    if (e->held + bytes > e->most)
        return NULL;
    e->held += bytes;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void evictor_release(void *user, void *block, size_t bytes, size_t alignment)
{
    evictor *e = user;
    (void)alignment;
    look(e);
    e->held -= bytes;
    free(block);
}

static void allocators_may_call_the_library(void **state)
{
    (void)state;
    evictor e = {.most = 16 << 20};
    kvern_context_options options = kvern_context_options_default();
    options.threads = 1;
    options.allocator.user = &e;
    options.allocator.allocate = evictor_allocate;
    options.allocator.release = evictor_release;
    // Pages of one pool, so that the pool that grows is the one that the victim gives back to.
    const kvern_layer layer = kvern_layer_default(1, 64);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    assert_ok(kvern_context_create(&options, &context));
    e.context = context;
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    for (int round = 0; round < 4; round++) {
        assert_ok(kvern_cache_create(composition, 0, 1, &e.victim));
        assert_ok(kvern_cache_reserve(e.victim, 0, 32000, 1)); // half of the memory
        const int64_t length = kvern_cache_length(cache, 0);
        while (e.victim)
            append(cache, 640);
        assert_true(kvern_cache_length(cache, 0) > length);
        assert_ok(kvern_cache_trim(cache, 0, kvern_cache_length(cache, 0)));
    }
    assert_int_equal(e.evictions, 4);
    assert_true(e.looks > 100);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    e.context = NULL;
    kvern_context_release(context);
    assert_int_equal(e.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_caches_are_few_blocks),
        cmocka_unit_test(more_than_128_GiB_can_be_reserved),
        cmocka_unit_test(budgets_are_not_taken_for_later),
        cmocka_unit_test(arenas_double_without_a_budget),
        cmocka_unit_test(allocators_may_call_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
