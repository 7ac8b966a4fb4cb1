// SPDX-License-Identifier: MIT
// Every operation of a hybrid state, with every allocation that it makes refused once: it fails
// with the status that says so, in all layers or in none, and what can be seen, pages and bytes
// included, is what it was; done again it succeeds, with the result that it would have had.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/recur_feed.h"
#include "tests/support/soundness.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

static const uint64_t sequences[3] = {41, 42, 43};
static const int64_t begin[3] = {65, 0, 9}, counts[3] = {4, 2, 3};

// Rows of a state, some of whose pages a fork shares; another state to join.
typedef struct place {
    hybrid_world w;
    kvern_state *s, *fork, *other, *made;
} place;

typedef kvern_status action(place *p);

typedef struct operation {
    const char *name;
    action *before; // succeeds; or NULL
    action *act;
    bool opens; // leaves a step or a round open, which is then abandoned
} operation;

static place *place_open(bool lane)
{
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    hybrid_open(&p->w, NULL, lane);
    p->s = hybrid_state(&p->w, 3);
    assert_ok(kvern_state_checkpoint_budget(p->s, UINT64_MAX));
    hybrid_step(p->s, KVERN_PHASE_WINDOW, sequences, begin, NULL);
    assert_ok(kvern_state_checkpoint(p->s, 2));
    hybrid_step(p->s, KVERN_PHASE_DECODE, sequences, (int64_t[]){1, 0, 1}, NULL);
    assert_ok(kvern_state_fork(p->s, (size_t[]){0}, 1, &p->fork));
    p->other = hybrid_state(&p->w, 2);
    hybrid_step(p->other, KVERN_PHASE_WINDOW, sequences, (int64_t[]){5, 6}, NULL);
    return p;
}

static void place_close(place *p)
{
    kvern_state_destroy(p->s);
    kvern_state_destroy(p->fork);
    kvern_state_destroy(p->other);
    kvern_state_destroy(p->made);
    hybrid_close(&p->w);
    free(p);
}

// ---- Operations ----

static kvern_status begin_step(place *p)
{
    return kvern_step_begin(p->s, KVERN_PHASE_WINDOW, counts);
}

static kvern_status begin_round(place *p)
{
    return kvern_round_begin(p->s, counts);
}

static kvern_status begin_step_of_round(place *p)
{
    assert_ok(begin_round(p));
    return begin_step(p);
}

static kvern_status whole_round(place *p)
{
    assert_ok(begin_round(p));
    hybrid_step(p->s, KVERN_PHASE_WINDOW, sequences, counts, NULL);
    return KVERN_OK;
}

static kvern_status serve_delta(place *p)
{
    return hybrid_serve(p->s, 0, sequences, counts, NULL);
}

static kvern_status step_of_the_donor(place *p)
{
    assert_ok(begin_step(p));
    assert_ok(hybrid_serve(p->s, 5, sequences, counts, NULL));
    return hybrid_serve(p->s, 3, sequences, counts, NULL);
}

static kvern_status read_shared(place *p)
{
    return hybrid_serve(p->s, 7, sequences, counts, NULL);
}

// Neither of two reads comes when one of them cannot.
static kvern_status borrow_rows(place *p)
{
    kvern_read *reads[2];
    kvern_status status =
        kvern_state_read_donors(p->s, (size_t[]){1, 3}, 2, (int64_t[]){1, 0, 1}, reads);
    assert_true(status ? !reads[0] && !reads[1] : reads[0] && reads[1]);
    kvern_read_release(reads[0]);
    kvern_read_release(reads[1]);
    return status;
}

static kvern_status roll_back(place *p)
{
    return kvern_round_rollback(p->s, (int64_t[]){2, 0, 3});
}

static kvern_status commit(place *p)
{
    return kvern_round_commit(p->s);
}

static kvern_status fork_rows(place *p)
{
    return kvern_state_fork(p->s, (size_t[]){2, 0, 2}, 3, &p->made);
}

static kvern_status join_other(place *p)
{
    return kvern_state_join(p->s, &p->other, 1);
}

static kvern_status add_rows(place *p)
{
    return kvern_state_add_rows(p->s, 7);
}

static kvern_status reserve(place *p)
{
    return kvern_state_reserve(p->s, 0, 300, 2);
}

static kvern_status reserve_plan(place *p)
{
    kvern_plan plan = kvern_plan_default();
    plan.tokens = 300;
    plan.round = 4;
    plan.query_vectors = 8;
    return kvern_state_reserve_plan(p->s, 0, &plan);
}

static kvern_status checkpoint(place *p)
{
    return kvern_state_checkpoint(p->s, 0);
}

static const operation operations[] = {
    {"a step begins", NULL, begin_step, true},
    {"a layer of a step", begin_step, serve_delta, true},
    {"a step of a round begins", begin_round, begin_step, true},
    {"a layer of a round", begin_step_of_round, serve_delta, true},
    {"a shared layer of a step", step_of_the_donor, read_shared, true},
    {"rows are borrowed", NULL, borrow_rows, false},
    {"a round is rolled back", whole_round, roll_back, false},
    {"a round is committed", whole_round, commit, false},
    {"a fork", NULL, fork_rows, false},
    {"a join", NULL, join_other, false},
    {"rows are added", NULL, add_rows, false},
    {"a reservation", NULL, reserve, false},
    {"a reservation of a plan", NULL, reserve_plan, false},
    {"a checkpoint", NULL, checkpoint, false},
};

// ---- Every refusal ----

static uint64_t pages_of(const place *p)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(p->w.context, &memory));
    return memory.page_bytes;
}

