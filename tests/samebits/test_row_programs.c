// SPDX-License-Identifier: MIT
// Random programs over states that mix all storages: rows join, leave, change places, are forked,
// extracted, trimmed and reset, grow in every phase and layout and by slots, and pass through
// speculative rounds. Every row is compared bit for bit with its solo run: a state of one row in
// another context, with other kernels, that was served the row's own tokens and nothing else. For a
// fork, the solo run is done again from the beginning. Memory is refused now and then, and the call
// made again.

#include "tests/support/batch_view.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/mixed_state.h"
#include "tests/support/random.h"
#include "tests/support/soundness.h"

#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STATES 4
#define MOST_ROWS 6
#define MOST_READS 4
#define MOST_LENGTH 420
#define HEADS MIXED_QUERY_HEADS

// What has been done to a row since it was empty.
typedef enum item_kind { APPEND, TRIM, RESET, BOUNDARY } item_kind;

typedef struct item {
    item_kind kind;
    int64_t n;
    uint64_t sequence; // of the tokens of an append
} item;

typedef struct row {
    item *items;
    size_t count, capacity;
    int64_t boundary;
    kvern_state *solo;
} row;

typedef struct batch {
    kvern_state *state; // NULL: the place is free
    size_t count;
    row *rows[MOST_ROWS];
} batch;

// A read that outlives what happens to its rows, and what it gave when it was new.
typedef struct kept {
    kvern_read *read; // NULL: the place is free
    kvern_queries queries;
    batch_view q, out;
    void *wanted;
} kept;

typedef struct world {
    test_random random;
    ledger books, solo_books;
    kvern_context *context, *solo_context;
    kvern_composition *compositions[2], *solo; // all of one plan
    uint64_t next_sequence;
    batch batches[MOST_STATES];
    kept reads[MOST_READS];
} world;

