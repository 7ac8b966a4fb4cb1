// SPDX-License-Identifier: MIT
// Reservations of one context add up: each cache and state has what it reserved to itself, at the
// same time as all others, on any threads; and gives it back. Memory that nobody has reserved is
// given up where it is needed.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CACHES 8
#define HEADS 4
#define TOKENS 3000
#define LAYERS 3

static kvern_context *new_context(kvern_allocator allocator, uint64_t budget)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.allocator = allocator;
    options.budget_bytes = budget;
    options.threads = 2;
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

static kvern_composition *new_composition(kvern_context *context, size_t layers)
{
    kvern_layer layer[LAYERS];
    kvern_composition *composition;
    for (size_t l = 0; l < layers; l++)
        layer[l] = kvern_layer_default(2, 16);
    assert_ok(kvern_composition_create(context, layer, layers, &composition));
    return composition;
}

static kvern_memory memory_of(const kvern_context *context)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(context, &memory));
    return memory;
}

// ---- Caches side by side ----

typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *caches[CACHES];
    size_t count;
} world;

static void world_create(world *w, size_t caches, uint64_t budget)
{
    ledger_init(&w->books);
    w->context = new_context(ledger_allocator(&w->books), budget);
    w->composition = new_composition(w->context, 1);
    w->count = caches;
    for (size_t c = 0; c < caches; c++)
        assert_ok(kvern_cache_create(w->composition, 0, 1, &w->caches[c]));
    for (size_t c = 0; c < caches; c++)
        assert_ok(kvern_cache_reserve(w->caches[c], 0, TOKENS, HEADS));
}

static void world_destroy(world *w)
{
    for (size_t c = 0; c < w->count; c++)
        kvern_cache_destroy(w->caches[c]);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

// One more token for every cache, all reads open at once, attended, released.
static void decode_side_by_side(const world *w, uint64_t sequence)
{
    static const int64_t one = 1;
    kvern_read *reads[CACHES];
    feed feeds[CACHES];
    for (size_t c = 0; c < w->count; c++) {
        feeds[c] = feed_create(w->caches[c], &sequence, &one, HEADS);
        assert_ok(feed_append(w->caches[c], KVERN_PHASE_DECODE, &feeds[c], &reads[c]));
    }
    for (size_t c = 0; c < w->count; c++)
        assert_ok(kvern_read_attend(reads[c], &feeds[c].queries));
    for (size_t c = 0; c < w->count; c++) {
        kvern_read_release(reads[c]);
        feed_destroy(&feeds[c]);
    }
}

// Under a budget of exactly what is held, too. Both runs have one, for without one pages are taken
// ahead.
static void test_open_reads_of_four_caches(void **state)
{
    (void)state;
    uint64_t budget = UINT64_C(1) << 30;
    for (int run = 0; run < 2; run++) {
        world w;
        world_create(&w, 4, budget);
        const kvern_memory before = memory_of(w.context);
        for (uint64_t i = 0; i < 100; i++)
            decode_side_by_side(&w, i);
        const kvern_memory after = memory_of(w.context);
        assert_int_equal(before.allocations, after.allocations);
        assert_int_equal(before.held_bytes, after.held_bytes);
        budget = before.held_bytes;
        world_destroy(&w);
    }
}

typedef struct runner {
    pthread_t thread;
    kvern_cache *cache;
    kvern_status status; // the first that is not KVERN_OK
} runner;

static void keep_status(runner *r, kvern_status status)
{
    r->status = r->status ? r->status : status;
}

static void *decode_alone(void *arg)
{
    runner *r = arg;
    static const uint64_t sequence = 5;
    static const int64_t one = 1;
    for (int i = 0; i < 60; i++) {
        feed f = feed_create(r->cache, &sequence, &one, HEADS);
        kvern_read *read = NULL;
        keep_status(r, feed_append(r->cache, KVERN_PHASE_DECODE, &f, &read));
        if (read)
            keep_status(r, kvern_read_attend(read, &f.queries));
        kvern_read_release(read);
        feed_destroy(&f);
    }
    return NULL;
}

static void test_eight_threads_on_eight_caches(void **state)
{
    (void)state;
    world w;
    world_create(&w, CACHES, 0);
    runner runners[CACHES] = {0};
    const kvern_memory before = memory_of(w.context);
    for (size_t c = 0; c < CACHES; c++) {
        runners[c].cache = w.caches[c];
        assert_int_equal(0, pthread_create(&runners[c].thread, NULL, decode_alone, &runners[c]));
    }
    for (size_t c = 0; c < CACHES; c++) {
        pthread_join(runners[c].thread, NULL);
        assert_int_equal(KVERN_OK, runners[c].status);
    }
    const kvern_memory after = memory_of(w.context);
    assert_int_equal(before.allocations, after.allocations);
    assert_int_equal(before.held_bytes, after.held_bytes);
    world_destroy(&w);
}

// Somebody who has reserved nothing does not use up what others have.
static void test_unreserved_cache_beside_reserved_ones(void **state)
{
    (void)state;
    static const uint64_t sequence = 9;
    static const int64_t one = 1;
    world w;
    kvern_cache *other;
    world_create(&w, 2, 0);
    assert_ok(kvern_cache_create(w.composition, 0, 1, &other));
    feed f = feed_create(other, &sequence, &one, HEADS);
    kvern_read *read;
    assert_ok(feed_append(other, KVERN_PHASE_DECODE, &f, &read));
    assert_ok(kvern_read_attend(read, &f.queries));
    const kvern_memory before = memory_of(w.context);
    decode_side_by_side(&w, 1);
    assert_int_equal(before.allocations, memory_of(w.context).allocations);
    kvern_read_release(read);
    feed_destroy(&f);
    kvern_cache_destroy(other);
    world_destroy(&w);
}

// ---- Giving back ----

static void test_destroy_gives_back(void **state)
{
    (void)state;
    world w;
    world_create(&w, 1, 0);
    kvern_cache *cache;
    const uint64_t before = memory_of(w.context).held_bytes;
    for (int i = 0; i < 50; i++) {
        assert_ok(kvern_cache_create(w.composition, 0, 1, &cache));
        assert_ok(kvern_cache_reserve(cache, 0, TOKENS, HEADS));
        assert_true(memory_of(w.context).held_bytes > before);
        kvern_cache_destroy(cache);
        assert_int_equal(before, memory_of(w.context).held_bytes);
    }
    world_destroy(&w);
}

// One more token for row 1 in all layers, whose reads are all open at once.
static void decode_state(kvern_state *s, uint64_t sequence)
{
    static const int64_t counts[] = {0, 1};
    const uint64_t sequences[] = {0, sequence};
    kvern_read *reads[LAYERS];
    feed feeds[LAYERS];
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, counts));
    for (size_t l = 0; l < LAYERS; l++) {
        feeds[l] = feed_create(kvern_state_cache(s, l), sequences, counts, HEADS);
        assert_ok(feed_step_append(s, l, &feeds[l], &reads[l]));
    }
    for (size_t l = 0; l < LAYERS; l++) {
        assert_ok(kvern_read_attend(reads[l], &feeds[l].queries));
        kvern_read_release(reads[l]);
        feed_destroy(&feeds[l]);
    }
    assert_ok(kvern_step_end(s));
}