// What cannot be looked at while it is open is looked at when it is not.
static void close_what_is_open(place *p)
{
    kvern_step_abandon(p->s);
    if (kvern_round_open(p->s))
        assert_ok(kvern_round_rollback(p->s, (int64_t[]){0, 0, 0}));
}

static void expect_unchanged(const operation *o, const place *wanted, place *p)
{
    expect_sound_state(p->s);
    assert_null(p->made);
    assert_int_equal(kvern_state_rows(p->s), 3);
    assert_int_equal(kvern_state_checkpoints(p->s, 2, NULL, 0), 1);
    close_what_is_open(p);
    for (size_t r = 0; r < 3; r++)
        hybrid_expect_row(wanted->s, r, p->s, r, o->name);
    for (size_t r = 0; r < 2; r++)
        hybrid_expect_row(wanted->other, r, p->other, r, o->name);
    hybrid_expect_row(wanted->fork, 0, p->fork, 0, o->name);
}

// Whether allocation number `granted` was there to be refused.
static bool refuse_one(const operation *o, bool lane, int64_t granted)
{
    place *p = place_open(lane), *wanted = place_open(lane);
    if (o->before)
        assert_ok(o->before(p));
    (void)kvern_context_trim(p->w.context);
    const uint64_t pages = pages_of(p), held = p->w.books.held_bytes;
    ledger_refuse(&p->w.books, granted);
    const kvern_status status = o->act(p);
    const bool refused = ledger_relent(&p->w.books);
    if (status) {
        assert_true(refused);
        assert_status(KVERN_ERR_MEMORY, status);
        assert_int_equal(pages_of(p), pages);
        assert_int_equal(p->w.books.held_bytes, held);
        if (o->before == whole_round) // the round is open as it was
            assert_ok(o->act(p));
        else
            expect_unchanged(o, wanted, p);
    }
    if (!status || o->before == whole_round) { // what was refused did not matter
        close_what_is_open(p);
        expect_sound_state(p->s);
    }
    place_close(p);
    place_close(wanted);
    return refused;
}

static void refused_operations_change_nothing(void **state)
{
    const operation *o = *state;
    int64_t granted = 0;
    while (refuse_one(o, false, granted))
        granted++;
    print_message("%s: %d allocations\n", o->name, (int)granted);
    if (o->act == roll_back || o->act == commit || o->act == begin_round)
        return; // may take none
    assert_true(granted > 0);
}

// Rolling back and going back take no memory in recurrent layers: with none left they succeed.
static void going_back_needs_no_memory(void **state)
{
    (void)state;
    place *p = place_open(false), *wanted = place_open(false);
    assert_ok(whole_round(p));
    ledger_refuse_rest(&p->w.books, 0);
    assert_ok(roll_back(p));
    (void)ledger_relent(&p->w.books);
    hybrid_step(wanted->s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){2, 0, 3}, NULL);
    for (size_t r = 0; r < 3; r++)
        hybrid_expect_row(wanted->s, r, p->s, r, "a rollback without memory");
    place_close(p);
    place_close(wanted);
}

// A decode loop with rounds takes nothing per token.
static void nothing_is_taken_per_token(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, false);
    kvern_state *s = hybrid_state(&w, 3);
    const int64_t one[3] = {1, 1, 1};
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){100, 90, 80}, NULL);
    for (size_t r = 0; r < 3; r++)
        assert_ok(kvern_state_reserve(s, r, 400, HYBRID_HEADS));
    const uint64_t taken = w.books.allocations;
    for (int i = 0; i < 40; i++) {
        hybrid_step(s, KVERN_PHASE_DECODE, sequences, one, NULL);
        assert_ok(kvern_round_begin(s, (int64_t[]){2, 2, 2}));
        hybrid_step(s, KVERN_PHASE_DECODE, sequences, one, NULL);
        hybrid_step(s, KVERN_PHASE_DECODE, sequences, one, NULL);
        assert_ok(kvern_round_rollback(s, (int64_t[]){1, 0, 2}));
    }
    assert_int_equal(w.books.allocations, taken);
    kvern_state_destroy(s);
    hybrid_close(&w);
}

// Without a reservation either, but for what grows: recurrent layers keep the page of their next
// step.
static void recurrent_layers_keep_the_page_of_a_step(void **state)
{
    (void)state;
    hybrid_world w;
    kvern_layer layers[HYBRID_LAYERS];
    kvern_composition *composition;
    kvern_state *s;
    hybrid_open(&w, NULL, false);
    hybrid_plan(layers);
    assert_ok(kvern_composition_create(w.context, layers, 1, &composition));
    assert_ok(kvern_state_create(composition, 2, &s));
    uint64_t taken = 0;
    for (int i = 0; i < 40; i++) {
        if (i == 3)
            taken = w.books.allocations;
        hybrid_step(s, KVERN_PHASE_DECODE, sequences, (int64_t[]){1, 1}, NULL);
    }
    assert_int_equal(w.books.allocations, taken);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    hybrid_close(&w);
}

int main(void)
{
    struct CMUnitTest tests[sizeof operations / sizeof operations[0] + 3];
    size_t count = 0;
    for (; count < sizeof operations / sizeof operations[0]; count++)
        tests[count] =
            (struct CMUnitTest){operations[count].name, refused_operations_change_nothing, NULL,
                                NULL, (void *)&operations[count]};
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(going_back_needs_no_memory);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(nothing_is_taken_per_token);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(recurrent_layers_keep_the_page_of_a_step);
    return _cmocka_run_group_tests("hybrid failures", tests, count, NULL, NULL);
}
