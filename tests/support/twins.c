// SPDX-License-Identifier: MIT
#include "tests/support/twins.h"

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/mixed_state.h"
#include "tests/support/padded_tensors.h"
#include "tests/support/random.h"
#include "tests/support/slot_store.h"
#include "tests/support/soundness.h"

#include <kvern/experimental/padded.h>
#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STATES 3
#define MOST_CACHES 3
#define MOST_READS 4
#define MOST_ROWS 5
#define MOST_LENGTH 230
#define HEADS MIXED_QUERY_HEADS

// The same thing in both worlds. NULL: the place is free.
typedef struct twin_state {
    kvern_state *got, *wanted;
    uint64_t sequences[MOST_ROWS]; // what the rows' next tokens are made from
} twin_state;

typedef struct twin_cache {
    kvern_cache *got, *wanted;
    uint64_t sequences[MOST_ROWS];
} twin_cache;

typedef struct twin_read {
    kvern_read *got, *wanted;
    feed queries;
} twin_read;

struct twins {
    test_random random;
    twin_side *poor, *rich;
    bool alone;                // nobody else uses the poor side
    uint64_t held, page_bytes; // before the present call
    bool trimmed;              // nothing was idle then
    uint64_t next_sequence;
    uint64_t calls, refused;
    twin_state states[MOST_STATES];
    twin_cache caches[MOST_CACHES];
    twin_read reads[MOST_READS];
};

static uint64_t below(twins *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

// ---- Calls in both worlds ----

static kvern_memory memory_of(const twins *w)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w->poor->context, &memory));
    if (w->alone)
        assert_int_equal(memory.held_bytes, w->poor->books.held_bytes);
    assert_true(memory.held_bytes <= memory.budget_bytes);
    return memory;
}

static void begin_call(twins *w)
{
    w->trimmed = below(w, 2) == 0;
    if (w->trimmed)
        (void)kvern_context_trim(w->poor->context);
    const kvern_memory memory = memory_of(w);
    w->held = memory.held_bytes;
    w->page_bytes = memory.page_bytes;
    w->calls++;
    if (w->alone && below(w, 3) == 0)
        ledger_refuse_often(&w->poor->books, test_random_next(&w->random), 1 + below(w, 9));
}

static bool is_in_round(const twin_state *s)
{
    return kvern_round_open(s->wanted);
}

// Refused calls leave no pages behind. Fewer there may be: what a window has passed becomes room
// when a call is prepared, and goes earlier then. And where memory is short, a page that is
// converted may stay in the larger place of its old form; so may one that a cache has adopted.
static bool has_no_more_bytes(const kvern_cache *wanted, const kvern_cache *got)
{
    return kvern_cache_layer(wanted)->start != KVERN_NO_START ||
           kvern_cache_bytes(got) <= kvern_cache_bytes(wanted);
}

static bool has_no_more_bytes_in_layers(const twin_state *s)
{
    for (size_t l = 0; l < MIXED_LAYERS; l++) {
        if (!has_no_more_bytes(kvern_state_cache(s->wanted, l), kvern_state_cache(s->got, l)))
            return false;
    }
    return true;
}

// A row that shares a table needs a small one of its own to leave it. When it had no memory for
// that, the next call on the row tries again: here it must, unless the budget is full.
static bool is_budget_full(const twins *w)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w->poor->context, &memory));
    return memory.budget_bytes - memory.held_bytes < 1024;
}

static void expect_no_more_bytes(const twins *w, const twin_state *s)
{
    if (has_no_more_bytes_in_layers(s))
        return;
    for (size_t r = 0; r < kvern_state_rows(s->got); r++) {
        const kvern_status status = kvern_state_trim(s->got, r, 0);
        if (status == KVERN_ERR_BUSY) // a step or a round is open
            return;
        assert_ok(status);
    }
    assert_true(has_no_more_bytes_in_layers(s) || is_budget_full(w));
}

