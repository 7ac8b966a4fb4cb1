// SPDX-License-Identifier: MIT
// Random programs over hybrid states (hybrid_state.h): rows join, leave, change places, are forked,
// extracted, emptied and reset, grow in every phase, and pass through rounds and abandoned steps.
// Every row is compared bit for bit with its solo run: a state of one row in another context, with
// other kernels, that was given the row's own tokens and nothing else. Memory is refused now and
// then, and the call made again.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/soundness.h"

#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STATES 3
#define MOST_ROWS 5
#define MOST_LENGTH 160
#define MOST_TOKENS 24 // of a row in a step

// What a row was given since it was empty.
typedef struct item {
    uint64_t sequence;
    int64_t count; // 0: all of it was trimmed
} item;

// A checkpoint: how many items made the row what it was there.
typedef struct mark {
    int64_t position;
    size_t items;
} mark;

#define MOST_MARKS 64

typedef struct row {
    item *items;
    size_t count, capacity;
    mark marks[MOST_MARKS];
    size_t mark_count;
    kvern_state *solo;
} row;

typedef struct batch {
    kvern_state *state; // NULL: the place is free
    size_t count;
    row *rows[MOST_ROWS];
} batch;

typedef struct world {
    test_random random;
    hybrid_world own, solo;
    uint64_t next_sequence;
    batch batches[MOST_STATES];
} world;

