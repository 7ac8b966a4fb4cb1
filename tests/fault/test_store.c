// SPDX-License-Identifier: MIT
// A store where memory runs out: every allocation of a call refused once, budgets of any size, held
// at every moment, and allocators that call the store.

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/soundness.h"
#include "tests/support/store_bed.h"

#include <stdlib.h>
#include <string.h>

#define MOST 200

static kvern_layer plan[HYBRID_LAYERS];

static store_bed *open_hybrid(uint64_t store_budget, uint64_t context_budget)
{
    hybrid_plan(plan);
    return store_bed_open(plan, HYBRID_LAYERS - 1, store_budget, context_budget);
}

static void text(int32_t *tokens, size_t common, int32_t token)
{
    store_repeat(tokens, common, 1);
    store_repeat(tokens + common, MOST - common, token);
}

// ---- Every allocation refused once ----

// Everything about the store that can be seen, but for what counts calls.
static kvern_store_stats lasting(const store_bed *b)
{
    kvern_store_stats stats = store_stats(b);
    stats.refused = 0;
    return stats;
}

static void a_publication_that_finds_no_memory_changes_nothing(void **state)
{
    (void)state;
    store_bed *b = open_hybrid(0, 0);
    int32_t tokens[MOST], other[MOST];
    text(tokens, 100, 2);
    text(other, 60, 3); // leaves the first one within an edge
    store_put(b, NULL, tokens, MOST);
    kvern_state *s = store_cold(b, other, 90);
    const kvern_store_stats before = lasting(b);
    const uint64_t held = b->books.held_bytes;
    int64_t granted = 0;
    for (;; granted++) {
        ledger_refuse(&b->books, granted);
        const kvern_status status = kvern_store_publish(b->store, NULL, other, 90, s, 0, NULL);
        if (!ledger_relent(&b->books)) {
            assert_ok(status);
            break;
        }
        assert_int_equal(status, KVERN_ERR_MEMORY);
        const kvern_store_stats after = lasting(b);
        assert_memory_equal(&before, &after, sizeof before);
        assert_int_equal(b->books.held_bytes, held);
        assert_int_equal(store_stats(b).refused, granted + 1);
        store_expect_sound(b);
        expect_sound_state(s);
    }
    assert_true(granted >= 4); // two nodes, a block, an entry
    assert_int_equal(store_stats(b).entries, 2);
    store_expect_sound(b);
    kvern_state_destroy(s);
    kvern_state *t = store_state(b, 1);
    kvern_store_hit hit = store_find(b, NULL, other, MOST);
    assert_int_equal(hit.positions, 90);
    assert_ok(kvern_store_lend(b->store, &hit, t, 0));
    kvern_store_release(b->store, &hit);
    store_expect_goes_on(b, t, 0, other, 100);
    kvern_state_destroy(t);
    store_bed_close(b);
}

// The first one of its layers takes one allocation more, and checkpoints are left out one by one.
static void the_first_publication_and_its_checkpoints(void **state)
{
    (void)state;
    int32_t tokens[MOST];
    text(tokens, 100, 2);
    bool refused = true;
    for (int64_t granted = 0; refused; granted++) {
        store_bed *b = open_hybrid(0, 0);
        kvern_state *s = store_state(b, 1);
        assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
        for (int64_t length = 30; length <= 90; length += 30) {
            store_serve(s, 0, tokens, length, NULL);
            assert_ok(kvern_state_checkpoint(s, 0));
        }
        const uint64_t empty = store_stats(b).bytes;
        ledger_refuse(&b->books, granted);
        const kvern_status status = kvern_store_publish(b->store, NULL, tokens, 90, s, 0, NULL);
        refused = ledger_relent(&b->books);
        const kvern_store_stats stats = store_stats(b);
        if (status) {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            assert_int_equal(stats.entries, 0);
            assert_int_equal(stats.bytes, empty);
        } else {
            assert_int_equal(stats.checkpoints_left_out, refused);
            assert_int_equal(stats.entries, 3 - refused);
        }
        store_expect_sound(b);
        kvern_state_destroy(s);
        store_bed_close(b);
    }
}