static void expect_same_state(const twins *w, const twin_state *s)
{
    const size_t rows = kvern_state_rows(s->wanted);
    assert_int_equal(kvern_state_rows(s->got), rows);
    assert_int_equal(is_in_round(s), kvern_round_open(s->got));
    for (size_t r = 0; r < rows; r++) {
        assert_int_equal(kvern_state_length(s->wanted, r), kvern_state_length(s->got, r));
        assert_int_equal(kvern_step_position(s->wanted, r), kvern_step_position(s->got, r));
        assert_int_equal(kvern_step_count(s->wanted, r), kvern_step_count(s->got, r));
        assert_int_equal(kvern_round_appended(s->wanted, r), kvern_round_appended(s->got, r));
        if (!is_in_round(s)) // exports wait for its end
            mixed_expect_row(s->wanted, r, s->got, r, "a row after a call");
    }
    expect_no_more_bytes(w, s);
}

static void expect_same_cache(const twin_cache *c)
{
    assert_int_equal(kvern_cache_rows(c->wanted), kvern_cache_rows(c->got));
    for (size_t r = 0; r < kvern_cache_rows(c->wanted); r++)
        mixed_expect_cache_row(c->wanted, r, c->got, r, "a row of a cache after a call");
}

static void expect_same(const twins *w)
{
    for (size_t i = 0; i < MOST_STATES; i++) {
        if (w->states[i].got)
            expect_same_state(w, &w->states[i]);
    }
    for (size_t i = 0; i < MOST_CACHES; i++) {
        if (w->caches[i].got)
            expect_same_cache(&w->caches[i]);
    }
}

// Looks at what a call has left. Whether it was refused memory.
static bool end_call(twins *w, kvern_status got)
{
    const bool refused = w->alone && ledger_relent(&w->poor->books);
    const kvern_memory memory = memory_of(w);
    if (!got)
        return false;
    assert_true(kvern_error_detail()[0]);
    if (w->alone) {
        assert_true(memory.held_bytes <= w->held); // what was idle may have been given up
        assert_true(memory.held_bytes == w->held || !w->trimmed);
        assert_int_equal(memory.page_bytes, w->page_bytes);
    }
    if (got != KVERN_ERR_MEMORY && got != KVERN_ERR_BUDGET)
        return false;
    assert_true(refused || got == KVERN_ERR_BUDGET);
    w->refused++;
    expect_same(w);
    return true;
}

// Makes a call here, and, unless it was refused memory, in the other world, which answers the same.
// `done`: it succeeded.
#define ON_BOTH(w, done, call_here, call_there)                                                    \
    do {                                                                                           \
        begin_call(w);                                                                             \
        const kvern_status here_ = (call_here);                                                    \
        if (end_call(w, here_))                                                                    \
            (done) = false;                                                                        \
        else {                                                                                     \
            assert_status(here_, (call_there));                                                    \
            (done) = here_ == KVERN_OK;                                                            \
        }                                                                                          \
    } while (0)

// ---- The world ----

void twin_side_open(twin_side *s, const kvern_context_options *options)
{
    kvern_context_options own = *options;
    kvern_layer layers[MIXED_LAYERS];
    mixed_plan(layers);
    ledger_init(&s->books);
    own.allocator = ledger_allocator(&s->books);
    assert_ok(kvern_context_create(&own, &s->context));
    assert_ok(kvern_composition_create(s->context, layers, MIXED_LAYERS, &s->composition));
}

void twin_side_close(twin_side *s)
{
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    ledger_finish(&s->books);
}

twins *twins_create(uint64_t seed, twin_side *poor, twin_side *rich, bool alone)
{
    twins *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = test_random_seed(seed);
    w->next_sequence = 1;
    w->poor = poor;
    w->rich = rich;
    w->alone = alone;
    return w;
}

static void drop_state(twin_state *s)
{
    kvern_state_destroy(s->got);
    kvern_state_destroy(s->wanted);
    memset(s, 0, sizeof *s);
}

static void drop_cache(twin_cache *c)
{
    kvern_cache_destroy(c->got);
    kvern_cache_destroy(c->wanted);
    memset(c, 0, sizeof *c);
}