static uint64_t below(world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

static void arm(world *w)
{
    if (below(w, 3) == 0)
        ledger_refuse(&w->own.books, (int64_t)below(w, 8));
}

// A call that may be refused memory, and then succeeds when it is made again: in between nothing
// has changed, or the results will tell.
#define assert_ok_again(w, call)                                                                   \
    do {                                                                                           \
        arm(w);                                                                                    \
        const kvern_status first_ = (call);                                                        \
        const bool refused_ = ledger_relent(&(w)->own.books);                                      \
        if (first_) {                                                                              \
            assert_true(refused_);                                                                 \
            assert_status(KVERN_ERR_MEMORY, first_);                                               \
            assert_ok(call);                                                                       \
        }                                                                                          \
    } while (0)

// ---- Rows and their solo runs ----

static void note(row *r, uint64_t sequence, int64_t count)
{
    if (r->count == r->capacity) {
        r->capacity = 2 * r->capacity + 8;
        r->items = realloc(r->items, r->capacity * sizeof r->items[0]);
        assert_non_null(r->items);
    }
    r->items[r->count++] = (item){sequence, count};
}

static void act_alone(kvern_state *solo, item it, float *out)
{
    if (it.count)
        hybrid_feed(solo, KVERN_PHASE_WINDOW, it.sequence, it.count, out);
    else
        assert_ok(kvern_state_trim(solo, 0, kvern_state_length(solo, 0)));
}

static row *new_row(world *w)
{
    row *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->solo = hybrid_state(&w->solo, 1);
    return r;
}

static void drop_row(row *r)
{
    kvern_state_destroy(r->solo);
    free(r->items);
    free(r);
}

static row *repeat_row(world *w, const row *from)
{
    row *r = new_row(w);
    for (size_t i = 0; i < from->count; i++) {
        note(r, from->items[i].sequence, from->items[i].count);
        act_alone(r->solo, from->items[i], NULL);
    }
    return r;
}

// ---- The world ----

static batch *any_batch(world *w)
{
    batch *b;
    do
        b = &w->batches[below(w, MOST_STATES)];
    while (!b->state);
    return b;
}

static batch *free_place(world *w)
{
    for (size_t i = 0; i < MOST_STATES; i++) {
        if (!w->batches[i].state)
            return &w->batches[i];
    }
    return NULL;
}

static void drop_batch(batch *b)
{
    for (size_t r = 0; r < b->count; r++)
        drop_row(b->rows[r]);
    kvern_state_destroy(b->state);
    memset(b, 0, sizeof *b);
}

static void fill_batch(world *w, batch *b)
{
    b->count = 1 + below(w, 3);
    for (size_t r = 0; r < b->count; r++)
        b->rows[r] = new_row(w);
    b->state = hybrid_state(&w->own, b->count);
    if (below(w, 2)) // enough for all, or for some
        assert_ok(kvern_state_checkpoint_budget(b->state, UINT64_MAX));
    else
        assert_ok(kvern_state_checkpoint_budget(b->state, 60000 + below(w, 200000)));
}

static void world_open(world *w, uint64_t seed)
{
    const kernel_variants variants = kernel_variants_here();
    memset(w, 0, sizeof *w);
    w->random = test_random_seed(seed);
    w->next_sequence = 1;
    kvern_context_options options = kvern_context_options_default();
    const bool lane = below(w, 4) == 0;
    options.executor = executor_shuffled(1 + below(w, 4));
    options.cpu_features = variants.features[below(w, variants.count)];
    hybrid_open(&w->own, &options, lane);
    options.cpu_features = variants.features[below(w, variants.count)];
    hybrid_open(&w->solo, &options, lane);
    fill_batch(w, &w->batches[0]);
}

static void world_close(world *w)
{
    for (size_t i = 0; i < MOST_STATES; i++)
        drop_batch(&w->batches[i]);
    hybrid_close(&w->own);
    hybrid_close(&w->solo);
}

// ---- Steps ----

// Tokens of one step or several, and what they gave: out[r] is token after token, and for each of
// them layer after layer.
typedef struct serving {
    uint64_t sequences[MOST_ROWS];
    int64_t done[MOST_ROWS];
    float *out[MOST_ROWS];
    size_t width; // floats of a token
} serving;

static void serving_open(world *w, const batch *b, serving *s)
{
    memset(s, 0, sizeof *s);
    s->width = hybrid_outputs(b->state, 1);
    for (size_t r = 0; r < b->count; r++) {
        s->sequences[r] = w->next_sequence++;
        s->out[r] = malloc((MOST_TOKENS * s->width + 1) * sizeof(float));
        assert_non_null(s->out[r]);
    }
}

static void serving_close(serving *s)
{
    for (size_t r = 0; r < MOST_ROWS; r++)
        free(s->out[r]);
}

// Results of one layer, packed, to where each token has its own.
static void spread(const float *from, size_t floats, size_t at, size_t width, size_t tokens,
                   float *to)
{
    for (size_t t = 0; t < tokens; t++)
        memcpy(to + t * width + at, from + t * floats, floats * sizeof *to);
}

static void take_layer(const batch *b, const int64_t *counts, const float *out, size_t layer,
                       serving *s)
{
    const kvern_composition *composition = kvern_state_composition(b->state);
    size_t at = 0, floats = 0, token = 0;
    for (size_t l = 0; l <= layer; l++) {
        const kvern_layer *plan = kvern_composition_layer(composition, l);
        at += floats;
        floats =
            (plan->kind == KVERN_LAYER_RECURRENT ? plan->value_heads : HYBRID_HEADS) * plan->v_dim;
    }
    for (size_t r = 0; r < b->count; r++) {
        spread(out + token * floats, floats, at, s->width, (size_t)counts[r],
               s->out[r] + (size_t)s->done[r] * s->width);
        token += (size_t)counts[r];
    }
}

static void run_step(world *w, batch *b, const int64_t *counts, serving *s)
{
    int64_t total = 0;
    bool decode = true;
    for (size_t r = 0; r < b->count; r++) {
        total += counts[r];
        decode = decode && counts[r] <= 1;
    }
    const kvern_phase phase =
        decode ? (kvern_phase)below(w, 3) : (kvern_phase)(KVERN_PHASE_WINDOW + below(w, 2));
    float *out = malloc((hybrid_outputs(b->state, total) + 1) * sizeof *out);
    assert_non_null(out);
    for (int abandoned = below(w, 6) == 0; abandoned >= 0; abandoned--) {
        assert_ok_again(w, kvern_step_begin(b->state, phase, counts));
        const size_t first = below(w, w->own.layers);
        const size_t layers = abandoned ? below(w, w->own.layers + 1) : w->own.layers;
        for (size_t l = 0; l < layers; l++) {
            const size_t layer = hybrid_order(b->state, first, l);
            float *end = out;
            assert_ok_again(w,
                            hybrid_serve(b->state, layer, s->sequences, counts, (end = out, &end)));
            take_layer(b, counts, out, layer, s);
        }
        if (abandoned)
            kvern_step_abandon(b->state);
        else
            assert_ok_again(w, kvern_step_end(b->state));
    }
    for (size_t r = 0; r < b->count; r++)
        s->done[r] += counts[r];
    free(out);
}

// The solo runs do the same: the first kept[r] tokens, in one append.
static void follow(batch *b, const int64_t *kept, const serving *s)
{
    for (size_t r = 0; r < b->count; r++) {
        row *own = b->rows[r];
        if (kept[r] == 0)
            continue;
        serving solo = {.width = s->width};
        const batch alone = {.state = own->solo, .count = 1};
        float *out = malloc((hybrid_outputs(own->solo, kept[r]) + 1) * sizeof *out), *end = out;
        solo.out[0] = malloc((MOST_TOKENS * s->width + 1) * sizeof(float));
        assert_true(out && solo.out[0]);
        note(own, s->sequences[r], kept[r]);
        act_alone(own->solo, own->items[own->count - 1], out);
        for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(own->solo)); l++) {
            const kvern_layer *plan =
                kvern_composition_layer(kvern_state_composition(own->solo), l);
            take_layer(&alone, &kept[r], end, l, &solo);
            end += (size_t)kept[r] * plan->v_dim *
                   (plan->kind == KVERN_LAYER_RECURRENT ? plan->value_heads : HYBRID_HEADS);
        }
        check_same_floats(solo.out[0], s->out[r], (size_t)kept[r] * s->width, "a row of a batch");
        free(solo.out[0]);
        free(out);
    }
}