static uint64_t below(world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

// Now and then one of the next allocations is refused.
static void arm(world *w)
{
    if (below(w, 3) == 0)
        ledger_refuse(&w->books, (int64_t)below(w, 6));
}

// A call that may be refused memory, and then succeeds when it is made again: in between nothing
// has changed, or the results will tell.
#define assert_ok_again(w, call)                                                                   \
    do {                                                                                           \
        arm(w);                                                                                    \
        const kvern_status first_ = (call);                                                        \
        const bool refused_ = ledger_relent(&(w)->books);                                          \
        if (first_) {                                                                              \
            assert_true(refused_);                                                                 \
            assert_status(KVERN_ERR_MEMORY, first_);                                               \
            assert_ok(call);                                                                       \
        }                                                                                          \
    } while (0)

// ---- Rows and their solo runs ----

static void note(row *r, item_kind kind, int64_t n, uint64_t sequence)
{
    if (r->count == r->capacity) {
        r->capacity = 2 * r->capacity + 8;
        r->items = realloc(r->items, r->capacity * sizeof r->items[0]);
        assert_non_null(r->items);
    }
    r->items[r->count++] = (item){kind, n, sequence};
}

static void act_alone(kvern_state *solo, const item *it, float *out)
{
    switch (it->kind) {
    case APPEND:
        mixed_feed(solo, KVERN_PHASE_WINDOW, it->sequence, it->n, out);
        break;
    case TRIM:
        assert_ok(kvern_state_trim(solo, 0, it->n));
        break;
    case RESET:
        assert_ok(kvern_state_reset(solo, 0));
        break;
    case BOUNDARY:
        assert_ok(kvern_state_plan_boundary(solo, 0, it->n));
    }
}

static row *new_row(world *w)
{
    row *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_ok(kvern_state_create(w->solo, 1, &r->solo));
    return r;
}

static void drop_row(row *r)
{
    kvern_state_destroy(r->solo);
    free(r->items);
    free(r);
}

// The same row with a solo run of its own.
static row *repeat_row(world *w, const row *from)
{
    row *r = new_row(w);
    for (size_t i = 0; i < from->count; i++) {
        note(r, from->items[i].kind, from->items[i].n, from->items[i].sequence);
        act_alone(r->solo, &from->items[i], NULL);
    }
    r->boundary = from->boundary;
    return r;
}

// Where the results of a token lie among those of `tokens` tokens of a row, and how many there are.
static size_t place(int64_t tokens, size_t layer, int64_t token, size_t *count)
{
    kvern_layer layers[MIXED_LAYERS];
    size_t at = 0;
    mixed_plan(layers);
    for (size_t l = 0; l < layer; l++)
        at += (size_t)tokens * HEADS * layers[l].v_dim;
    *count = HEADS * layers[layer].v_dim;
    return at + (size_t)token * *count;
}

// Does the same with the solo run as was done with the row, and compares the results of an append:
// `got` has those of `total` tokens, of which the first n have stayed.
static void follow(row *r, item_kind kind, int64_t n, uint64_t sequence, const float *got,
                   int64_t total)
{
    float *wanted = malloc((mixed_outputs(n) + 1) * sizeof *wanted);
    assert_non_null(wanted);
    note(r, kind, n, sequence);
    act_alone(r->solo, &r->items[r->count - 1], kind == APPEND ? wanted : NULL);
    for (size_t l = 0; l < MIXED_LAYERS && kind == APPEND; l++) {
        for (int64_t t = 0; t < n; t++) {
            size_t count;
            const float *a = wanted + place(n, l, t, &count);
            check_same_floats(a, got + place(total, l, t, &count), count, "a row of a batch");
        }
    }
    free(wanted);
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

static void drop_read(kept *k)
{
    if (!k->read)
        return;
    kvern_read_release(k->read);
    batch_view_destroy(&k->q);
    batch_view_destroy(&k->out);
    free(k->wanted);
    memset(k, 0, sizeof *k);
}

static void fill_batch(world *w, batch *b)
{
    b->count = 1 + below(w, 3);
    for (size_t r = 0; r < b->count; r++)
        b->rows[r] = new_row(w);
    assert_ok(kvern_state_create(w->compositions[below(w, 2)], b->count, &b->state));
}

static kvern_context *open_context(world *w, ledger *books, size_t threads)
{
    const kernel_variants variants = kernel_variants_here();
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    ledger_init(books);
    options.allocator = ledger_allocator(books);
    options.executor = executor_shuffled(threads);
    options.cpu_features = variants.features[below(w, variants.count)];
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

static void world_open(world *w, uint64_t seed)
{
    kvern_layer layers[MIXED_LAYERS];
    mixed_plan(layers);
    memset(w, 0, sizeof *w);
    w->random = test_random_seed(seed);
    w->next_sequence = 1;
    w->context = open_context(w, &w->books, 1 + below(w, 4));
    w->solo_context = open_context(w, &w->solo_books, 1);
    for (size_t i = 0; i < 2; i++)
        assert_ok(kvern_composition_create(w->context, layers, MIXED_LAYERS, &w->compositions[i]));
    assert_ok(kvern_composition_create(w->solo_context, layers, MIXED_LAYERS, &w->solo));
    fill_batch(w, &w->batches[0]);
}

static void world_close(world *w)
{
    for (size_t i = 0; i < MOST_STATES; i++)
        drop_batch(&w->batches[i]);
    for (size_t i = 0; i < MOST_READS; i++)
        drop_read(&w->reads[i]);
    for (size_t i = 0; i < 2; i++)
        kvern_composition_release(w->compositions[i]);
    kvern_composition_release(w->solo);
    kvern_context_release(w->context);
    kvern_context_release(w->solo_context);
    ledger_finish(&w->books);
    ledger_finish(&w->solo_books);
}

// ---- Steps ----

// The tokens of one or several steps: total[r] of row r, of which done[r] are served, and all their
// results.
typedef struct serving {
    int64_t total[MOST_ROWS], done[MOST_ROWS];
    uint64_t sequence[MOST_ROWS];
    float *out[MOST_ROWS];
} serving;

static void serving_open(world *w, const batch *b, const int64_t *total, serving *s)
{
    memset(s, 0, sizeof *s);
    for (size_t r = 0; r < b->count; r++) {
        s->total[r] = total[r];
        s->sequence[r] = w->next_sequence++;
        s->out[r] = malloc((mixed_outputs(total[r]) + 1) * sizeof(float));
        assert_non_null(s->out[r]);
    }
}

static void serving_close(serving *s)
{
    for (size_t r = 0; r < MOST_ROWS; r++)
        free(s->out[r]);
}

static void fill_view(batch_view *v, const batch *b, const serving *s, feed_stream stream)
{
    float values[2048];
    assert_true(v->heads * v->dim <= 2048);
    for (size_t r = 0; r < b->count; r++) {
        for (int64_t i = 0; i < v->counts[r]; i++) {
            feed_values(s->sequence[r], kvern_step_position(b->state, r) + i, stream,
                        v->heads * v->dim, values);
            for (size_t h = 0; h < v->heads; h++)
                batch_view_set(v, r, i, h, values + h * v->dim);
        }
    }
}

static void take_results(const batch_view *out, const batch *b, size_t layer, serving *s)
{
    for (size_t r = 0; r < b->count; r++) {
        for (int64_t i = 0; i < out->counts[r]; i++) {
            size_t count;
            float *to = s->out[r] + place(s->total[r], layer, s->done[r] + i, &count);
            for (size_t h = 0; h < out->heads; h++)
                batch_view_get(out, r, i, h, to + h * out->dim);
        }
    }
    batch_view_expect_rest_untouched(out);
}

static void keep_read(world *w, kvern_read *read, const kvern_queries *queries, batch_view q,
                      batch_view out)
{
    kept *k = &w->reads[below(w, MOST_READS)];
    const size_t bytes = out.elements * sizeof(float);
    drop_read(k);
    *k = (kept){read, *queries, q, out, malloc(bytes + 1)};
    assert_non_null(k->wanted);
    memcpy(k->wanted, out.data, bytes);
}

static void attend_layer(world *w, const batch *b, size_t layer, const int64_t *counts,
                         kvern_read *read, serving *s)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(b->state, layer));
    batch_view q = batch_view_create(&w->random, KVERN_F32, b->count, counts, HEADS, plan->k_dim);
    batch_view out = batch_view_create(&w->random, KVERN_F32, b->count, counts, HEADS, plan->v_dim);
    kvern_queries queries = kvern_queries_default(plan, HEADS);
    fill_view(&q, b, s, FEED_Q);
    queries.q = q.data;
    queries.q_start = q.start;
    queries.q_token_stride = q.token_stride;
    queries.q_head_stride = q.head_stride;
    queries.out = out.data;
    queries.out_start = out.start;
    queries.out_token_stride = out.token_stride;
    queries.out_head_stride = out.head_stride;
    assert_ok_again(w, kvern_read_attend(read, &queries));
    take_results(&out, b, layer, s);
    if (below(w, 20) == 0) {
        keep_read(w, read, &queries, q, out);
        return;
    }
    kvern_read_release(read);
    batch_view_destroy(&q);
    batch_view_destroy(&out);
}

// A decode whose tokens are handed over row by row, in any order.
static void write_layer(world *w, const batch *b, size_t layer, const int64_t *counts, serving *s)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(b->state, layer));
    float k[2048], v[2048];
    kvern_read *read;
    const size_t first = below(w, b->count + 1);
    for (size_t i = 0; i < b->count; i++) {
        const size_t r = (first + i) % b->count;
        const int64_t position = kvern_step_position(b->state, r);
        if (!counts[r])
            continue;
        feed_values(s->sequence[r], position, FEED_K, plan->kv_heads * plan->k_dim, k);
        feed_values(s->sequence[r], position, FEED_V, plan->kv_heads * plan->v_dim, v);
        assert_ok_again(w, kvern_step_write(b->state, layer, r, KVERN_F32, k, v));
    }
    assert_ok_again(w, kvern_step_slots_done(b->state, layer, &read));
    attend_layer(w, b, layer, counts, read, s);
}