static void drop_read(twin_read *r)
{
    kvern_read_release(r->got);
    kvern_read_release(r->wanted);
    feed_destroy(&r->queries);
    memset(r, 0, sizeof *r);
}

void twins_destroy(twins *w)
{
    for (size_t i = 0; i < MOST_READS; i++)
        drop_read(&w->reads[i]);
    for (size_t i = 0; i < MOST_STATES; i++)
        drop_state(&w->states[i]);
    for (size_t i = 0; i < MOST_CACHES; i++)
        drop_cache(&w->caches[i]);
    free(w);
}

// A free place; now and then another state goes for it. NULL: there is none.
static twin_state *free_state(twins *w, const twin_state *stays)
{
    twin_state *s = &w->states[below(w, MOST_STATES)];
    if (s->got && s != stays && below(w, 6) == 0)
        drop_state(s);
    return s->got ? NULL : s;
}

static twin_cache *free_cache(twins *w, const twin_cache *stays)
{
    twin_cache *c = &w->caches[below(w, MOST_CACHES)];
    if (c->got && c != stays && below(w, 3) == 0)
        drop_cache(c);
    return c->got ? NULL : c;
}

static void new_sequences(twins *w, uint64_t *sequences, size_t from)
{
    for (size_t r = from; r < MOST_ROWS; r++)
        sequences[r] = w->next_sequence++;
}

// ---- Reads ----

static void attend(twins *w, twin_read *r)
{
    float *out = malloc((r->queries.out_count + 1) * sizeof *out);
    kvern_queries here = r->queries.queries;
    bool done;
    assert_non_null(out);
    here.out = out;
    ON_BOTH(w, done, kvern_read_attend(r->got, &here),
            kvern_read_attend(r->wanted, &r->queries.queries));
    if (done)
        check_same_floats(r->queries.out, out, r->queries.out_count, "an attend");
    free(out);
}

// Takes the feed over. Reads are attended at once or later, and some stay open.
static void take_read(twins *w, kvern_read *got, kvern_read *wanted, feed *f)
{
    twin_read read = {got, wanted, *f};
    if (!got) {
        feed_destroy(f);
        return;
    }
    if (below(w, 3))
        attend(w, &read);
    if (below(w, 5)) {
        drop_read(&read);
    } else {
        twin_read *place = &w->reads[below(w, MOST_READS)];
        drop_read(place);
        *place = read;
    }
}

static void use_a_read(twins *w)
{
    twin_read *r = &w->reads[below(w, MOST_READS)];
    if (r->got)
        attend(w, r);
    if (below(w, 2))
        drop_read(r);
}

static void read_donor(twins *w, const kvern_cache *got, const kvern_cache *wanted,
                       const uint64_t *sequences)
{
    int64_t counts[MOST_ROWS] = {0};
    kvern_read *here = NULL, *there = NULL;
    bool done;
    for (size_t r = 0; r < kvern_cache_rows(wanted); r++)
        counts[r] = (int64_t)below(w, 1 + (kvern_cache_length(wanted, r) > 0) + (below(w, 9) == 0));
    ON_BOTH(w, done, kvern_cache_read_donor(got, counts, &here),
            kvern_cache_read_donor(wanted, counts, &there));
    assert_int_equal(done, here != NULL);
    feed f = feed_create(wanted, sequences, counts, HEADS);
    take_read(w, here, there, &f);
}

// ---- Steps ----

static void choose_counts(twins *w, const twin_state *s, kvern_phase phase, int64_t *counts)
{
    const uint64_t most = phase == KVERN_PHASE_DECODE ? 2 : below(w, 3) ? 12 : 90;
    for (size_t r = 0; r < kvern_state_rows(s->wanted); r++) {
        counts[r] = (int64_t)below(w, most);
        if (kvern_state_length(s->wanted, r) + counts[r] > MOST_LENGTH)
            counts[r] = 0;
    }
}