static void step(world *w, batch *b)
{
    const int64_t most = below(w, 3) ? 1 : MOST_TOKENS;
    int64_t counts[MOST_ROWS] = {0};
    serving s;
    for (size_t r = 0; r < b->count; r++)
        if (kvern_state_length(b->state, r) < MOST_LENGTH)
            counts[r] = (int64_t)below(w, (uint64_t)most + 1);
    serving_open(w, b, &s);
    run_step(w, b, counts, &s);
    follow(b, counts, &s);
    serving_close(&s);
}

static void speculate(world *w, batch *b)
{
    int64_t counts[MOST_ROWS] = {0}, left[MOST_ROWS], part[MOST_ROWS], keep[MOST_ROWS];
    serving s;
    for (size_t r = 0; r < b->count; r++) {
        const int64_t limit = kvern_state_round_limit(b->state, r);
        if (kvern_state_length(b->state, r) < MOST_LENGTH)
            counts[r] =
                (int64_t)below(w, (uint64_t)(limit < HYBRID_SLACK ? limit : HYBRID_SLACK) + 1);
    }
    serving_open(w, b, &s);
    assert_ok_again(w, kvern_round_begin(b->state, counts));
    memcpy(left, counts, sizeof left);
    for (uint64_t steps = 1 + below(w, 3); steps > 0; steps--) {
        for (size_t r = 0; r < b->count; r++) {
            part[r] = (int64_t)below(w, (uint64_t)left[r] + 1);
            left[r] -= part[r];
        }
        run_step(w, b, part, &s);
        expect_sound_state(b->state);
    }
    const bool commit = below(w, 3) == 0;
    for (size_t r = 0; r < b->count; r++)
        keep[r] = commit ? s.done[r] : (int64_t)below(w, (uint64_t)s.done[r] + 1);
    if (commit)
        assert_ok_again(w, kvern_round_commit(b->state));
    else
        assert_ok_again(w, kvern_round_rollback(b->state, keep));
    follow(b, keep, &s);
    serving_close(&s);
}

