// SPDX-License-Identifier: MIT
// Checkpoints of rows: exact, within a budget, moving with their rows.

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/soundness.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define CHUNK 10
#define PARTS 12

static const uint64_t sequence = 5;

// A state of one row, fed in parts of one size.
static kvern_state *fed_state(const hybrid_world *w, size_t parts)
{
    kvern_state *s = hybrid_state(w, 1);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    for (size_t i = 0; i < parts; i++)
        hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, CHUNK, NULL);
    return s;
}

// The same, kept at the end of every part.
static kvern_state *kept_state(const hybrid_world *w, size_t parts)
{
    kvern_state *s = hybrid_state(w, 1);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    for (size_t i = 0; i < parts; i++) {
        hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, CHUNK, NULL);
        assert_ok(kvern_state_checkpoint(s, 0));
        expect_sound_state(s);
    }
    return s;
}

// Over a window that has wrapped and a layer that has been converted, to every part and on again.
static void a_row_goes_back_and_on(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *end = fed_state(&w, PARTS);
    for (size_t parts = 0; parts <= PARTS; parts++) {
        kvern_state *s = kept_state(&w, PARTS), *wanted = fed_state(&w, parts);
        const int64_t position = (int64_t)parts * CHUNK;
        assert_int_equal(kvern_state_checkpoint_below(s, 0, position), position);
        assert_ok(kvern_state_return(s, 0, position));
        expect_sound_state(s);
        hybrid_expect_row(wanted, 0, s, 0, "a row that went back");
        assert_int_equal(kvern_state_checkpoints(s, 0, NULL, 0), parts);
        for (size_t i = parts; i < PARTS; i++)
            hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, CHUNK, NULL);
        hybrid_expect_row(end, 0, s, 0, "a row that went back and on");
        if (parts) {
            assert_ok(kvern_state_return(s, 0, position)); // the checkpoint is still there
            hybrid_expect_row(wanted, 0, s, 0, "a row that went back twice");
        }
        kvern_state_destroy(s);
        kvern_state_destroy(wanted);
    }
    kvern_state_destroy(end);
    hybrid_close(&w);
}

// To any position behind a checkpoint, by serving tokens again, and by decodes.
static void any_position_is_reached_by_replay(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    for (int64_t position = 41; position < 50; position += 4) {
        kvern_state *s = kept_state(&w, 6), *wanted = fed_state(&w, 4);
        assert_int_equal(kvern_state_checkpoint_below(s, 0, position), 40);
        assert_status(KVERN_ERR_RANGE, kvern_state_return(s, 0, position));
        assert_non_null(strstr(kvern_error_detail(), "below is at 40"));
        assert_int_equal(kvern_state_length(s, 0), 60);
        assert_ok(kvern_state_return(s, 0, 40));
        hybrid_feed(wanted, KVERN_PHASE_WINDOW, sequence, position - 40, NULL);
        while (kvern_state_length(s, 0) < position)
            hybrid_feed(s, KVERN_PHASE_DECODE, sequence, 1, NULL);
        hybrid_expect_row(wanted, 0, s, 0, "a position behind a checkpoint");
        kvern_state_destroy(s);
        kvern_state_destroy(wanted);
    }
    hybrid_close(&w);
}

// ---- The budget ----

// Bytes of a checkpoint of a row of 20 positions, which each of them has.
static uint64_t one_checkpoint(const hybrid_world *w)
{
    kvern_state *s = fed_state(w, 2);
    assert_ok(kvern_state_checkpoint(s, 0));
    const uint64_t bytes = kvern_state_checkpoint_bytes(s);
    kvern_state_destroy(s);
    return bytes;
}