static void begin_step(twins *w, twin_state *s)
{
    const kvern_phase phase = (kvern_phase)below(w, 3);
    int64_t counts[MOST_ROWS] = {0};
    bool done;
    choose_counts(w, s, phase, counts);
    ON_BOTH(w, done, kvern_step_begin(s->got, phase, counts),
            kvern_step_begin(s->wanted, phase, counts));
    (void)done;
}

static void append_layer(twins *w, twin_state *s, size_t layer)
{
    int64_t counts[MOST_ROWS] = {0};
    kvern_read *got = NULL, *wanted = NULL;
    const bool reads = below(w, 3);
    bool done;
    for (size_t r = 0; r < kvern_state_rows(s->wanted); r++)
        counts[r] = kvern_step_count(s->wanted, r) > 0 ? kvern_step_count(s->wanted, r) : 0;
    feed f = feed_create(kvern_state_cache(s->wanted, layer), s->sequences, counts, HEADS);
    ON_BOTH(w, done, feed_step_append(s->got, layer, &f, reads ? &got : NULL),
            feed_step_append(s->wanted, layer, &f, reads ? &wanted : NULL));
    assert_int_equal(got != NULL, done && reads);
    take_read(w, got, wanted, &f);
}

// A caller's kernel stores the token here; there it is handed over after all. For dense layers.
static void fill_slot(twins *w, twin_state *s, size_t layer, size_t row, const float *k,
                      const float *v)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(s->wanted, layer));
    kvern_slot slot = {.size = sizeof slot}, other = slot;
    bool done;
    ON_BOTH(w, done, kvern_step_slot(s->got, layer, row, &slot),
            kvern_step_slot(s->wanted, layer, row, &other));
    if (!done)
        return;
    assert_ok(kvern_step_write(s->wanted, layer, row, KVERN_F32, k, v));
    slot_store(&slot.k, plan->kv_heads, plan->k_dim, k);
    slot_store(&slot.v, plan->kv_heads, plan->v_dim, v);
}

static void write_row(twins *w, twin_state *s, size_t layer, size_t row)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(s->wanted, layer));
    float k[256], v[256];
    bool done;
    feed_values(s->sequences[row], kvern_state_length(s->wanted, row), FEED_K,
                plan->kv_heads * plan->k_dim, k);
    feed_values(s->sequences[row], kvern_state_length(s->wanted, row), FEED_V,
                plan->kv_heads * plan->v_dim, v);
    if (plan->k_codec.kind <= KVERN_CODEC_F16 && plan->v_codec.kind <= KVERN_CODEC_F16 &&
        below(w, 2)) {
        fill_slot(w, s, layer, row, k, v);
        return;
    }
    ON_BOTH(w, done, kvern_step_write(s->got, layer, row, KVERN_F32, k, v),
            kvern_step_write(s->wanted, layer, row, KVERN_F32, k, v));
    (void)done;
}

static void write_layer(twins *w, twin_state *s, size_t layer)
{
    int64_t counts[MOST_ROWS] = {0};
    kvern_read *got = NULL, *wanted = NULL;
    const size_t rows = kvern_state_rows(s->wanted);
    bool done;
    for (size_t r = 0; r < rows; r++) {
        if (kvern_step_count(s->wanted, r) > 0 && below(w, 8))
            write_row(w, s, layer, r);
        counts[r] = kvern_step_count(s->wanted, r) > 0;
    }
    if (below(w, 4) == 0)
        read_donor(w, kvern_state_cache(s->got, layer), kvern_state_cache(s->wanted, layer),
                   s->sequences);
    feed f = feed_create(kvern_state_cache(s->wanted, layer), s->sequences, counts, HEADS);
    ON_BOTH(w, done, kvern_step_slots_done(s->got, layer, &got),
            kvern_step_slots_done(s->wanted, layer, &wanted));
    assert_int_equal(got != NULL, done);
    take_read(w, got, wanted, &f);
}

static void end_step(twins *w, twin_state *s)
{
    bool done;
    ON_BOTH(w, done, kvern_step_end(s->got), kvern_step_end(s->wanted));
    (void)done;
}