// ---- Rows that come and go ----

static void join(world *w, batch *b)
{
    batch *other = free_place(w);
    if (!other || b->count >= MOST_ROWS)
        return;
    fill_batch(w, other);
    if (b->count + other->count <= MOST_ROWS) {
        step(w, other);
        assert_ok_again(w, kvern_state_join(b->state, &other->state, 1));
        memcpy(b->rows + b->count, other->rows, other->count * sizeof other->rows[0]);
        b->count += other->count;
        other->count = 0;
    }
    if (other->count == 0)
        drop_batch(other);
}

static void shuffle(world *w, size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t j = below(w, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

static void keep_some(world *w, batch *b)
{
    size_t order[MOST_ROWS];
    row *old[MOST_ROWS];
    shuffle(w, order, b->count);
    const size_t count = b->count ? 1 + below(w, b->count) : 0;
    assert_ok_again(w, kvern_state_keep(b->state, order, count));
    memcpy(old, b->rows, sizeof old);
    for (size_t i = 0; i < b->count; i++) {
        if (i < count)
            b->rows[i] = old[order[i]];
        else
            drop_row(old[order[i]]);
    }
    b->count = count;
}

static void fork_some(world *w, batch *b)
{
    batch *fork = free_place(w);
    size_t rows[MOST_ROWS];
    if (!fork || b->count == 0)
        return;
    fork->count = 1 + below(w, MOST_ROWS);
    for (size_t i = 0; i < fork->count; i++)
        rows[i] = below(w, b->count);
    assert_ok_again(w, kvern_state_fork(b->state, rows, fork->count, &fork->state));
    assert_ok(kvern_state_checkpoint_budget(fork->state, 60000 + below(w, 200000)));
    for (size_t i = 0; i < fork->count; i++)
        fork->rows[i] = repeat_row(w, b->rows[rows[i]]);
}

static void add_rows(world *w, batch *b)
{
    if (b->count == MOST_ROWS)
        return;
    assert_ok_again(w, kvern_state_add_rows(b->state, 1));
    b->rows[b->count++] = new_row(w);
}

static void trim(world *w, batch *b, size_t r)
{
    const int64_t length = kvern_state_length(b->state, r);
    assert_int_equal(kvern_state_trimmable(b->state, r), 0);
    if (length > 1)
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_state_trim(b->state, r, 1 + (int64_t)below(w, (uint64_t)length - 1)));
    if (below(w, 3))
        return;
    assert_ok(kvern_state_trim(b->state, r, length));
    note(b->rows[r], 0, 0);
    b->rows[r]->mark_count = 0;
    act_alone(b->rows[r]->solo, (item){0, 0}, NULL);
}

static void reserve(world *w, batch *b, size_t r)
{
    if (below(w, 2)) {
        const int64_t tokens = (int64_t)below(w, MOST_LENGTH);
        assert_ok_again(w, kvern_state_reserve(b->state, r, tokens, HYBRID_HEADS));
        return;
    }
    kvern_plan plan = kvern_plan_default();
    plan.tokens = (int64_t)below(w, MOST_LENGTH);
    plan.round = (int64_t)below(w, 5);
    plan.query_vectors = HYBRID_HEADS;
    assert_ok_again(w, kvern_state_reserve_plan(b->state, r, &plan));
}

static void reset(world *w, batch *b, size_t r)
{
    assert_ok(kvern_state_reset(b->state, r));
    drop_row(b->rows[r]);
    b->rows[r] = new_row(w);
}

// The state may have dropped some of the row's checkpoints, and has no others.
static void look_at_checkpoints(const batch *b, size_t r)
{
    const row *own = b->rows[r];
    int64_t positions[MOST_MARKS];
    const size_t count = kvern_state_checkpoints(b->state, r, positions, MOST_MARKS);
    assert_true(count <= own->mark_count);
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        for (size_t m = 0; m < own->mark_count; m++)
            found = found || own->marks[m].position == positions[i];
        assert_true(found);
    }
}

