// SPDX-License-Identifier: MIT
// The walk over a state finds what does not agree: each invariant is broken once, by hand.

#include "src/state/checkpoint.h"
#include "src/state/walk.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/hybrid_state.h"

#include <kvern/kvern.h>

#include <string.h>

#define ROWS 2
#define DIM 64

static const uint64_t sequences[ROWS] = {3, 4};

typedef struct fixture {
    kvern_context *context;
    kvern_state *s;
} fixture;

static void run(kvern_state *s, const int64_t *counts)
{
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < 2; l++) {
        feed f = feed_create(kvern_state_cache(s, l), sequences, counts, 2);
        assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
}

// A full layer and one that has dropped positions, with reserved room.
static fixture open_fixture(void)
{
    fixture f;
    kvern_composition *composition;
    const kvern_layer layers[2] = {kvern_layer_default(2, DIM), kvern_layer_window(2, DIM, 100)};
    assert_ok(kvern_context_create(NULL, &f.context));
    assert_ok(kvern_composition_create(f.context, layers, 2, &composition));
    assert_ok(kvern_state_create(composition, ROWS, &f.s));
    kvern_composition_release(composition);
    assert_ok(kvern_state_reserve(f.s, 0, 600, 2));
    run(f.s, (int64_t[ROWS]){400, 70});
    assert_null(kvern_state_walk(f.s));
    return f;
}

static void close_fixture(fixture *f)
{
    assert_null(kvern_state_walk(f->s)); // all has been put right again
    kvern_state_destroy(f->s);
    kvern_context_release(f->context);
}

static void expect_found(const fixture *f, const char *words)
{
    const char *found = kvern_state_walk(f->s);
    assert_non_null(found);
    if (!strstr(found, words))
        fail_msg("\"%s\" does not speak of \"%s\"", found, words);
}

// Sets an expression to a value, looks what the walk says, and sets it back.
#define BREAK(f, place, value, words)                                                              \
    do {                                                                                           \
        __typeof__(place) before = (place);                                                        \
        (place) = (value);                                                                         \
        expect_found(f, words);                                                                    \
        (place) = before;                                                                          \
    } while (0)

static void broken_rows_are_found(void **state)
{
    (void)state;
    fixture f = open_fixture();
    kvern_row *full = &f.s->caches[0].rows[0], *window = &f.s->caches[1].rows[0];
    BREAK(&f, full->length, 401, "not as long as its batch says");
    BREAK(&f, full->held, 1, "without a window");
    BREAK(&f, window->held, -1, "held lies outside");
    BREAK(&f, window->held, window->length - 99, "does not find all it saw");
    BREAK(&f, full->floor, -1, "floor");
    BREAK(&f, full->boundary, -1, "boundary");
    BREAK(&f, full->promised, 1, "without a step");
    BREAK(&f, full->slotted, true, "slot");
    BREAK(&f, full->handed_out, true, "slot");
    BREAK(&f, full->room_count, full->room_count + 1, "room is not as long");
    BREAK(&f, full->room->references, 2, "held by somebody else");
    close_fixture(&f);
}

static void broken_tables_are_found(void **state)
{
    (void)state;
    fixture f = open_fixture();
    kvern_row *full = &f.s->caches[0].rows[0], *window = &f.s->caches[1].rows[0];
    assert_true(window->table->gap > 0);
    BREAK(&f, full->table, NULL, "no table");
    BREAK(&f, full->table->references, 0, "table is held by nobody");
    BREAK(&f, full->table->capacity, 1, "more pages than room");
    BREAK(&f, full->table->count, 6, "fewer pages than its row");
    BREAK(&f, window->table->gap, window->table->gap + 1, "a page was dropped");
    BREAK(&f, full->table->pages[1], full->table->pages[0], "twice");
    BREAK(&f, full->table->pages[2]->references, 0, "a page of a table is held by nobody");
    close_fixture(&f);
}