static void expect_positions(const kvern_state *s, size_t row, size_t count, const int64_t *wanted)
{
    int64_t got[PARTS + 1];
    assert_int_equal(kvern_state_checkpoints(s, row, got, PARTS + 1), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(got[i], wanted[i]);
}

static void without_a_budget_there_are_none(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, false);
    kvern_state *s = fed_state(&w, 2);
    const uint64_t bytes = one_checkpoint(&w);
    assert_ok(kvern_state_checkpoint_budget(s, 0));
    assert_status(KVERN_ERR_BUDGET, kvern_state_checkpoint(s, 0));
    assert_ok(kvern_state_checkpoint_budget(s, bytes - 1));
    assert_status(KVERN_ERR_BUDGET, kvern_state_checkpoint(s, 0));
    assert_int_equal(kvern_state_checkpoints(s, 0, NULL, 0), 0);
    assert_int_equal(kvern_state_checkpoint_bytes(s), 0);
    assert_ok(kvern_state_checkpoint_budget(s, bytes));
    assert_ok(kvern_state_checkpoint(s, 0));
    assert_ok(kvern_state_checkpoint(s, 0)); // once for a position
    expect_positions(s, 0, 1, (int64_t[]){20});
    assert_int_equal(kvern_state_checkpoint_bytes(s), bytes);
    kvern_state *fresh = hybrid_state(&w, 1);
    assert_ok(kvern_state_checkpoint(fresh, 0)); // of an empty row nothing is kept
    assert_int_equal(kvern_state_checkpoints(fresh, 0, NULL, 0), 0);
    kvern_state_destroy(fresh);
    kvern_state_destroy(s);
    hybrid_close(&w);
}

// Which one goes: the one with the fewest tokens behind the next smaller one; of equal ones the
// oldest. Layers are recurrent alone, so that all checkpoints are of one size.
static void the_cheapest_to_lose_goes_first(void **state)
{
    (void)state;
    kvern_layer layers[HYBRID_LAYERS];
    hybrid_world w;
    kvern_composition *composition;
    kvern_state *s;
    void *lane;
    hybrid_open(&w, NULL, true);
    hybrid_plan(layers);
    assert_ok(kvern_composition_create(w.context, layers + HYBRID_LANE, 1, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    static const int64_t steps[] = {30, 5, 25, 40, 40, 40};
    for (size_t i = 0; i < 6; i++) { // 30, 35, 60, 100, 140, 180
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &steps[i]));
        assert_ok(kvern_step_lanes(s, 0, &lane));
        memset(lane, (int)i, 40);
        assert_ok(kvern_step_end(s));
        assert_ok(kvern_state_checkpoint(s, 0));
    }
    const uint64_t one = kvern_state_checkpoint_bytes(s) / 6;
    assert_int_equal(kvern_state_checkpoint_bytes(s), 6 * one);
    assert_ok(kvern_state_checkpoint_budget(s, 5 * one)); // 35 is 5 tokens from 30
    expect_positions(s, 0, 5, (int64_t[]){180, 140, 100, 60, 30});
    assert_ok(
        kvern_state_checkpoint_budget(s, 4 * one + one / 2)); // 30 and 60 cost 30: 30 is older
    expect_positions(s, 0, 4, (int64_t[]){180, 140, 100, 60});
    assert_ok(kvern_state_checkpoint_budget(s, 3 * one)); // 100 is 40 from 60, as the next ones
    expect_positions(s, 0, 3, (int64_t[]){180, 140, 60});
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &(int64_t){1}));
    assert_ok(kvern_step_lanes(s, 0, &lane));
    assert_ok(kvern_step_end(s));
    assert_ok(kvern_state_checkpoint(s, 0)); // the one that is made stays, at whatever cost
    expect_positions(s, 0, 3, (int64_t[]){181, 140, 60});
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    hybrid_close(&w);
}