// Latents are what a feed has for keys, and index keys what it has for values (feed.h).
static kvern_status append_latents(const batch *b, size_t layer, const kvern_tokens *tokens,
                                   kvern_read **read)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(b->state, layer));
    kvern_latent_tokens t = kvern_latent_tokens_default(plan);
    t.latent = tokens->k;
    t.rope = (const float *)tokens->k + plan->latent_dim;
    t.latent_start = t.rope_start = tokens->k_start;
    t.latent_token_stride = t.rope_token_stride = tokens->k_token_stride;
    t.index = plan->index_dim ? tokens->v : NULL;
    t.index_start = tokens->v_start;
    t.index_token_stride = tokens->v_token_stride;
    return kvern_step_append_latent(b->state, layer, &t, read);
}

static void append_layer(world *w, const batch *b, size_t layer, const int64_t *counts, serving *s)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(b->state, layer));
    batch_view k =
        batch_view_create(&w->random, KVERN_F32, b->count, counts, plan->kv_heads, plan->k_dim);
    batch_view v =
        batch_view_create(&w->random, KVERN_F32, b->count, counts, plan->kv_heads, plan->v_dim);
    kvern_tokens tokens = kvern_tokens_default(plan);
    kvern_read *read;
    fill_view(&k, b, s, FEED_K);
    fill_view(&v, b, s, FEED_V);
    tokens.k = k.data;
    tokens.k_start = k.start;
    tokens.k_token_stride = k.token_stride;
    tokens.k_head_stride = k.head_stride;
    tokens.v = v.data;
    tokens.v_start = v.start;
    tokens.v_token_stride = v.token_stride;
    tokens.v_head_stride = v.head_stride;
    if (plan->kind == KVERN_LAYER_LATENT)
        assert_ok_again(w, append_latents(b, layer, &tokens, &read));
    else
        assert_ok_again(w, kvern_step_append(b->state, layer, &tokens, &read));
    batch_view_destroy(&k);
    batch_view_destroy(&v);
    attend_layer(w, b, layer, counts, read, s);
}