static void abandon_step(twin_state *s)
{
    kvern_step_abandon(s->got);
    kvern_step_abandon(s->wanted);
}

// One call of an open step, whichever.
static void go_on(twins *w, twin_state *s)
{
    const size_t layer = below(w, MIXED_LAYERS);
    switch (below(w, 16)) {
    case 0:
        abandon_step(s);
        break;
    case 1:
    case 2:
        end_step(w, s);
        break;
    case 3:
        write_layer(w, s, layer);
        break;
    case 4:
        read_donor(w, kvern_state_cache(s->got, layer), kvern_state_cache(s->wanted, layer),
                   s->sequences);
        break;
    case 5:
    case 6:
        append_layer(w, s, layer);
        break;
    default:
        for (size_t l = 0; l < MIXED_LAYERS; l++) {
            if (below(w, 6) == 0)
                write_layer(w, s, l);
            append_layer(w, s, l);
        }
        end_step(w, s);
    }
}

// ---- Rounds ----

static void begin_round(twins *w, twin_state *s)
{
    int64_t counts[MOST_ROWS] = {0};
    bool done;
    for (size_t r = 0; r < kvern_state_rows(s->wanted); r++)
        counts[r] = (int64_t)below(w, below(w, 9) ? 9 : 40);
    ON_BOTH(w, done, kvern_round_begin(s->got, counts), kvern_round_begin(s->wanted, counts));
    (void)done;
}

// Tokens of a round may be taken back, and others come in their place.
static void end_round(twins *w, twin_state *s)
{
    int64_t keep[MOST_ROWS] = {0};
    bool done;
    if (below(w, 3) == 0) {
        ON_BOTH(w, done, kvern_round_commit(s->got), kvern_round_commit(s->wanted));
        return;
    }
    for (size_t r = 0; r < kvern_state_rows(s->wanted); r++) {
        const int64_t appended = kvern_round_appended(s->wanted, r);
        keep[r] = appended > 0 ? (int64_t)below(w, (uint64_t)appended + 1) : 0;
    }
    ON_BOTH(w, done, kvern_round_rollback(s->got, keep), kvern_round_rollback(s->wanted, keep));
    if (done)
        new_sequences(w, s->sequences, 0);
}

// ---- Rows of states ----

static void create_state(twins *w)
{
    twin_state *s = free_state(w, NULL);
    const size_t rows = below(w, MOST_ROWS + 1);
    bool done;
    if (!s)
        return;
    ON_BOTH(w, done, kvern_state_create(w->poor->composition, rows, &s->got),
            kvern_state_create(w->rich->composition, rows, &s->wanted));
    assert_int_equal(done, s->got != NULL);
    new_sequences(w, s->sequences, 0);
}

static void fork_state(twins *w, const twin_state *s)
{
    twin_state *to = free_state(w, s);
    size_t rows[MOST_ROWS], count = 1 + below(w, MOST_ROWS);
    bool done;
    if (!to)
        return;
    for (size_t i = 0; i < count; i++)
        rows[i] = below(w, kvern_state_rows(s->wanted) + 1);
    if (below(w, 3) == 0) {
        ON_BOTH(w, done, kvern_state_extract(s->got, rows[0], &to->got),
                kvern_state_extract(s->wanted, rows[0], &to->wanted));
    } else {
        ON_BOTH(w, done, kvern_state_fork(s->got, rows, count, &to->got),
                kvern_state_fork(s->wanted, rows, count, &to->wanted));
    }
    assert_int_equal(done, to->got != NULL);
    new_sequences(w, to->sequences, 0);
}

static void join_states(twins *w, twin_state *s)
{
    twin_state *from = &w->states[below(w, MOST_STATES)];
    bool done;
    if (!from->got || kvern_state_rows(s->wanted) + kvern_state_rows(from->wanted) > MOST_ROWS)
        return;
    ON_BOTH(w, done, kvern_state_join(s->got, &from->got, 1),
            kvern_state_join(s->wanted, &from->wanted, 1));
    if (!done)
        return;
    assert_int_equal(kvern_state_rows(from->got), 0);
    new_sequences(w, s->sequences, 0);
}