// What a checkpoint counts with is what goes with it, when its row has gone on.
static void counted_bytes_are_held_bytes(void **state)
{
    (void)state;
    hybrid_world w;
    kvern_context_options options = kvern_context_options_default();
    options.budget_bytes = UINT64_C(1) << 30; // so that arenas hold nothing for later
    hybrid_open(&w, &options, true);
    for (size_t parts = 1; parts <= PARTS; parts++) {
        kvern_state *s = fed_state(&w, parts);
        assert_ok(kvern_state_checkpoint(s, 0));
        for (size_t i = parts; i < 2 * PARTS; i++)
            hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, CHUNK, NULL);
        const uint64_t counted = kvern_state_checkpoint_bytes(s);
        (void)kvern_context_trim(w.context);
        const uint64_t before = w.books.held_bytes;
        assert_ok(kvern_state_checkpoint_budget(s, 0));
        (void)kvern_context_trim(w.context);
        const uint64_t freed = before - w.books.held_bytes;
        assert_true(freed > counted / 2);
        assert_true(freed <= counted + counted / 4 + 8192); // pages have heads, arenas too
        assert_int_equal(kvern_state_checkpoint_bytes(s), 0);
        kvern_state_destroy(s);
    }
    hybrid_close(&w);
}

// ---- With their rows ----

static void checkpoints_move_with_their_rows(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = kept_state(&w, 3), *other = kept_state(&w, 5), *fork, *wanted;
    const uint64_t bytes = kvern_state_checkpoint_bytes(s) + kvern_state_checkpoint_bytes(other);
    assert_ok(kvern_state_join(s, &other, 1));
    assert_int_equal(kvern_state_checkpoint_bytes(other), 0);
    assert_int_equal(kvern_state_checkpoint_bytes(s), bytes);
    expect_positions(s, 0, 3, (int64_t[]){30, 20, 10});
    expect_positions(s, 1, 5, (int64_t[]){50, 40, 30, 20, 10});
    assert_ok(kvern_state_add_rows(s, 9)); // the batch moves
    assert_ok(kvern_state_fork(s, (size_t[]){1}, 1, &fork));
    assert_int_equal(kvern_state_checkpoints(fork, 0, NULL, 0), 0);
    assert_ok(kvern_state_keep(s, (size_t[]){4, 1, 0}, 3));
    expect_sound_state(s);
    expect_positions(s, 0, 0, NULL);
    expect_positions(s, 1, 5, (int64_t[]){50, 40, 30, 20, 10});
    assert_ok(kvern_state_return(s, 1, 20));
    wanted = fed_state(&w, 2);
    hybrid_expect_row(wanted, 0, s, 1, "a row that moved and went back");
    assert_ok(kvern_state_keep(s, (size_t[]){0}, 1));
    assert_int_equal(kvern_state_checkpoint_bytes(s), 0); // they went with their rows
    kvern_state_destroy(s);
    kvern_state_destroy(other);
    kvern_state_destroy(fork);
    kvern_state_destroy(wanted);
    hybrid_close(&w);
}

// Rows that join a state with a smaller budget bring as many as fit.
static void a_join_keeps_to_the_budget(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = kept_state(&w, 3), *other = kept_state(&w, 5);
    const uint64_t own = kvern_state_checkpoint_bytes(s);
    assert_ok(kvern_state_checkpoint_budget(s, own));
    assert_ok(kvern_state_join(s, &other, 1));
    assert_true(kvern_state_checkpoint_bytes(s) <= own);
    assert_true(kvern_state_checkpoint_bytes(s) > 0);
    expect_sound_state(s);
    kvern_state_destroy(s);
    kvern_state_destroy(other);
    hybrid_close(&w);
}