// Serves counts[r] of the tokens that are left. Now and then an abandoned step comes first.
static void run_step(world *w, batch *b, const int64_t *counts, serving *s)
{
    bool decode = true;
    for (size_t r = 0; r < b->count; r++)
        decode = decode && counts[r] <= 1;
    const kvern_phase phase =
        decode ? (kvern_phase)below(w, 3) : (kvern_phase)(KVERN_PHASE_WINDOW + below(w, 2));
    for (int abandoned = below(w, 8) == 0; abandoned >= 0; abandoned--) {
        assert_ok_again(w, kvern_step_begin(b->state, phase, counts));
        const size_t first = below(w, MIXED_LAYERS);
        const size_t layers = abandoned ? below(w, MIXED_LAYERS + 1) : MIXED_LAYERS;
        for (size_t l = 0; l < layers; l++) {
            const size_t layer = (first + l) % MIXED_LAYERS;
            const bool slots =
                !kvern_cache_can(kvern_state_cache(b->state, layer), KVERN_CAN_LATENT);
            if (phase == KVERN_PHASE_DECODE && b->count && below(w, 3) == 0 && slots)
                write_layer(w, b, layer, counts, s);
            else
                append_layer(w, b, layer, counts, s);
        }
        if (abandoned)
            kvern_step_abandon(b->state);
    }
    assert_ok_again(w, kvern_step_end(b->state));
    for (size_t r = 0; r < b->count; r++)
        s->done[r] += counts[r];
}

static void step(world *w, batch *b)
{
    int64_t counts[MOST_ROWS] = {0};
    const uint64_t most = below(w, 3) == 0 ? 70 : below(w, 2) ? 2 : 9;
    for (size_t r = 0; r < b->count; r++) {
        counts[r] = (int64_t)below(w, most);
        if (kvern_state_length(b->state, r) + counts[r] > MOST_LENGTH)
            counts[r] = 0;
    }
    serving s;
    serving_open(w, b, counts, &s);
    run_step(w, b, counts, &s);
    for (size_t r = 0; r < b->count; r++) {
        if (counts[r])
            follow(b->rows[r], APPEND, counts[r], s.sequence[r], s.out[r], counts[r]);
    }
    serving_close(&s);
}

// ---- Rounds ----

// How many tokens a round may bring to a row: as many as the least slack, and none behind a
// conversion.
static int64_t most_drafts(const row *r)
{
    int64_t most = MIXED_LEAST_SLACK;
    for (size_t l = 0; l < MIXED_LAYERS; l++) {
        const kvern_cache *cache = kvern_state_cache(r->solo, l);
        const int64_t start = kvern_cache_layer(cache)->start;
        if (start == KVERN_NO_START || kvern_cache_converted(cache, 0))
            continue;
        const int64_t due =
            (r->boundary > start ? r->boundary : start) - kvern_cache_length(cache, 0);
        most = due < most ? (due < 0 ? 0 : due) : most;
    }
    return most;
}

