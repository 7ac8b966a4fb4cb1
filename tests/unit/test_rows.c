// SPDX-License-Identifier: MIT
// Rows that join, leave, change places and are extracted: what the calls do and refuse.
// test_fault_row_structure.c has the same on every storage.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"

#include <kvern/kvern.h>

#include <string.h>

#define DIM 32

// Two layers, one of them with a window.
typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition, *twin; // of equal signatures
    kvern_state *state, *other;
} world;

static kvern_composition *compose(kvern_context *context, int64_t window, uint32_t bits)
{
    kvern_layer layers[2] = {kvern_layer_default(1, DIM), kvern_layer_window(1, DIM, window)};
    kvern_composition *composition;
    layers[1].slack = 8;
    layers[1].v_codec = kvern_codec_affine(bits, 32);
    assert_ok(kvern_composition_create(context, layers, 2, &composition));
    return composition;
}

static void open_world(world *w, size_t rows, size_t other_rows)
{
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &w->context));
    w->composition = compose(w->context, 40, 4);
    w->twin = compose(w->context, 40, 4);
    assert_ok(kvern_state_create(w->composition, rows, &w->state));
    assert_ok(kvern_state_create(w->twin, other_rows, &w->other));
}

static void close_world(world *w)
{
    kvern_state_destroy(w->state);
    kvern_state_destroy(w->other);
    kvern_composition_release(w->composition);
    kvern_composition_release(w->twin);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

static void run_step(kvern_state *s, const uint64_t *sequences, const int64_t *counts)
{
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < 2; l++) {
        feed f = feed_create(kvern_state_cache(s, l), sequences, counts, 1);
        assert_ok(feed_step_append(s, l, &f, NULL));
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
}

// Every layer of a row holds that sequence.
static void expect_row(const kvern_state *s, size_t row, uint64_t sequence, int64_t length)
{
    assert_int_equal(kvern_state_length(s, row), length);
    for (size_t l = 0; l < 2; l++) {
        const kvern_cache *cache = kvern_state_cache(s, l);
        float wanted[DIM], k[DIM];
        assert_int_equal(kvern_cache_length(cache, row), length);
        if (length == 0)
            continue;
        assert_ok(kvern_cache_export(cache, row, length - 1, 1, k, NULL));
        feed_values(sequence, length - 1, FEED_K, DIM, wanted);
        for (size_t d = 0; d < DIM; d++)
            assert_true(k[d] - wanted[d] < 0.01f && wanted[d] - k[d] < 0.01f);
    }
}

static void rows_join_leave_and_change_places(void **state)
{
    (void)state;
    static const uint64_t first[2] = {1, 2}, second[2] = {3, 4}, all[5] = {4, 9, 2, 1, 3};
    static const int64_t a[2] = {5, 70}, b[2] = {130, 1}, one[5] = {1, 1, 1, 1, 1};
    static const size_t order[5] = {3, 4, 1, 0, 2}, last[1] = {4};
    world w;
    open_world(&w, 2, 2);
    run_step(w.state, first, a);
    run_step(w.other, second, b);
    assert_ok(kvern_state_join(w.state, &w.other, 1));
    assert_int_equal(kvern_state_rows(w.state), 4);
    assert_int_equal(kvern_state_rows(w.other), 0);
    assert_int_equal(kvern_state_bytes(w.other), 0);
    assert_ok(kvern_state_add_rows(w.state, 1)); // a fresh one beside them
    assert_ok(kvern_state_keep(w.state, order, 5));
    run_step(w.state, all, one);
    expect_row(w.state, 0, 4, 2);
    expect_row(w.state, 1, 9, 1);
    expect_row(w.state, 2, 2, 71);
    expect_row(w.state, 3, 1, 6);
    expect_row(w.state, 4, 3, 131);
    assert_ok(kvern_state_keep(w.state, last, 1));
    expect_row(w.state, 0, 3, 131);
    kvern_composition_release(w.twin); // whose pages the row still has
    w.twin = NULL;
    kvern_state_destroy(w.other);
    w.other = NULL;
    for (int i = 0; i < 70; i++)
        run_step(w.state, second, one);
    expect_row(w.state, 0, 3, 201);
    close_world(&w);
}

static void an_extracted_row_is_independent(void **state)
{
    (void)state;
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t counts[3] = {66, 0, 30}, one[3] = {1, 1, 1};
    world w;
    kvern_state *taken, *empty, *none;
    open_world(&w, 3, 0);
    run_step(w.state, sequences, counts);
    assert_ok(kvern_state_extract(w.state, 0, &taken));
    assert_ok(kvern_state_extract(w.state, 1, &empty));
    assert_status(KVERN_ERR_RANGE, kvern_state_extract(w.state, 3, &none));
    assert_null(none);
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_extract(w.state, 0, NULL));
    run_step(w.state, sequences, one);
    expect_row(taken, 0, 1, 66);
    expect_row(empty, 0, 2, 0);
    run_step(taken, sequences, one + 2);
    kvern_state_destroy(w.state);
    w.state = NULL;
    run_step(taken, sequences, one);
    expect_row(taken, 0, 1, 68);
    kvern_state_destroy(taken);
    kvern_state_destroy(empty);
    close_world(&w);
}