static void a_store_that_finds_no_memory_is_not_made(void **state)
{
    (void)state;
    store_bed *b = open_hybrid(0, 0);
    kvern_store_destroy(b->store);
    ledger_refuse(&b->books, 0);
    assert_status(KVERN_ERR_MEMORY, kvern_store_create(b->context, NULL, &b->store));
    assert_null(b->store);
    ledger_relent(&b->books);
    assert_ok(kvern_store_create(b->context, NULL, &b->store));
    store_bed_close(b);
}

// Lending goes without: what a table lacks, the row makes good later.
static void lending_needs_no_memory(void **state)
{
    (void)state;
    for (int64_t granted = 0; granted < 12; granted++) {
        store_bed *b = open_hybrid(0, 0);
        int32_t tokens[MOST];
        text(tokens, 100, 2);
        store_put(b, NULL, tokens, 100);
        kvern_state *s = store_state(b, 1);
        kvern_store_hit hit = store_find(b, NULL, tokens, MOST);
        ledger_refuse(&b->books, granted);
        assert_ok(kvern_store_lend(b->store, &hit, s, 0));
        ledger_relent(&b->books);
        kvern_store_release(b->store, &hit);
        expect_sound_state(s);
        store_expect_goes_on(b, s, 0, tokens, 110);
        kvern_state_destroy(s);
        store_bed_close(b);
    }
}

// ---- Budgets ----

// Over budgets from nothing to plenty: what is counted is never more, and when all rows have gone
// the pages in use are those that it counts.
static void the_budget_is_held(void **state)
{
    (void)state;
    for (uint64_t budget = 20000; budget <= 800000; budget += budget / 4) {
        store_bed *b = open_hybrid(budget, 0);
        kvern_memory memory = kvern_memory_default();
        uint64_t stored = 0;
        for (int32_t t = 0; t < 20; t++) {
            int32_t tokens[MOST];
            text(tokens, 20 * (size_t)(t % 5), 2 + t);
            kvern_state *s = store_cold(b, tokens, 64 + 5 * t);
            const kvern_status status =
                kvern_store_publish(b->store, NULL, tokens, (size_t)(64 + 5 * t), s, 0, NULL);
            kvern_state_destroy(s);
            assert_true(status == KVERN_OK || status == KVERN_ERR_BUDGET);
            stored += !status;
            const kvern_store_stats stats = store_stats(b);
            assert_true(stats.bytes <= budget);
            assert_int_equal(stats.publications, stored);
            store_expect_sound(b);
            assert_ok(kvern_context_memory(b->context, &memory));
            assert_int_equal(memory.page_bytes, stats.page_bytes);
        }
        assert_true(budget < 300000 || stored == 20);
        store_bed_close(b);
    }
}

// Where the context's own budget is full the scheduler asks the store, and goes on.
static void a_store_gives_way_to_rows(void **state)
{
    (void)state;
    store_bed *probe = open_hybrid(0, 0);
    int32_t tokens[MOST];
    text(tokens, MOST, 1);
    kvern_state *p = store_cold(probe, tokens, MOST);
    const uint64_t row = probe->books.held_bytes;
    kvern_state_destroy(p);
    store_bed_close(probe);
    store_bed *b = open_hybrid(0, 3 * row);
    uint64_t asked = 0;
    for (int32_t t = 0; t < 12; t++) {
        text(tokens, 0, 1 + t);
        const int64_t count = MOST;
        kvern_state *s = NULL;
        kvern_status status = kvern_state_create(b->composition, 1, &s);
        while (!status && (status = kvern_state_reserve(s, 0, count, HYBRID_HEADS))) {
            assert_int_equal(status, KVERN_ERR_BUDGET);
            assert_true(kvern_store_give_up(b->store, row / 4) > 0);
            asked++;
            status = KVERN_OK;
        }
        assert_ok(status);
        store_serve(s, 0, tokens, count, NULL);
        status = kvern_store_publish(b->store, NULL, tokens, (size_t)count, s, 0, NULL);
        assert_true(status == KVERN_OK || status == KVERN_ERR_BUDGET);
        kvern_state_destroy(s);
        store_expect_sound(b);
    }
    assert_true(asked > 0);
    store_bed_close(b);
}