static void broken_batches_are_found(void **state)
{
    (void)state;
    fixture f = open_fixture();
    kvern_batch *batch = &f.s->batch;
    BREAK(&f, batch->capacity, 1, "more rows than room");
    BREAK(&f, batch->caches, 1, "other layers");
    BREAK(&f, batch->lengths[1], 71, "not as long as its batch says");
    BREAK(&f, f.s->caches[0].appended, true, "without a step");
    BREAK(&f, f.s->caches[0].rows, f.s->caches[1].rows, "elsewhere");
    BREAK(&f, kvern_batch_undos(batch, 0)[1].begun, true, "outlives its round");
    assert_ok(kvern_round_begin(f.s, (int64_t[ROWS]){3, 3}));
    assert_null(kvern_state_walk(f.s));
    BREAK(&f, batch->round_begin[0], 401, "other tokens than");
    BREAK(&f, batch->round_begin[0], 390, "other tokens than");
    assert_ok(kvern_round_commit(f.s));
    assert_ok(kvern_step_begin(f.s, KVERN_PHASE_DECODE, (int64_t[ROWS]){1, 0}));
    assert_null(kvern_state_walk(f.s));
    BREAK(&f, batch->counts[0], -1, "negative count");
    BREAK(&f, batch->of_state, false, "stands alone");
    kvern_step_abandon(f.s);
    close_fixture(&f);
}

// Rows that are one page, whatever their length, and the checkpoints beside them.
static fixture open_hybrid(hybrid_world *w)
{
    hybrid_open(w, NULL, false);
    fixture f = {w->context, hybrid_state(w, 1)};
    assert_ok(kvern_state_checkpoint_budget(f.s, 1 << 20));
    for (int i = 0; i < 2; i++) {
        hybrid_feed(f.s, KVERN_PHASE_WINDOW, 3, 10, NULL);
        assert_ok(kvern_state_checkpoint(f.s, 0));
    }
    hybrid_feed(f.s, KVERN_PHASE_DECODE, 3, 1, NULL);
    assert_null(kvern_state_walk(f.s));
    return f;
}

static void close_hybrid(fixture *f, hybrid_world *w)
{
    assert_null(kvern_state_walk(f->s));
    kvern_state_destroy(f->s);
    hybrid_close(w);
}

static void broken_whole_rows_are_found(void **state)
{
    (void)state;
    hybrid_world w;
    fixture f = open_hybrid(&w);
    kvern_row *whole = &f.s->caches[0].rows[0], *latents = &f.s->caches[6].rows[0];
    assert_true(whole->table->whole && !latents->table->whole);
    BREAK(&f, whole->table->whole, false, "another kind of rows");
    BREAK(&f, latents->table->whole, true, "another kind of rows");
    BREAK(&f, whole->before, whole->table->pages[0], "outlives it");
    BREAK(&f, latents->before, latents->table->pages[0], "what only whole rows have");
    BREAK(&f, latents->spare, 1, "what only whole rows have");
    BREAK(&f, whole->table->pages[0]->references, 0, "a page of a table is held by nobody");
    BREAK(&f, whole->length, 20, "not as long as its batch says");
    assert_ok(kvern_step_begin(f.s, KVERN_PHASE_DECODE, (int64_t[]){1}));
    assert_ok(hybrid_serve(f.s, 0, sequences, (int64_t[]){1}, NULL));
    assert_null(kvern_state_walk(f.s));
    BREAK(&f, whole->before->references, 0, "what a row was is held by nobody");
    kvern_step_abandon(f.s);
    close_hybrid(&f, &w);
}

static void broken_checkpoints_are_found(void **state)
{
    (void)state;
    hybrid_world w;
    fixture f = open_hybrid(&w);
    kvern_batch *batch = &f.s->batch;
    kvern_checkpoint *upper = batch->checkpoints[0], *lower = upper->below;
    assert_true(upper->position == 20 && lower->position == 10 && !lower->below);
    BREAK(&f, upper->position, 22, "not in order");
    BREAK(&f, lower->position, 20, "not in order");
    BREAK(&f, lower->position, 0, "not in order");
    BREAK(&f, lower->below, upper, "not in order");
    BREAK(&f, upper->sets[0].length, 19, "not what it was");
    BREAK(&f, lower->sets[6].table, NULL, "not what it was");
    BREAK(&f, upper->bytes, upper->bytes + 1, "other bytes than counted");
    BREAK(&f, batch->checkpoint_bytes, 0, "other bytes than counted");
    BREAK(&f, batch->checkpoint_budget, 1, "more than they may");
    close_hybrid(&f, &w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_rows_are_found),
        cmocka_unit_test(broken_tables_are_found),
        cmocka_unit_test(broken_batches_are_found),
        cmocka_unit_test(broken_whole_rows_are_found),
        cmocka_unit_test(broken_checkpoints_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