static void what_is_behind_the_end_goes(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = kept_state(&w, 3);
    assert_ok(kvern_state_trim(s, 0, 30));
    assert_int_equal(kvern_state_checkpoints(s, 0, NULL, 0), 0);
    kvern_state_destroy(s);
    s = kept_state(&w, 3);
    assert_ok(kvern_state_reset(s, 0));
    assert_int_equal(kvern_state_checkpoint_bytes(s), 0);
    kvern_state_destroy(s);
    // Layers of keys and values alone can be trimmed to what lies before a checkpoint.
    kvern_layer layer = kvern_layer_default(1, 32);
    kvern_composition *composition;
    assert_ok(kvern_composition_create(w.context, &layer, 1, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    for (int i = 0; i < 3; i++) {
        hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, 10, NULL);
        assert_ok(kvern_state_checkpoint(s, 0));
    }
    assert_ok(kvern_state_trim(s, 0, 15));
    expect_positions(s, 0, 1, (int64_t[]){10});
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    hybrid_close(&w);
}

// ---- Errors ----

static void nothing_is_kept_while_something_is_open(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, false);
    kvern_state *s = kept_state(&w, 3);
    assert_status(KVERN_ERR_RANGE, kvern_state_checkpoint(s, 1));
    assert_status(KVERN_ERR_RANGE, kvern_state_return(s, 1, 10));
    assert_status(KVERN_ERR_RANGE, kvern_state_return(s, 0, -1));
    assert_status(KVERN_ERR_RANGE, kvern_state_return(s, 0, 31));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_checkpoint(NULL, 0));
    assert_int_equal(kvern_state_checkpoint_below(s, 1, 5), -1);
    assert_int_equal(kvern_state_checkpoint_below(s, 0, -1), -1);
    assert_int_equal(kvern_state_checkpoint_below(s, 0, 9), 0);
    assert_int_equal(kvern_state_checkpoint_below(s, 0, 99), 30);
    assert_int_equal(kvern_state_checkpoints(s, 1, NULL, 0), 0);
    assert_ok(kvern_round_begin(s, &(int64_t){2}));
    assert_status(KVERN_ERR_BUSY, kvern_state_checkpoint(s, 0));
    assert_status(KVERN_ERR_BUSY, kvern_state_return(s, 0, 10));
    assert_status(KVERN_ERR_BUSY, kvern_state_checkpoint_budget(s, 0));
    hybrid_feed(s, KVERN_PHASE_WINDOW, 9, 2, NULL);
    assert_ok(kvern_round_rollback(s, &(int64_t){0}));
    kvern_state *wanted = fed_state(&w, 3);
    hybrid_expect_row(wanted, 0, s, 0, "a row with checkpoints after a round");
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &(int64_t){2}));
    assert_status(KVERN_ERR_BUSY, kvern_state_checkpoint(s, 0));
    assert_status(KVERN_ERR_BUSY, kvern_state_return(s, 0, 10));
    kvern_step_abandon(s);
    expect_positions(s, 0, 3, (int64_t[]){30, 20, 10});
    kvern_state_destroy(s);
    kvern_state_destroy(wanted);
    hybrid_close(&w);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = kept_state(&w, 7), *wanted = fed_state(&w, 8);
    hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, CHUNK, NULL);
    const uint64_t bytes = kvern_state_checkpoint_bytes(s);
    ledger_refuse_rest(&w.books, 0);
    assert_status(KVERN_ERR_MEMORY, kvern_state_checkpoint(s, 0));
    assert_int_equal(kvern_state_checkpoint_bytes(s), bytes);
    assert_int_equal(kvern_state_checkpoints(s, 0, NULL, 0), 7);
    hybrid_expect_row(wanted, 0, s, 0, "a row without memory for a checkpoint");
    assert_ok(kvern_state_return(s, 0, 40)); // takes none
    (void)ledger_relent(&w.books);
    expect_sound_state(s);
    kvern_state *back = fed_state(&w, 4);
    hybrid_expect_row(back, 0, s, 0, "a row that went back without memory");
    kvern_state_destroy(s);
    kvern_state_destroy(wanted);
    kvern_state_destroy(back);
    hybrid_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_goes_back_and_on),
        cmocka_unit_test(any_position_is_reached_by_replay),
        cmocka_unit_test(without_a_budget_there_are_none),
        cmocka_unit_test(the_cheapest_to_lose_goes_first),
        cmocka_unit_test(counted_bytes_are_held_bytes),
        cmocka_unit_test(checkpoints_move_with_their_rows),
        cmocka_unit_test(a_join_keeps_to_the_budget),
        cmocka_unit_test(what_is_behind_the_end_goes),
        cmocka_unit_test(nothing_is_kept_while_something_is_open),
        cmocka_unit_test(without_memory_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