// ---- An allocator that calls the store ----

typedef struct caller {
    ledger *books;
    kvern_allocator below;
    kvern_store *store;
    bool busy; // so that it does not call itself without end
    uint64_t calls, given;
} caller;

static void call_store(caller *c)
{
    if (!c->store || c->busy)
        return;
    kvern_store_stats stats = kvern_store_stats_default();
    c->busy = true;
    assert_ok(kvern_store_get_stats(c->store, &stats));
    assert_true(!stats.budget_bytes || stats.bytes <= stats.budget_bytes); // at every moment
    if (c->calls++ % 3 == 0)
        c->given += kvern_store_give_up(c->store, 1);
    c->busy = false;
}

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    caller *c = user;
    call_store(c);
    return c->below.allocate(c->below.user, bytes, alignment);
}

static void release(void *user, void *block, size_t bytes, size_t alignment)
{
    caller *c = user;
    call_store(c);
    c->below.release(c->below.user, block, bytes, alignment);
}

// T8: a full store, and callbacks that free entries: everything goes on.
static void fault_t8_callbacks_that_evict(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        ledger books;
        ledger_init(&books);
        caller c = {.books = &books, .below = ledger_allocator(&books)};
        kvern_context_options options = kvern_context_options_default();
        options.allocator = (kvern_allocator){&c, allocate, release, {0, 0}};
        options.threads = 1;
        store_bed b = {0};
        const kvern_layer layer = kvern_layer_default(1, 32);
        kvern_store_options store = kvern_store_options_default();
        store.budget_bytes = full ? 40000 : 0; // one entry at a time, or all of them
        assert_ok(kvern_context_create(&options, &b.context));
        assert_ok(kvern_composition_create(b.context, &layer, 1, &b.composition));
        assert_ok(kvern_store_create(b.context, &store, &b.store));
        c.store = b.store;
        for (int32_t t = 0; t < 40; t++) {
            int32_t tokens[MOST];
            text(tokens, 30, 2 + t % 7);
            kvern_state *s = store_state(&b, 1);
            kvern_store_hit hit = store_find(&b, NULL, tokens, MOST);
            if (hit.entry)
                assert_ok(kvern_store_lend(b.store, &hit, s, 0));
            kvern_store_release(b.store, &hit);
            store_serve(s, 0, tokens, MOST, NULL);
            const kvern_status status =
                kvern_store_publish(b.store, NULL, tokens, MOST, s, 0, NULL);
            assert_true(status == KVERN_OK || status == KVERN_ERR_BUDGET);
            kvern_state_destroy(s);
            c.store = NULL;
            store_expect_sound(&b);
            c.store = b.store;
        }
        assert_true(c.calls > 100 && c.given > 0);
        assert_true(store_stats(&b).publications > 30);
        c.store = NULL;
        kvern_store_destroy(b.store);
        kvern_composition_release(b.composition);
        kvern_context_release(b.context);
        ledger_finish(&books);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_publication_that_finds_no_memory_changes_nothing),
        cmocka_unit_test(the_first_publication_and_its_checkpoints),
        cmocka_unit_test(a_store_that_finds_no_memory_is_not_made),
        cmocka_unit_test(lending_needs_no_memory),
        cmocka_unit_test(the_budget_is_held),
        cmocka_unit_test(a_store_gives_way_to_rows),
        cmocka_unit_test(fault_t8_callbacks_that_evict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