static void make_checkpoint(world *w, batch *b, size_t r)
{
    row *own = b->rows[r];
    const int64_t position = kvern_state_length(b->state, r);
    if (own->mark_count == MOST_MARKS)
        return;
    arm(w);
    kvern_status status = kvern_state_checkpoint(b->state, r);
    if (ledger_relent(&w->own.books) && status == KVERN_ERR_MEMORY)
        status = kvern_state_checkpoint(b->state, r);
    if (status == KVERN_ERR_BUDGET) // it is too large alone
        return;
    assert_ok(status);
    if (position == 0)
        return;
    assert_int_equal(kvern_state_checkpoint_below(b->state, r, position), position);
    own->marks[own->mark_count++] = (mark){position, own->count};
}

// Back to a checkpoint that there still is: the solo run is done again up to there.
static void go_back(world *w, batch *b, size_t r)
{
    row *own = b->rows[r];
    const int64_t length = kvern_state_length(b->state, r);
    const int64_t to =
        kvern_state_checkpoint_below(b->state, r, (int64_t)below(w, (uint64_t)length + 1));
    size_t m = 0;
    while (m < own->mark_count && own->marks[m].position != to)
        m++;
    if (to == 0 || to == length || m == own->mark_count)
        return;
    arm(w); // takes no memory
    assert_ok(kvern_state_return(b->state, r, to));
    (void)ledger_relent(&w->own.books);
    own->count = own->marks[m].items;
    row *again = repeat_row(w, own);
    memcpy(again->marks, own->marks, sizeof again->marks);
    again->mark_count = m + 1;
    drop_row(own);
    b->rows[r] = again;
}

static void work_on_a_row(world *w, batch *b)
{
    if (b->count == 0)
        return;
    const size_t r = below(w, b->count);
    const uint64_t what = below(w, 12);
    if (what == 0)
        reset(w, b, r);
    else if (what < 3)
        reserve(w, b, r);
    else if (what < 4)
        trim(w, b, r);
    else if (what < 9)
        make_checkpoint(w, b, r);
    else
        go_back(w, b, r);
    look_at_checkpoints(b, r);
}

static void operate(world *w)
{
    batch *b = any_batch(w);
    const uint64_t what = below(w, 16);
    if (what == 0)
        join(w, b);
    else if (what == 1)
        keep_some(w, b);
    else if (what == 2)
        fork_some(w, b);
    else if (what == 3)
        add_rows(w, b);
    else if (what < 7)
        work_on_a_row(w, b);
    else if (what < 11)
        speculate(w, b);
    else
        step(w, b);
    for (size_t s = 0; s < MOST_STATES; s++)
        expect_sound_state(w->batches[s].state);
    if (b->state && b->count) {
        const size_t r = below(w, b->count);
        hybrid_expect_row(b->rows[r]->solo, 0, b->state, r, "a row and its solo run");
    }
    if (b->state && (b->count == 0 || below(w, 20) == 0)) {
        drop_batch(b);
        if (!w->batches[0].state)
            fill_batch(w, &w->batches[0]);
    }
}

static void every_row_equals_its_solo_run(void **state)
{
    (void)state;
    const int programs = check_is_long() ? 2000 : 40;
    for (int i = 0; i < programs; i++) {
        world *w = malloc(sizeof *w);
        assert_non_null(w);
        world_open(w, check_seed() + (uint64_t)i * 1000003);
        for (int j = 0; j < 60; j++)
            operate(w);
        for (size_t s = 0; s < MOST_STATES; s++) {
            for (size_t r = 0; r < w->batches[s].count; r++)
                hybrid_expect_row(w->batches[s].rows[r]->solo, 0, w->batches[s].state, r,
                                  "the end");
        }
        world_close(w);
        free(w);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_equals_its_solo_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