static void keep_rows(twins *w, twin_state *s)
{
    const size_t held = kvern_state_rows(s->wanted), first = below(w, MOST_ROWS);
    const size_t count = below(w, 6) ? held - (held && below(w, 3) == 0) : below(w, MOST_ROWS + 1);
    size_t rows[MOST_ROWS];
    bool done;
    for (size_t i = 0; i < count; i++)
        rows[i] = (first + i) % (held + (below(w, 16) == 0 || held == 0));
    ON_BOTH(w, done, kvern_state_keep(s->got, rows, count),
            kvern_state_keep(s->wanted, rows, count));
    if (done)
        new_sequences(w, s->sequences, 0);
}

static void add_rows(twins *w, twin_state *s)
{
    const size_t count = below(w, MOST_ROWS - kvern_state_rows(s->wanted) + 1);
    bool done;
    ON_BOTH(w, done, kvern_state_add_rows(s->got, count), kvern_state_add_rows(s->wanted, count));
    (void)done;
}

static void work_on_a_row(twins *w, twin_state *s)
{
    const size_t row = below(w, kvern_state_rows(s->wanted) + 1);
    const int64_t n = (int64_t)below(w, below(w, 2) ? 9 : MOST_LENGTH);
    bool done = false;
    switch (below(w, 5)) {
    case 0:
        ON_BOTH(w, done, kvern_state_reset(s->got, row), kvern_state_reset(s->wanted, row));
        break;
    case 1:
        ON_BOTH(w, done, kvern_state_reserve(s->got, row, n, HEADS),
                kvern_state_reserve(s->wanted, row, n, HEADS));
        break;
    case 2:
        ON_BOTH(w, done, kvern_state_plan_boundary(s->got, row, n),
                kvern_state_plan_boundary(s->wanted, row, n));
        break;
    default:
        ON_BOTH(w, done, kvern_state_trim(s->got, row, n), kvern_state_trim(s->wanted, row, n));
    }
    (void)done;
}

// A new state of as many rows, filled from the planes of this one.
static void import_state(twins *w, const twin_state *s)
{
    static const kvern_type types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};
    twin_state *to = free_state(w, s);
    padded_tensors planes[MIXED_LAYERS];
    kvern_padded_planes views[MIXED_LAYERS];
    bool done = to && !is_in_round(s);
    for (size_t r = 0; done && r < kvern_state_rows(s->wanted); r++)
        done = kvern_step_position(s->wanted, r) < 0;
    if (!done)
        return;
    for (size_t l = 0; l < MIXED_LAYERS; l++) {
        const kvern_cache *cache = kvern_state_cache(s->wanted, l);
        const int64_t width = kvern_cache_padded_width(cache) + (int64_t)below(w, 3);
        planes[l] = padded_create(cache, width, false, false, types[below(w, 3)], KVERN_BF16);
        ON_BOTH(w, done, kvern_cache_export_padded(kvern_state_cache(s->got, l), &planes[l].planes),
                kvern_cache_export_padded(cache, &planes[l].planes));
        views[l] = planes[l].planes;
    }
    const size_t rows = kvern_state_rows(s->wanted);
    ON_BOTH(w, done, kvern_state_create(w->poor->composition, rows, &to->got),
            kvern_state_create(w->rich->composition, rows, &to->wanted));
    new_sequences(w, to->sequences, 0);
    if (done) {
        ON_BOTH(w, done, kvern_state_import_padded(to->got, views),
                kvern_state_import_padded(to->wanted, views));
    }
    for (size_t l = 0; l < MIXED_LAYERS; l++)
        padded_destroy(&planes[l]);
}

static void operate_on_a_state(twins *w, twin_state *s)
{
    switch (below(w, 20)) {
    case 0:
        fork_state(w, s);
        break;
    case 1:
        join_states(w, s);
        break;
    case 2:
        keep_rows(w, s);
        break;
    case 3:
        add_rows(w, s);
        break;
    case 4:
    case 5:
    case 6:
        work_on_a_row(w, s);
        break;
    case 7:
        import_state(w, s);
        break;
    case 8:
    case 9:
        begin_round(w, s);
        break;
    default:
        if (is_in_round(s) && below(w, 2))
            end_round(w, s);
        else
            begin_step(w, s);
    }
}

