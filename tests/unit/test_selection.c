// SPDX-License-Identifier: MIT
// Selections of positions: what is refused, with nothing written, and public faults of other
// systems as scenarios (fault_<letter><number>_...).

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define ROWS 2
#define HEADS 4
#define DIM 16
#define STRIDE 8
#define QUERIES 4

static const uint64_t sequences[ROWS] = {1, 2};
static const int64_t before[ROWS] = {70, 3}, counts[ROWS] = {3, 1};

typedef struct fixture {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    feed last;
    int64_t positions[QUERIES * STRIDE], counts[QUERIES];
    kvern_selection selection;
    uint64_t held_bytes;
} fixture;

static void open_fixture(fixture *f, const kvern_layer *layer)
{
    kvern_context_options options = kvern_context_options_default();
    memset(f, 0, sizeof *f);
    ledger_init(&f->books);
    options.allocator = ledger_allocator(&f->books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &f->context));
    assert_ok(kvern_composition_create(f->context, layer, 1, &f->composition));
    assert_ok(kvern_cache_create(f->composition, 0, ROWS, &f->cache));
    feed_run(f->cache, KVERN_PHASE_WINDOW, sequences, before, HEADS, NULL);
    f->last = feed_create(f->cache, sequences, counts, HEADS);
    assert_ok(feed_append(f->cache, KVERN_PHASE_WINDOW, &f->last, &f->read));
    f->selection = kvern_selection_default(f->positions, f->counts, QUERIES, STRIDE);
    f->selection.queries = QUERIES;
    for (size_t n = 0; n < QUERIES; n++)
        f->counts[n] = 1 + (int64_t)n % 2;
    for (size_t n = 0; n < QUERIES; n++)
        f->positions[n * STRIDE + 1] = 2;
    f->held_bytes = f->books.held_bytes;
}

static void close_fixture(fixture *f)
{
    feed_destroy(&f->last);
    kvern_read_release(f->read);
    kvern_cache_destroy(f->cache);
    kvern_composition_release(f->composition);
    kvern_context_release(f->context);
    ledger_finish(&f->books);
}

// The attend is refused, and neither results nor memory show it.
static void refuse(fixture *f, kvern_status wanted)
{
    kvern_queries q = f->last.queries;
    q.selection = &f->selection;
    for (size_t i = 0; i < f->last.out_count; i++)
        f->last.out[i] = 12345;
    assert_status(wanted, kvern_read_attend(f->read, &q));
    assert_true(strlen(kvern_error_detail()) > 0);
    for (size_t i = 0; i < f->last.out_count; i++)
        assert_true(f->last.out[i] == 12345);
    assert_int_equal(f->books.held_bytes, f->held_bytes);
}

static void accept(fixture *f)
{
    kvern_queries q = f->last.queries;
    q.selection = &f->selection;
    assert_ok(kvern_read_attend(f->read, &q));
    (void)kvern_context_trim(f->context);
    f->held_bytes = f->books.held_bytes;
}

static void lists_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    fixture f;
    const kvern_layer layer = kvern_layer_default(2, DIM);
    open_fixture(&f, &layer);
    accept(&f);
    f.positions[0] = -1;
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[0] = 71; // behind the query at 70, though stored
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[0] = 70;
    accept(&f);
    f.positions[STRIDE] = 2; // 2, 2
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[STRIDE] = 3; // 3, 2
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[STRIDE] = 0;
    f.counts[3] = 0;
    refuse(&f, KVERN_ERR_RANGE);
    f.counts[3] = -1;
    refuse(&f, KVERN_ERR_RANGE);
    f.counts[3] = STRIDE + 1;
    refuse(&f, KVERN_ERR_RANGE);
    f.counts[3] = 2;
    f.positions[3 * STRIDE + 1] = 4; // a position of the other row
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[3 * STRIDE + 1] = 3;
    accept(&f);
    close_fixture(&f);
}

static void selections_that_are_none_are_refused(void **state)
{
    (void)state;
    fixture f;
    const kvern_layer layer = kvern_layer_default(2, DIM);
    open_fixture(&f, &layer);
    accept(&f);
    const kvern_selection good = f.selection;
    f.selection.queries = QUERIES - 1; // of fewer queries than the call has
    refuse(&f, KVERN_ERR_RANGE);
    f.selection.queries = QUERIES + 1;
    refuse(&f, KVERN_ERR_RANGE);
    f.selection.queries = 0; // nothing was selected yet
    refuse(&f, KVERN_ERR_RANGE);
    f.selection = good;
    f.selection.capacity = QUERIES - 1;
    refuse(&f, KVERN_ERR_RANGE);
    f.selection = good;
    f.selection.stride = 0;
    refuse(&f, KVERN_ERR_RANGE);
    f.selection.stride = INT64_MAX / 8;
    refuse(&f, KVERN_ERR_OVERFLOW);
    f.selection = good;
    f.selection.positions = NULL;
    refuse(&f, KVERN_ERR_ARGUMENT);
    f.selection = good;
    f.selection.counts = NULL;
    refuse(&f, KVERN_ERR_ARGUMENT);
    f.selection = good;
    f.selection.size = 8;
    refuse(&f, KVERN_ERR_ARGUMENT);
    f.selection = good;
    accept(&f);
    close_fixture(&f);
}

// Whatever its window shows: spans of a windowed row begin at absolute positions.
static void a_sliding_window_has_no_selections(void **state)
{
    (void)state;
    fixture f;
    const kvern_layer layer = kvern_layer_window(2, DIM, 1000);
    open_fixture(&f, &layer);
    refuse(&f, KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(kvern_error_detail(), "sliding window"));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_do_not_fit_are_refused),
        cmocka_unit_test(selections_that_are_none_are_refused),
        cmocka_unit_test(a_sliding_window_has_no_selections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