static void draft(world *w, batch *b, serving *s)
{
    for (uint64_t steps = 1 + below(w, 3); steps > 0; steps--) {
        int64_t counts[MOST_ROWS] = {0};
        for (size_t r = 0; r < b->count; r++)
            counts[r] = (int64_t)below(w, (uint64_t)(s->total[r] - s->done[r]) + 1);
        run_step(w, b, counts, s);
    }
}

static void end_round(world *w, batch *b, const serving *s, int64_t *keep)
{
    const bool commit = below(w, 3) == 0;
    for (size_t r = 0; r < b->count; r++) {
        assert_int_equal(kvern_round_appended(b->state, r), s->done[r]);
        keep[r] = commit ? s->done[r] : (int64_t)below(w, (uint64_t)s->done[r] + 1);
    }
    if (commit)
        assert_ok_again(w, kvern_round_commit(b->state));
    else
        assert_ok_again(w, kvern_round_rollback(b->state, keep));
}

static void speculate(world *w, batch *b)
{
    int64_t counts[MOST_ROWS] = {0}, keep[MOST_ROWS];
    bool possible = true;
    for (size_t r = 0; r < b->count; r++) {
        counts[r] = (int64_t)below(w, MIXED_LEAST_SLACK + 1);
        const int64_t most = most_drafts(b->rows[r]);
        if (below(w, 8))
            counts[r] = counts[r] < most ? counts[r] : most;
        possible = possible && counts[r] <= most;
    }
    if (!possible) {
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(b->state, counts));
        return;
    }
    serving s;
    serving_open(w, b, counts, &s);
    assert_ok(kvern_round_begin(b->state, counts));
    draft(w, b, &s);
    end_round(w, b, &s, keep);
    for (size_t r = 0; r < b->count; r++) {
        if (keep[r])
            follow(b->rows[r], APPEND, keep[r], s.sequence[r], s.out[r], s.total[r]);
    }
    serving_close(&s);
}

// ---- Rows that come and go ----

static void join(world *w, batch *b)
{
    kvern_state *others[MOST_STATES];
    batch *joined[MOST_STATES];
    size_t count = 0, rows = b->count;
    for (size_t i = 0; i < MOST_STATES; i++) {
        batch *other = &w->batches[(i + below(w, MOST_STATES)) % MOST_STATES];
        bool taken = other == b || !other->state || rows + other->count > MOST_ROWS;
        for (size_t j = 0; j < count; j++)
            taken = taken || joined[j] == other;
        if (taken || below(w, 2))
            continue;
        others[count] = other->state;
        joined[count++] = other;
        rows += other->count;
    }
    assert_ok_again(w, kvern_state_join(b->state, others, count));
    for (size_t i = 0; i < count; i++) {
        for (size_t r = 0; r < joined[i]->count; r++)
            b->rows[b->count++] = joined[i]->rows[r];
        joined[i]->count = 0;
        assert_int_equal(kvern_state_rows(joined[i]->state), 0);
        if (below(w, 2)) // what is left of it can be used again
            drop_batch(joined[i]);
    }
}

static void keep_some(world *w, batch *b)
{
    row *old[MOST_ROWS];
    size_t chosen[MOST_ROWS], count = 0;
    bool named[MOST_ROWS] = {false};
    memcpy(old, b->rows, sizeof old);
    for (size_t i = 0; i < b->count; i++) {
        const size_t r = below(w, b->count);
        if (named[r])
            continue;
        named[r] = true;
        chosen[count++] = r;
    }
    assert_ok_again(w, kvern_state_keep(b->state, chosen, count));
    for (size_t r = 0; r < b->count; r++) {
        if (!named[r])
            drop_row(old[r]);
    }
    for (size_t i = 0; i < count; i++)
        b->rows[i] = old[chosen[i]];
    b->count = count;
}

static void fork_some(world *w, batch *b, bool extract)
{
    batch *to = free_place(w);
    size_t rows[MOST_ROWS];
    if (!to || b->count == 0)
        return;
    to->count = extract ? 1 : below(w, 4);
    for (size_t i = 0; i < to->count; i++) {
        rows[i] = below(w, b->count);
        to->rows[i] = repeat_row(w, b->rows[rows[i]]);
    }
    if (extract)
        assert_ok_again(w, kvern_state_extract(b->state, rows[0], &to->state));
    else
        assert_ok_again(w, kvern_state_fork(b->state, rows, to->count, &to->state));
}