// A reset gives back as well, when no other row has reserved room.
static void test_reset_gives_back(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_context *context = new_context(ledger_allocator(&books), 0);
    kvern_composition *composition = new_composition(context, LAYERS);
    kvern_state *s;
    assert_ok(kvern_state_create(composition, 2, &s));
    const uint64_t before = memory_of(context).held_bytes;
    assert_ok(kvern_state_reserve(s, 0, TOKENS, HEADS));
    assert_ok(kvern_state_reserve(s, 1, TOKENS, HEADS));
    assert_ok(kvern_state_reset(s, 0));
    const kvern_memory one_row = memory_of(context);
    assert_true(one_row.held_bytes > before);
    for (uint64_t i = 0; i < 10; i++) // the other row has lost nothing
        decode_state(s, i);
    assert_int_equal(one_row.allocations, memory_of(context).allocations);
    assert_ok(kvern_state_reset(s, 1));
    assert_int_equal(before, memory_of(context).held_bytes);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// A read goes on with its memory when its cache has gone, and so has the reservation.
static void test_read_outlives_its_reservation(void **state)
{
    (void)state;
    static const uint64_t sequence = 3;
    static const int64_t count = 5;
    world w;
    world_create(&w, 2, 0);
    feed f = feed_create(w.caches[1], &sequence, &count, HEADS);
    kvern_read *read;
    assert_ok(feed_append(w.caches[1], KVERN_PHASE_WINDOW, &f, &read));
    assert_ok(kvern_read_attend(read, &f.queries));
    float *wanted = malloc(f.out_count * sizeof *wanted);
    memcpy(wanted, f.out, f.out_count * sizeof *wanted);
    kvern_cache_destroy(w.caches[1]);
    w.count = 1;
    assert_ok(kvern_read_attend(read, &f.queries));
    check_same_floats(wanted, f.out, f.out_count, "after its cache");
    kvern_read_release(read);
    free(wanted);
    feed_destroy(&f);
    world_destroy(&w);
}

// More than before: what was reserved at first goes, also what is in use just then.
static void test_reservation_grows(void **state)
{
    (void)state;
    static const uint64_t sequence = 3;
    static const int64_t one = 1;
    world w;
    world_create(&w, 1, 0);
    feed f = feed_create(w.caches[0], &sequence, &one, HEADS);
    kvern_read *read;
    assert_ok(feed_append(w.caches[0], KVERN_PHASE_DECODE, &f, &read));
    assert_ok(kvern_cache_reserve(w.caches[0], 0, TOKENS, 16 * HEADS));
    assert_ok(kvern_read_attend(read, &f.queries));
    kvern_read_release(read);
    const kvern_memory before = memory_of(w.context);
    for (uint64_t i = 0; i < 10; i++)
        decode_side_by_side(&w, i);
    assert_int_equal(before.allocations, memory_of(w.context).allocations);
    assert_int_equal(before.held_bytes, memory_of(w.context).held_bytes);
    feed_destroy(&f);
    world_destroy(&w);
}

// Whichever allocation of a reservation is refused, nothing has changed.
static void test_refused_reservation(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        world w;
        world_create(&w, 1, 0);
        kvern_cache *cache;
        assert_ok(kvern_cache_create(w.composition, 0, 1, &cache));
        const kvern_memory before = memory_of(w.context);
        ledger_refuse_rest(&w.books, n);
        const kvern_status status = kvern_cache_reserve(cache, 0, TOKENS, HEADS);
        (void)ledger_relent(&w.books);
        if (status) {
            assert_int_equal(KVERN_ERR_MEMORY, status);
            assert_int_equal(before.held_bytes, memory_of(w.context).held_bytes);
        }
        kvern_cache_destroy(cache);
        world_destroy(&w);
        if (!status) {
            assert_true(n > 3);
            return;
        }
    }
}

