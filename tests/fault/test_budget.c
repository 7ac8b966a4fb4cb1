// SPDX-License-Identifier: MIT
// Every operation of the library under budgets that are too small for it: refused with the status
// that says so, nothing changed; and whatever happens, never a byte above the budget is held.

#include "tests/support/check.h"
#include "tests/support/fault_world.h"

#include <kvern/kvern.h>

#include <inttypes.h>
#include <stdlib.h>

typedef struct need {
    uint64_t before, during; // the most that was held until the operation, and until its end
} need;

static need measure(const fault_operation *operation)
{
    need n;
    fault_world *w = fault_world_create(UINT64_MAX); // some memory is taken otherwise without one
    if (operation->before)
        assert_ok(operation->before(w));
    n.before = w->books.most_bytes;
    assert_ok(operation->act(w));
    n.during = w->books.most_bytes;
    fault_world_destroy(w);
    return n;
}

// Whether the operation was refused.
static int try_budget(const fault_operation *operation, uint64_t budget)
{
    fault_world *w = fault_world_create(budget);
    if (operation->before)
        assert_ok(operation->before(w));
    fault_sight was = fault_look(w);
    kvern_status status = operation->act(w);
    assert_true(w->books.most_bytes <= budget);
    if (status) {
        assert_status(KVERN_ERR_BUDGET, status);
        assert_true(kvern_error_detail()[0]);
        fault_expect_nothing_made(w);
        fault_sight is = fault_look(w);
        fault_expect_equal(&was, &is, operation->name);
        free(is.bytes);
    }
    free(was.bytes);
    fault_world_destroy(w);
    return status != KVERN_OK;
}

static void budgets_below_the_need_are_kept(void **state)
{
    const fault_operation *operation = *state;
    const need n = measure(operation);
    int refused = 0;
    for (uint64_t i = 0; i < 12; i++)
        refused += try_budget(operation, n.before + (n.during - n.before) * i / 12);
    assert_int_equal(try_budget(operation, n.during), 0);
    print_message("%d of 12 budgets refused (%" PRIu64 " bytes needed)\n", refused,
                  n.during - n.before);
    // What fits into the peak of the time before cannot be refused: the world needed it.
    assert_true(refused > 0 || n.during == n.before);
}

// A budget can be used up: with room for exactly the pages of a row, the row reaches its length.
static void a_budget_is_used_to_its_last_page(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    uint64_t need = 0;
    for (int round = 0; round < 2; round++) { // first without a limit, to see what it takes
        kvern_context_options options = kvern_context_options_default();
        options.allocator = ledger_allocator(&books);
        options.budget_bytes = need;
        options.threads = 1;
        kvern_context *context;
        kvern_composition *composition;
        kvern_cache *cache;
        const kvern_layer layer = kvern_layer_default(2, 64);
        assert_ok(kvern_context_create(&options, &context));
        assert_ok(kvern_composition_create(context, &layer, 1, &composition));
        assert_ok(kvern_cache_create(composition, 0, 1, &cache));
        assert_ok(kvern_cache_reserve(cache, 0, 3000, 0));
        need = books.held_bytes;
        kvern_cache_destroy(cache);
        kvern_composition_release(composition);
        kvern_context_release(context);
        assert_int_equal(books.held_bytes, 0);
    }
    ledger_finish(&books);
}

// Arenas double while they may; when only less is left, less is taken: page after page until the
// budget is full.
static void a_budget_is_filled_page_by_page(void **state)
{
    (void)state;
    enum { PAGE = 64 * 2 * 64 * 2, PAGES = 11 };
    kvern_context_options options = kvern_context_options_default();
    const kvern_layer layer = kvern_layer_default(1, 64);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    options.threads = 1;
    options.budget_bytes = PAGES * PAGE + PAGE / 2; // the half for everything else
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    for (int page = 0; page < PAGES; page++)
        feed_one(cache, KVERN_PHASE_WINDOW, 1, 64, 1, NULL);
    feed f = feed_create(cache, &(uint64_t){1}, &(int64_t){1}, 1);
    assert_status(KVERN_ERR_BUDGET, feed_append(cache, KVERN_PHASE_DECODE, &f, NULL));
    feed_destroy(&f);
    assert_int_equal(kvern_cache_length(cache, 0), 64 * PAGES);
    assert_int_equal(kvern_cache_bytes(cache), PAGES * PAGE);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// The budget bounds all objects of a context together, and what one gives back another may take.
static void rows_share_one_budget(void **state)
{
    (void)state;
    kvern_context_options options = kvern_context_options_default();
    const kvern_layer layer = kvern_layer_default(1, 64);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    options.threads = 1;
    options.budget_bytes = 200000; // about a dozen pages of 16 KiB
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 2, &cache));
    assert_ok(kvern_cache_reserve(cache, 0, 8 * 64, 0));
    assert_status(KVERN_ERR_BUDGET, kvern_cache_reserve(cache, 1, 8 * 64, 0));
    assert_int_equal(kvern_cache_bytes(cache), 8 * 64 * 256);
    assert_ok(kvern_cache_reset(cache, 0));
    assert_ok(kvern_cache_reserve(cache, 1, 8 * 64, 0));
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void a_context_needs_room_for_itself(void **state)
{
    (void)state;
    kvern_context_options options = kvern_context_options_default();
    options.threads = 1;
    options.budget_bytes = 1;
    kvern_context *context = (kvern_context *)&options;
    assert_status(KVERN_ERR_BUDGET, kvern_context_create(&options, &context));
    assert_null(context);
}

int main(void)
{
    struct CMUnitTest tests[64] = {
        cmocka_unit_test(a_budget_is_used_to_its_last_page),
        cmocka_unit_test(a_budget_is_filled_page_by_page),
        cmocka_unit_test(rows_share_one_budget),
        cmocka_unit_test(a_context_needs_room_for_itself),
    };
    size_t count = 4;
    for (size_t i = 1; i < fault_operation_count; i++) // the first one makes a context: above
        tests[count++] = (struct CMUnitTest){.name = fault_operations[i].name,
                                             .test_func = budgets_below_the_need_are_kept,
                                             .initial_state = (void *)&fault_operations[i]};
    return _cmocka_run_group_tests("budget", tests, count, NULL, NULL);
}