// ---- Caches ----

static void create_cache(twins *w)
{
    twin_cache *c = free_cache(w, NULL);
    const size_t rows = 1 + below(w, MOST_ROWS), layer = below(w, MIXED_LAYERS);
    bool done;
    if (!c)
        return;
    ON_BOTH(w, done, kvern_cache_create(w->poor->composition, layer, rows, &c->got),
            kvern_cache_create(w->rich->composition, layer, rows, &c->wanted));
    assert_int_equal(done, c->got != NULL);
    new_sequences(w, c->sequences, 0);
}

static void append_cache(twins *w, twin_cache *c)
{
    const kvern_phase phase = (kvern_phase)below(w, 3);
    const uint64_t most = phase == KVERN_PHASE_DECODE ? 2 : below(w, 3) ? 12 : 90;
    int64_t counts[MOST_ROWS] = {0};
    kvern_read *got = NULL, *wanted = NULL;
    const bool reads = below(w, 3);
    bool done;
    for (size_t r = 0; r < kvern_cache_rows(c->wanted); r++) {
        counts[r] = (int64_t)below(w, most);
        if (kvern_cache_length(c->wanted, r) + counts[r] > MOST_LENGTH)
            counts[r] = 0;
    }
    feed f = feed_create(c->wanted, c->sequences, counts, HEADS);
    ON_BOTH(w, done, feed_append(c->got, phase, &f, reads ? &got : NULL),
            feed_append(c->wanted, phase, &f, reads ? &wanted : NULL));
    assert_int_equal(got != NULL, done && reads);
    take_read(w, got, wanted, &f);
}

// Of a state or of another cache; most rows do not suit.
static void adopt(twins *w, twin_cache *c)
{
    const twin_state *s = &w->states[below(w, MOST_STATES)];
    const twin_cache *other = &w->caches[below(w, MOST_CACHES)];
    const size_t layer = below(w, MIXED_LAYERS), row = below(w, MOST_ROWS);
    const size_t from_row = below(w, MOST_ROWS);
    const kvern_cache *got = NULL, *wanted = NULL;
    bool done;
    if (s->got && below(w, 2)) {
        got = kvern_state_cache(s->got, layer);
        wanted = kvern_state_cache(s->wanted, layer);
    } else {
        got = other->got;
        wanted = other->wanted;
    }
    ON_BOTH(w, done, kvern_cache_adopt(c->got, row, got, from_row),
            kvern_cache_adopt(c->wanted, row, wanted, from_row));
    if (done)
        new_sequences(w, c->sequences, 0);
}

static void join_caches(twins *w, twin_cache *c)
{
    twin_cache *from = &w->caches[below(w, MOST_CACHES)];
    bool done;
    if (!from->got || kvern_cache_rows(c->wanted) + kvern_cache_rows(from->wanted) > MOST_ROWS)
        return;
    ON_BOTH(w, done, kvern_cache_join(c->got, &from->got, 1),
            kvern_cache_join(c->wanted, &from->wanted, 1));
    if (done)
        new_sequences(w, c->sequences, 0);
}

static void fork_cache(twins *w, const twin_cache *c)
{
    twin_cache *to = free_cache(w, c);
    const size_t rows[] = {below(w, MOST_ROWS), below(w, MOST_ROWS), below(w, MOST_ROWS)};
    const size_t count = below(w, 4);
    bool done;
    if (!to)
        return;
    ON_BOTH(w, done, kvern_cache_fork(c->got, rows, count, &to->got),
            kvern_cache_fork(c->wanted, rows, count, &to->wanted));
    assert_int_equal(done, to->got != NULL);
    new_sequences(w, to->sequences, 0);
}