// A call that fails gives what it took of a reservation back to it.
static void test_failed_attends(void **state)
{
    (void)state;
    static const uint64_t sequence = 3;
    static const int64_t one = 1;
    world w;
    world_create(&w, 2, 0);
    feed f = feed_create(w.caches[0], &sequence, &one, HEADS);
    kvern_read *read;
    assert_ok(feed_append(w.caches[0], KVERN_PHASE_DECODE, &f, &read));
    const kvern_memory before = memory_of(w.context);
    kvern_queries wrong = f.queries;
    wrong.out = NULL;
    for (int i = 0; i < 10; i++)
        assert_status(KVERN_ERR_ARGUMENT, kvern_read_attend(read, &wrong));
    assert_ok(kvern_read_attend(read, &f.queries));
    assert_int_equal(before.held_bytes, memory_of(w.context).held_bytes);
    assert_int_equal(before.allocations, memory_of(w.context).allocations);
    kvern_read_release(read);
    feed_destroy(&f);
    world_destroy(&w);
}

// ---- Memory that nobody has reserved ----

// Leaves scratch and objects behind in the context.
static void leave_idle_memory(const world *w)
{
    static const uint64_t sequence = 4;
    static const int64_t count = 200;
    kvern_cache *cache;
    assert_ok(kvern_cache_create(w->composition, 0, 1, &cache));
    feed_one(cache, KVERN_PHASE_WINDOW, sequence, count, 8 * HEADS, NULL);
    float *out = malloc((size_t)count * 8 * HEADS * 16 * sizeof *out);
    feed_one(cache, KVERN_PHASE_WINDOW, sequence, count, 8 * HEADS, out);
    free(out);
    kvern_cache_destroy(cache);
}

static void test_trim(void **state)
{
    (void)state;
    world w;
    world_create(&w, 2, 0);
    const uint64_t before = memory_of(w.context).held_bytes;
    leave_idle_memory(&w);
    const uint64_t idle = memory_of(w.context).held_bytes - before;
    assert_true(idle > 0);
    assert_int_equal(idle, kvern_context_trim(w.context));
    assert_int_equal(before, memory_of(w.context).held_bytes);
    assert_int_equal(0, kvern_context_trim(w.context));
    assert_int_equal(0, kvern_context_trim(NULL));
    assert_int_equal(w.books.most_bytes, memory_of(w.context).peak_bytes);
    const kvern_memory reserved = memory_of(w.context); // and what is reserved is still there
    decode_side_by_side(&w, 1);
    assert_int_equal(reserved.allocations, memory_of(w.context).allocations);
    world_destroy(&w);
}