static void add_rows(world *w, batch *b)
{
    const size_t count = below(w, MOST_ROWS - b->count + 1);
    assert_ok_again(w, kvern_state_add_rows(b->state, count));
    for (size_t i = 0; i < count; i++)
        b->rows[b->count++] = new_row(w);
}

static void trim(world *w, batch *b, size_t r)
{
    const int64_t length = kvern_state_length(b->state, r);
    const int64_t most = kvern_state_trimmable(b->state, r);
    assert_int_equal(most, kvern_state_trimmable(b->rows[r]->solo, 0));
    const int64_t tokens = below(w, 12) ? (int64_t)below(w, (uint64_t)most + 1) : length;
    assert_ok(kvern_state_trim(b->state, r, tokens));
    follow(b->rows[r], TRIM, tokens, 0, NULL, 0);
}

static void plan_boundary(world *w, batch *b, size_t r)
{
    const int64_t position =
        below(w, 3) ? kvern_state_length(b->state, r) + (int64_t)below(w, 60) : 0;
    assert_ok(kvern_state_plan_boundary(b->state, r, position));
    follow(b->rows[r], BOUNDARY, position, 0, NULL, 0);
    b->rows[r]->boundary = position;
}

static void reset(batch *b, size_t r)
{
    assert_ok(kvern_state_reset(b->state, r));
    follow(b->rows[r], RESET, 0, 0, NULL, 0);
    b->rows[r]->boundary = 0;
}

static void reserve(world *w, batch *b, size_t r)
{
    const int64_t tokens = (int64_t)below(w, MOST_LENGTH);
    assert_ok_again(w, kvern_state_reserve(b->state, r, tokens, HEADS));
}

static void work_on_a_row(world *w, batch *b)
{
    if (b->count == 0)
        return;
    const size_t r = below(w, b->count);
    switch (below(w, 8)) {
    case 0:
        reset(b, r);
        break;
    case 1:
        reserve(w, b, r);
        break;
    case 2:
    case 3:
        plan_boundary(w, b, r);
        break;
    default:
        trim(w, b, r);
    }
}

static void attend_kept(world *w)
{
    kept *k = &w->reads[below(w, MOST_READS)];
    if (!k->read)
        return;
    memset(k->out.data, 0xff, k->out.elements * sizeof(float));
    assert_ok(kvern_read_attend(k->read, &k->queries));
    check_same_bytes(k->wanted, k->out.data, k->out.elements * sizeof(float), "a read of before");
    if (below(w, 3) == 0)
        drop_read(k);
}

static void operate(world *w)
{
    batch *b = any_batch(w);
    switch (below(w, 20)) {
    case 0:
    case 1:
        join(w, b);
        break;
    case 2:
        keep_some(w, b);
        break;
    case 3:
        fork_some(w, b, false);
        break;
    case 4:
        fork_some(w, b, true);
        break;
    case 5:
        add_rows(w, b);
        break;
    case 6:
    case 7:
        work_on_a_row(w, b);
        break;
    case 8:
        attend_kept(w);
        break;
    case 9:
    case 10:
    case 11:
    case 12:
        speculate(w, b);
        break;
    default:
        step(w, b);
    }
    for (size_t s = 0; s < MOST_STATES; s++)
        expect_sound_state(w->batches[s].state);
    if (b->state && b->count) {
        const size_t r = below(w, b->count);
        mixed_expect_row(b->rows[r]->solo, 0, b->state, r, "a row and its solo run");
    }
}

static void every_row_equals_its_solo_run(void **state)
{
    (void)state;
    const int programs = check_repetitions(24, 2000);
    for (int i = 0; i < programs; i++) {
        world *w = malloc(sizeof *w);
        assert_non_null(w);
        world_open(w, check_seed() + (uint64_t)i * 1000003);
        for (int j = 0; j < 60; j++)
            operate(w);
        for (size_t s = 0; s < MOST_STATES; s++) {
            for (size_t r = 0; r < w->batches[s].count; r++)
                mixed_expect_row(w->batches[s].rows[r]->solo, 0, w->batches[s].state, r, "the end");
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