static void what_differs_is_named(void **state)
{
    (void)state;
    world w;
    kvern_state *wider, *coarser, *shorter, *foreign;
    kvern_context *second;
    open_world(&w, 1, 1);
    kvern_composition *compositions[4] = {compose(w.context, 41, 4), compose(w.context, 40, 2)};
    const kvern_layer one = kvern_layer_default(1, DIM);
    assert_ok(kvern_composition_create(w.context, &one, 1, &compositions[2]));
    assert_ok(kvern_context_create(NULL, &second));
    compositions[3] = compose(second, 40, 4);
    assert_ok(kvern_state_create(compositions[0], 1, &wider));
    assert_ok(kvern_state_create(compositions[1], 1, &coarser));
    assert_ok(kvern_state_create(compositions[2], 1, &shorter));
    assert_ok(kvern_state_create(compositions[3], 1, &foreign));
    kvern_state *both[2] = {w.other, wider};
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_join(w.state, both, 2));
    assert_non_null(strstr(kvern_error_detail(), "layer 1"));
    assert_non_null(
        strstr(kvern_error_detail(), kvern_cache_signature(kvern_state_cache(w.state, 1))));
    assert_non_null(
        strstr(kvern_error_detail(), kvern_cache_signature(kvern_state_cache(wider, 1))));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_join(w.state, &coarser, 1));
    assert_non_null(strstr(kvern_error_detail(), "affine2"));
    assert_non_null(strstr(kvern_error_detail(), "affine4"));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_join(w.state, &shorter, 1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_join(w.state, &foreign, 1));
    assert_int_equal(kvern_state_rows(w.state), 1); // nobody has moved
    assert_int_equal(kvern_state_rows(w.other), 1);
    kvern_state_destroy(wider);
    kvern_state_destroy(coarser);
    kvern_state_destroy(shorter);
    kvern_state_destroy(foreign);
    for (size_t i = 0; i < 4; i++)
        kvern_composition_release(compositions[i]);
    kvern_context_release(second);
    close_world(&w);
}

// The longest signatures that there are fit the longest sentence that names both.
static void long_signatures_are_named_whole(void **state)
{
    (void)state;
    kvern_layer layer =
        kvern_layer_window(KVERN_MAX_KV_HEADS, KVERN_MAX_HEAD_DIM, KVERN_MAX_WINDOW);
    kvern_context *context;
    kvern_composition *compositions[2];
    kvern_cache *caches[2];
    layer.k_codec = layer.v_codec = kvern_codec_affine(8, 32);
    layer.keep = KVERN_MAX_WINDOW - 1;
    layer.slack = KVERN_MAX_WINDOW;
    layer.start = INT64_C(1) << 40;
    assert_ok(kvern_context_create(NULL, &context));
    for (int i = 0; i < 2; i++) {
        layer.v_dim -= 32 * (size_t)i;
        assert_ok(kvern_composition_create(context, &layer, 1, &compositions[i]));
        assert_ok(kvern_cache_create(compositions[i], 0, 1, &caches[i]));
    }
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_adopt(caches[0], 0, caches[1], 0));
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(kvern_error_detail(), kvern_cache_signature(caches[i])));
    for (int i = 0; i < 2; i++) {
        kvern_cache_destroy(caches[i]);
        kvern_composition_release(compositions[i]);
    }
    kvern_context_release(context);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    static const size_t twice[2] = {1, 1}, outside[2] = {0, 2};
    world w;
    open_world(&w, 2, 2);
    kvern_state *self[2] = {w.other, w.state}, *same[2] = {w.other, w.other};
    kvern_state *null[2] = {w.other, NULL};
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_join(w.state, self, 2));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_join(w.state, same, 2));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_join(w.state, null, 2));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_join(w.state, NULL, 1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_join(NULL, self, 1));
    assert_ok(kvern_state_join(w.state, NULL, 0));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_keep(w.state, twice, 2));
    assert_status(KVERN_ERR_RANGE, kvern_state_keep(w.state, outside, 2));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_keep(w.state, NULL, 1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_keep(NULL, NULL, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_add_rows(w.state, KVERN_MAX_ROWS - 1));
    assert_status(KVERN_ERR_RANGE, kvern_state_add_rows(w.state, SIZE_MAX));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_add_rows(NULL, 1));
    assert_int_equal(kvern_state_rows(w.state), 2);
    assert_int_equal(kvern_state_rows(w.other), 2);
    close_world(&w);
}