// What fits into the budget but for idle memory is given; the idle memory goes.
static void test_budget_takes_idle_memory(void **state)
{
    (void)state;
    uint64_t budget = UINT64_C(1) << 30;
    for (int run = 0; run < 2; run++) {
        world w;
        kvern_cache *large;
        world_create(&w, 1, budget);
        leave_idle_memory(&w);
        if (run == 0)
            assert_true(kvern_context_trim(w.context) > 0);
        assert_ok(kvern_cache_create(w.composition, 0, 1, &large));
        assert_ok(kvern_cache_reserve(large, 0, 4 * TOKENS, HEADS));
        budget = memory_of(w.context).held_bytes;
        assert_status(KVERN_ERR_BUDGET, kvern_cache_reserve(large, 0, INT64_C(1) << 30, 0));
        kvern_cache_destroy(large);
        world_destroy(&w);
    }
}

// Idle memory that would not help stays.
static void test_refusal_keeps_idle_memory(void **state)
{
    (void)state;
    world w;
    world_create(&w, 1, UINT64_C(1) << 26);
    leave_idle_memory(&w);
    const uint64_t before = memory_of(w.context).held_bytes;
    assert_status(KVERN_ERR_BUDGET, kvern_cache_reserve(w.caches[0], 0, TOKENS, (size_t)1 << 30));
    assert_int_equal(before, memory_of(w.context).held_bytes);
    world_destroy(&w);
}

// ---- Allocators that use the library ----

// Gives what malloc has, and at the armed call destroys a cache first or afterwards.
typedef struct greedy {
    kvern_cache *victim; // NULL: not armed
    bool afterwards;
    size_t bytes; // of that call
} greedy;

static void *greedy_allocate(void *user, size_t bytes, size_t alignment)
{
    greedy *g = user;
    void *block = NULL;
    kvern_cache *victim = g->victim;
    g->victim = NULL;
    g->bytes = victim ? bytes : g->bytes;
    if (!g->afterwards)
        kvern_cache_destroy(victim);
    const int error = posix_memalign(&block, alignment < 8 ? 8 : alignment, bytes);
    if (g->afterwards)
        kvern_cache_destroy(victim);
    return error ? NULL : block;
}

static void greedy_release(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    free(block);
}

// In the middle of each kind of call that takes buffers: an append's read, an attend's scratch, a
// reservation.
static void use_while_destroying(bool afterwards, int which)
{
    greedy g = {NULL, afterwards, 0};
    const kvern_allocator allocator = {
        .user = &g, .allocate = greedy_allocate, .release = greedy_release};
    kvern_context *context = new_context(allocator, 0);
    kvern_composition *composition = new_composition(context, 1);
    kvern_cache *cache, *victim;
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    assert_ok(kvern_cache_create(composition, 0, 1, &victim));
    feed_one(victim, KVERN_PHASE_WINDOW, 1, 300, HEADS, NULL);
    assert_ok(kvern_cache_reserve(victim, 0, 400, HEADS));
    static const uint64_t sequence = 2;
    static const int64_t one = 1;
    feed f = feed_create(cache, &sequence, &one, HEADS);
    kvern_read *read;
    if (which == 0) // its row needs no page
        assert_ok(kvern_cache_reserve(cache, 0, 64, 0));
    else
        assert_ok(feed_append(cache, KVERN_PHASE_DECODE, &f, &read));
    const uint64_t before = memory_of(context).held_bytes;
    g.victim = victim;
    if (which == 0)
        assert_ok(feed_append(cache, KVERN_PHASE_DECODE, &f, &read));
    else if (which == 1)
        assert_ok(kvern_read_attend(read, &f.queries));
    else
        assert_ok(kvern_cache_reserve(cache, 0, 64, HEADS));
    // The block was there before the victim's went: both were held at once.
    if (!g.victim && afterwards)
        assert_true(memory_of(context).peak_bytes >= before + g.bytes);
    kvern_cache_destroy(g.victim); // nothing was taken: a reservation had it
    kvern_read_release(read);
    feed_destroy(&f);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void test_allocator_that_destroys_a_cache(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        use_while_destroying(false, which);
        use_while_destroying(true, which);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_reads_of_four_caches),
        cmocka_unit_test(test_eight_threads_on_eight_caches),
        cmocka_unit_test(test_unreserved_cache_beside_reserved_ones),
        cmocka_unit_test(test_destroy_gives_back),
        cmocka_unit_test(test_reset_gives_back),
        cmocka_unit_test(test_read_outlives_its_reservation),
        cmocka_unit_test(test_reservation_grows),
        cmocka_unit_test(test_refused_reservation),
        cmocka_unit_test(test_failed_attends),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_budget_takes_idle_memory),
        cmocka_unit_test(test_refusal_keeps_idle_memory),
        cmocka_unit_test(test_allocator_that_destroys_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
