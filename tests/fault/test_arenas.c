// SPDX-License-Identifier: MIT
// How pages come from the allocator: in how many blocks, with how much that nobody asked for, and
// what an allocator may do meanwhile.

#include "src/pages/pool.h"
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
#define HUGE_PAGE ((size_t)2 << 20)
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
    char *mapped, *range;
    size_t used, blocks, most_blocks;
    size_t ragged; // blocks that end within a huge page
} atlas;

#define RANGE_BYTES (300 * GIB)

static void *atlas_allocate(void *user, size_t bytes, size_t alignment)
{
    atlas *a = user;
    if (alignment < HUGE_PAGE)
        return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    char *block = a->range + a->used;
    a->used += (bytes + alignment - 1) / alignment * alignment;
    assert_true(a->used <= RANGE_BYTES);
    a->blocks++;
    a->ragged += bytes % HUGE_PAGE != 0;
    a->most_blocks = a->blocks > a->most_blocks ? a->blocks : a->most_blocks;
    return block;
}

static void atlas_release(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)bytes;
    if (alignment < HUGE_PAGE)
        free(block);
    else
        ((atlas *)user)->blocks--;
}

static void atlas_open(atlas *a)
{
    char *range = mmap(NULL, RANGE_BYTES + HUGE_PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(range != MAP_FAILED);
    *a = (atlas){.mapped = range, .range = range + (HUGE_PAGE - (uintptr_t)range % HUGE_PAGE)};
}

static void atlas_close(atlas *a)
{
    assert_int_equal(a->blocks, 0);
    munmap(a->mapped, RANGE_BYTES + HUGE_PAGE);
}

static kvern_context *context_on(atlas *a, uint64_t budget)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.threads = 1;
    options.budget_bytes = budget;
    options.allocator.user = a;
    options.allocator.allocate = atlas_allocate;
    options.allocator.release = atlas_release;
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

// Rows of 32 GiB each, reserved at once or in steps, are hundreds of blocks, not one per 2 MiB.
static void check_blocks(uint64_t budget, int64_t step)
{
    atlas a;
    atlas_open(&a);
    const kvern_layer layer = kvern_layer_default(32, 128); // 16 KiB per token
    kvern_context *context = context_on(&a, budget);
    kvern_composition *composition;
    kvern_cache *cache;
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
    kvern_composition_release(composition);
    kvern_context_release(context);
    atlas_close(&a);
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

// ---- Huge pages ----

// A layer of 4-bit codes: 2,304 bytes per head and page at head dim 64.
static kvern_layer layer_of_4_bits(size_t kv_heads, size_t dim)
{
    kvern_layer layer = kvern_layer_default(kv_heads, dim);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 64);
    return layer;
}

// Rows that grow side by side, `step` tokens at a time, as many decodes and chunks do. Whatever
// pages they want at once, the memory that was aligned to huge pages is made of whole ones.
static void check_whole_huge_pages(kvern_layer layer, size_t page_bytes, uint64_t budget,
                                   int64_t step)
{
    enum { ROWS = 12, TOKENS = 1 << 14 };
    atlas a;
    atlas_open(&a);
    kvern_context *context = context_on(&a, budget);
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_pool *pool; // to ask what is allowed
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_pool_create(context, page_bytes, false, &pool));
    const uint64_t before = memory_of(context).held_bytes;
    assert_ok(kvern_cache_create(composition, 0, ROWS, &cache));
    for (int64_t reached = step; reached <= TOKENS; reached += step) {
        for (size_t r = 0; r < ROWS; r++)
            assert_ok(kvern_cache_reserve(cache, r, reached + 64 * (int64_t)r, 0));
        const uint64_t pages = kvern_cache_bytes(cache) / page_bytes;
        assert_int_equal(kvern_cache_bytes(cache), pages * page_bytes);
        const uint64_t tables = ROWS * 4096 + pages * 64; // and pages that wait in rows
        assert_true(memory_of(context).held_bytes - before <=
                    kvern_pool_most_bytes(pool, pages) + tables);
    }
    // Under a budget few pages that are wanted at once come as few, for a long time.
    assert_true(a.most_blocks > 4 || (budget && (size_t)step / 64 * page_bytes < HUGE_PAGE));
    assert_int_equal(a.ragged, 0);
    kvern_cache_destroy(cache);
    kvern_pool_release(pool);
    kvern_composition_release(composition);
    kvern_context_release(context);
    atlas_close(&a);
}

static void rows_lie_in_whole_huge_pages(void **state)
{
    (void)state;
    const int64_t steps[] = {64, 640, 1216, 2560, 1 << 13};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        for (int budget = 0; budget < 2; budget++) {
            const uint64_t bytes = budget ? 16 * GIB : 0;
            check_whole_huge_pages(kvern_layer_default(8, 128), 256 << 10, bytes, steps[i]);
            check_whole_huge_pages(layer_of_4_bits(8, 64), 36864, bytes, steps[i]);
            check_whole_huge_pages(layer_of_4_bits(8, 128), 73728, bytes, steps[i]);
        }
    }
}

// Pages of any size: what a pool holds is never more than it said. Pages that do not divide 2 MiB,
// or are larger, waste a part of their arenas, which counts.
static void pools_hold_what_they_said(void **state)
{
    (void)state;
    const size_t sizes[] = {64,      4096,     36864,    73728,    98304,   147456,
                            262144,  699008,   1048512,  2097152,  2097216, 3145728,
                            6241024, 12451840, 20840448, 41811968, 83755008};
    enum { MOST = 400 };
    kvern_page *pages[MOST];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int variant = 0; variant < 4; variant++) {
            atlas a;
            kvern_pool *pool;
            atlas_open(&a);
            kvern_context *context = context_on(&a, variant & 1 ? 200 * GIB : 0);
            assert_ok(kvern_pool_create(context, sizes[i], variant & 2, &pool));
            const uint64_t before = memory_of(context).held_bytes;
            size_t taken = 0;
            for (size_t count = 1; taken + count <= MOST; count += 1 + count / 3) {
                assert_ok(kvern_pool_take(pool, count, pages + taken));
                taken += count;
                const uint64_t held = memory_of(context).held_bytes - before;
                assert_true(held >= taken * sizes[i]);
                if (held > kvern_pool_most_bytes(pool, taken))
                    fail_msg("%zu pages of %zu bytes hold %llu bytes, not %llu", taken, sizes[i],
                             (unsigned long long)held,
                             (unsigned long long)kvern_pool_most_bytes(pool, taken));
            }
            while (taken > 0)
                kvern_page_release(pages[--taken]);
            kvern_pool_release(pool);
            kvern_context_release(context);
            atlas_close(&a);
        }
    }
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
        cmocka_unit_test(rows_lie_in_whole_huge_pages),
        cmocka_unit_test(pools_hold_what_they_said),
        cmocka_unit_test(budgets_are_not_taken_for_later),
        cmocka_unit_test(arenas_double_without_a_budget),
        cmocka_unit_test(allocators_may_call_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