static void work_on_a_cache_row(twins *w, twin_cache *c)
{
    const size_t row = below(w, kvern_cache_rows(c->wanted) + 1);
    const int64_t n = (int64_t)below(w, below(w, 2) ? 9 : MOST_LENGTH);
    bool done = false;
    switch (below(w, 4)) {
    case 0:
        ON_BOTH(w, done, kvern_cache_reset(c->got, row), kvern_cache_reset(c->wanted, row));
        break;
    case 1:
        ON_BOTH(w, done, kvern_cache_reserve(c->got, row, n, HEADS),
                kvern_cache_reserve(c->wanted, row, n, HEADS));
        break;
    case 2:
        ON_BOTH(w, done, kvern_cache_plan_boundary(c->got, row, n),
                kvern_cache_plan_boundary(c->wanted, row, n));
        break;
    default:
        ON_BOTH(w, done, kvern_cache_trim(c->got, row, n), kvern_cache_trim(c->wanted, row, n));
    }
    (void)done;
}

static void add_cache_row(twins *w, twin_cache *c)
{
    bool done;
    if (kvern_cache_rows(c->wanted) == MOST_ROWS)
        return;
    ON_BOTH(w, done, kvern_cache_add_rows(c->got, 1), kvern_cache_add_rows(c->wanted, 1));
    (void)done;
}

static void operate_on_a_cache(twins *w, twin_cache *c)
{
    switch (below(w, 9)) {
    case 0:
    case 1:
        adopt(w, c);
        break;
    case 2:
        join_caches(w, c);
        break;
    case 3:
        fork_cache(w, c);
        break;
    case 4:
        work_on_a_cache_row(w, c);
        break;
    case 5:
        read_donor(w, c->got, c->wanted, c->sequences);
        break;
    case 6:
        add_cache_row(w, c);
        break;
    default:
        append_cache(w, c);
    }
}

// ---- Programs ----

static void operate(twins *w)
{
    twin_state *s = &w->states[below(w, MOST_STATES)];
    twin_cache *c = &w->caches[below(w, MOST_CACHES)];
    switch (below(w, 10)) {
    case 0:
        use_a_read(w);
        break;
    case 1:
    case 2:
        c->got ? operate_on_a_cache(w, c) : create_cache(w);
        break;
    case 3:
        create_state(w);
        break;
    default:
        if (!s->got)
            return;
        if (kvern_step_position(s->wanted, 0) >= 0 && below(w, 8))
            go_on(w, s);
        else
            operate_on_a_state(w, s);
    }
}

void twins_run(twins *w, int count)
{
    for (int i = 0; i < count; i++) {
        operate(w);
        for (size_t s = 0; s < MOST_STATES; s++)
            expect_sound_state(w->states[s].got);
        for (size_t c = 0; c < MOST_CACHES; c++)
            expect_sound_cache(w->caches[c].got);
        if (i % 20 == 0)
            expect_same(w);
    }
    expect_same(w);
}

uint64_t twins_calls(const twins *w)
{
    return w->calls;
}

uint64_t twins_refused(const twins *w)
{
    return w->refused;
}

// ---- Beginning with rows of others ----

#define BASE_ROWS 3

kvern_state *twins_base(const twin_side *side)
{
    static const uint64_t sequences[BASE_ROWS] = {901, 902, 903};
    static const int64_t counts[BASE_ROWS] = {100, 140, 65};
    kvern_state *base;
    assert_ok(kvern_state_create(side->composition, BASE_ROWS, &base));
    mixed_step(base, KVERN_PHASE_WINDOW, sequences, counts, NULL);
    return base;
}

void twins_begin(twins *w, const kvern_state *base)
{
    static const size_t rows[] = {0, 1, 2, 1};
    twin_state *s = &w->states[0];
    kvern_state *there = twins_base(w->rich);
    assert_ok(kvern_state_fork(base, rows, sizeof rows / sizeof rows[0], &s->got));
    assert_ok(kvern_state_fork(there, rows, sizeof rows / sizeof rows[0], &s->wanted));
    kvern_state_destroy(there);
    new_sequences(w, s->sequences, 0);
}