static void too_many_rows_are_refused(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_default(1, 8), KVERN_MAX_ROWS - 1);
    kvern_cache *two, *one;
    assert_ok(kvern_cache_create(b->composition, 0, 2, &two));
    assert_ok(kvern_cache_create(b->composition, 0, 1, &one));
    assert_status(KVERN_ERR_RANGE, kvern_cache_join(b->cache, &two, 1));
    assert_int_equal(kvern_cache_rows(two), 2);
    assert_ok(kvern_cache_join(b->cache, &one, 1));
    assert_int_equal(kvern_cache_rows(b->cache), KVERN_MAX_ROWS);
    kvern_cache_destroy(two);
    kvern_cache_destroy(one);
    bed_destroy(b);
}

static void an_open_step_forbids_all(void **state)
{
    (void)state;
    static const int64_t counts[2] = {1, 1};
    static const size_t rows[1] = {0};
    world w;
    kvern_state *made = NULL;
    open_world(&w, 2, 2);
    assert_ok(kvern_step_begin(w.other, KVERN_PHASE_DECODE, counts));
    assert_status(KVERN_ERR_BUSY, kvern_state_join(w.state, &w.other, 1));
    assert_status(KVERN_ERR_BUSY, kvern_state_join(w.other, &w.state, 1));
    assert_status(KVERN_ERR_BUSY, kvern_state_keep(w.other, rows, 1));
    assert_status(KVERN_ERR_BUSY, kvern_state_add_rows(w.other, 1));
    assert_status(KVERN_ERR_BUSY, kvern_state_extract(w.other, 0, &made));
    assert_null(made);
    kvern_step_abandon(w.other);
    assert_ok(kvern_state_join(w.other, &w.state, 1));
    assert_int_equal(kvern_state_rows(w.other), 4);
    close_world(&w);
}

static void caches_of_a_state_are_for_looking(void **state)
{
    (void)state;
    static const size_t rows[1] = {0};
    world w;
    kvern_cache *alone, *taken;
    open_world(&w, 2, 0);
    kvern_cache *owned = (kvern_cache *)kvern_state_cache(w.state, 0);
    assert_ok(kvern_cache_create(w.composition, 0, 1, &alone));
    assert_status(KVERN_ERR_BUSY, kvern_cache_join(owned, &alone, 1));
    assert_status(KVERN_ERR_BUSY, kvern_cache_join(alone, &owned, 1));
    assert_status(KVERN_ERR_BUSY, kvern_cache_keep(owned, rows, 1));
    assert_status(KVERN_ERR_BUSY, kvern_cache_add_rows(owned, 1));
    assert_ok(kvern_cache_extract(owned, 1, &taken));
    assert_ok(kvern_cache_join(alone, &taken, 1));
    assert_int_equal(kvern_cache_rows(alone), 2);
    kvern_cache_destroy(taken);
    kvern_cache_destroy(alone);
    close_world(&w);
}

// Room that was reserved moves with its row, in a join and in a change of places.
static void reserved_room_moves_along(void **state)
{
    (void)state;
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t only_last[3] = {0, 0, 600};
    static const size_t order[3] = {0, 2, 1};
    static const int64_t only_middle[3] = {0, 600, 0};
    bed *b = bed_create(kvern_layer_default(1, DIM), 2);
    kvern_cache *other;
    assert_ok(kvern_cache_create(b->composition, 0, 1, &other));
    assert_ok(kvern_cache_reserve(other, 0, 1200, 0));
    const uint64_t bytes = kvern_cache_bytes(other);
    assert_ok(kvern_cache_join(b->cache, &other, 1));
    assert_int_equal(kvern_cache_bytes(b->cache), bytes);
    kvern_cache_destroy(other);
    uint64_t allocations = b->books.allocations;
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, only_last, 1, NULL);
    assert_ok(kvern_cache_keep(b->cache, order, 3));
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, only_middle, 1, NULL);
    assert_int_equal(b->books.allocations, allocations);
    assert_int_equal(kvern_cache_length(b->cache, 1), 1200);
    assert_int_equal(kvern_cache_bytes(b->cache), bytes);
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_join_leave_and_change_places),
        cmocka_unit_test(an_extracted_row_is_independent),
        cmocka_unit_test(what_differs_is_named),
        cmocka_unit_test(long_signatures_are_named_whole),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(too_many_rows_are_refused),
        cmocka_unit_test(an_open_step_forbids_all),
        cmocka_unit_test(caches_of_a_state_are_for_looking),
        cmocka_unit_test(reserved_room_moves_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
