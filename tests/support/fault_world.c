// SPDX-License-Identifier: MIT
#include "tests/support/fault_world.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 3
#define LAYERS 7
#define LATER 5 // the layer of w->later
#define QUERY_HEADS 6

// ---- The world ----

static const uint64_t sequences[ROWS] = {11, 12, 13};

static kvern_layer make_window(kvern_layer layer, int64_t window, int64_t keep, int64_t slack)
{
    layer.kind = KVERN_LAYER_WINDOW;
    layer.window = window;
    layer.keep = keep;
    layer.slack = slack;
    return layer;
}

static kvern_layer make_affine(kvern_layer layer, uint32_t bits, int64_t start)
{
    layer.k_codec = layer.v_codec = kvern_codec_affine(bits, 32);
    layer.start = start;
    return layer;
}

// Layers of different geometry; two of them share a page size.
static void plan_layers(kvern_layer *layers)
{
    const kvern_layer wide = kvern_layer_default(2, 32);
    layers[0] = kvern_layer_default(3, 16);
    layers[1] = kvern_layer_default(2, 24);
    layers[2] = kvern_layer_default(1, 8);
    layers[2].v_dim = 40;
    layers[2].k_codec = kvern_codec_dense(KVERN_F32);
    layers[2].v_codec = kvern_codec_dense(KVERN_F16);
    layers[3] = make_window(kvern_layer_default(2, 24), 40, 3, 5);
    layers[4] = make_affine(wide, 4, 72);
    layers[6] = kvern_layer_latent(24, 8, 16);
    layers[6].rope_codec = kvern_codec_dense(KVERN_BF16);
    layers[LATER] = make_window(make_affine(wide, 8, 100), 33, 2, 4);
}

static kvern_status create_context(ledger *books, uint64_t budget_bytes, kvern_context **out)
{
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(books);
    options.threads = 2;
    options.budget_bytes = budget_bytes;
    return kvern_context_create(&options, out);
}

static kvern_status create_composition(kvern_context *context, kvern_composition **out)
{
    kvern_layer layers[LAYERS];
    plan_layers(layers);
    return kvern_composition_create(context, layers, LAYERS, out);
}

// One step in which every layer appends; the reads are released unattended.
static kvern_status run_step(kvern_state *state, const int64_t *counts)
{
    kvern_status status = kvern_step_begin(state, KVERN_PHASE_WINDOW, counts);
    for (size_t l = 0; !status && l < LAYERS; l++) {
        feed f = feed_create(kvern_state_cache(state, l), sequences, counts, QUERY_HEADS);
        status = feed_step_append(state, l, &f, NULL);
        feed_destroy(&f);
    }
    if (!status)
        return kvern_step_end(state);
    kvern_step_abandon(state);
    return status;
}

static void world_fill(fault_world *w)
{
    static const int64_t first[ROWS] = {70, 0, 130}, second[ROWS] = {1, 1, 64};
    static const int64_t before_start[ROWS] = {99, 0, 130};
    static const size_t both[2] = {0, 2};
    feed_run(w->later, KVERN_PHASE_WINDOW, sequences, before_start, QUERY_HEADS, NULL);
    assert_ok(kvern_cache_fork(w->later, both, 2, &w->later_fork));
    feed_run(w->cache, KVERN_PHASE_WINDOW, sequences, first, QUERY_HEADS, NULL);
    assert_ok(kvern_cache_fork(w->cache, both, 2, &w->cache_fork));
    w->last = feed_create(w->cache, sequences, second, QUERY_HEADS);
    assert_ok(feed_append(w->cache, KVERN_PHASE_WINDOW, &w->last, &w->read));
    assert_ok(run_step(w->state, first));
    assert_ok(run_step(w->state, second));
    assert_ok(kvern_state_fork(w->state, both, 2, &w->state_fork));
}

fault_world *fault_world_create(uint64_t budget_bytes)
{
    fault_world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    ledger_init(&w->books);
    assert_ok(create_context(&w->books, budget_bytes, &w->context));
    assert_ok(create_composition(w->context, &w->composition));
    assert_ok(kvern_cache_create(w->composition, 0, ROWS, &w->cache));
    assert_ok(kvern_cache_create(w->composition, LATER, ROWS, &w->later));
    assert_ok(kvern_state_create(w->composition, ROWS, &w->state));
    world_fill(w);
    return w;
}

void fault_world_destroy(fault_world *w)
{
    kvern_read_release(w->made_read);
    kvern_cache_destroy(w->made);
    kvern_state_destroy(w->made_state);
    kvern_composition_release(w->made_composition);
    kvern_context_release(w->made_context);
    kvern_read_release(w->read);
    kvern_read_release(w->other_read);
    kvern_cache_destroy(w->other);
    kvern_state_destroy(w->other_state);
    kvern_cache_destroy(w->cache_fork);
    kvern_cache_destroy(w->cache);
    kvern_cache_destroy(w->later_fork);
    kvern_cache_destroy(w->later);
    kvern_state_destroy(w->state_fork);
    kvern_state_destroy(w->state);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
    feed_destroy(&w->last);
    free(w->out);
    free(w);
}

// ---- What can be seen of it ----

static void note(fault_sight *s, const void *bytes, size_t count)
{
    if (s->count + count > s->capacity) {
        s->capacity = 2 * (s->count + count);
        s->bytes = realloc(s->bytes, s->capacity);
        assert_non_null(s->bytes);
    }
    memcpy(s->bytes + s->count, bytes, count);
    s->count += count;
}

static void note_number(fault_sight *s, uint64_t number)
{
    note(s, &number, sizeof number);
}

// A position that is not held any more leaves a mark.
static void note_position(fault_sight *s, const kvern_cache *cache, size_t row, int64_t position)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t k = layer->kv_heads * layer->k_dim, v = layer->kv_heads * layer->v_dim;
    float *values = malloc((k + v) * sizeof *values);
    assert_non_null(values);
    const kvern_status status = feed_export(cache, row, position, values);
    note_number(s, (uint64_t)status);
    if (!status)
        note(s, values, (k + v) * sizeof *values);
    free(values);
}

static void note_cache(fault_sight *s, const kvern_cache *cache)
{
    note_number(s, kvern_cache_rows(cache));
    for (size_t r = 0; r < kvern_cache_rows(cache); r++) {
        const int64_t length = kvern_cache_length(cache, r);
        note_number(s, (uint64_t)length);
        note_number(s, (uint64_t)kvern_cache_trimmable(cache, r));
        note_number(s, (uint64_t)kvern_cache_min_reusable(cache, r));
        note_number(s, (uint64_t)kvern_cache_max_append(cache, r));
        note_number(s, kvern_cache_converted(cache, r));
        for (int64_t position = 0; position < length; position++)
            note_position(s, cache, r, position);
    }
}

static void note_state(fault_sight *s, const kvern_state *state)
{
    note_number(s, kvern_state_rows(state));
    for (size_t r = 0; r < kvern_state_rows(state); r++) {
        note_number(s, (uint64_t)kvern_state_length(state, r));
        note_number(s, (uint64_t)kvern_step_position(state, r));
        note_number(s, (uint64_t)kvern_step_count(state, r));
    }
    for (size_t l = 0; l < LAYERS; l++)
        note_cache(s, kvern_state_cache(state, l));
}

static void note_others(fault_sight *s, const fault_world *w)
{
    if (w->other)
        note_cache(s, w->other);
    if (w->other_state)
        note_state(s, w->other_state);
}

static void note_memory(fault_sight *s, const fault_world *w)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w->context, &memory));
    if (!w->made_context)
        assert_int_equal(memory.held_bytes, w->books.held_bytes);
    note_number(s, memory.held_bytes);
    note_number(s, memory.page_bytes);
}

fault_sight fault_look(const fault_world *w)
{
    fault_sight s = {0};
    const kvern_cache *caches[] = {w->cache, w->cache_fork, w->later, w->later_fork};
    note_memory(&s, w);
    for (size_t i = 0; i < 4; i++) {
        note_number(&s, kvern_cache_bytes(caches[i]));
        note_cache(&s, caches[i]);
    }
    note_number(&s, kvern_state_bytes(w->state));
    note_state(&s, w->state);
    note_state(&s, w->state_fork);
    note_others(&s, w);
    return s;
}

fault_sight fault_look_at_result(const fault_world *w)
{
    fault_sight s = {0};
    note_cache(&s, w->cache);
    note_cache(&s, w->later);
    note_state(&s, w->state);
    note_others(&s, w);
    if (w->made)
        note_cache(&s, w->made);
    if (w->made_state)
        note_state(&s, w->made_state);
    note(&s, w->out ? (const void *)w->out : "", w->out_count * sizeof(float));
    return s;
}

void fault_expect_equal(const fault_sight *wanted, const fault_sight *got, const char *what)
{
    assert_int_equal(wanted->count, got->count);
    check_same_bytes(wanted->bytes, got->bytes, wanted->count, what);
}

// ---- Operations ----

static kvern_status make_context(fault_world *w)
{
    return create_context(&w->books, 0, &w->made_context);
}

static kvern_status make_composition(fault_world *w)
{
    return create_composition(w->context, &w->made_composition);
}

static kvern_status make_cache(fault_world *w)
{
    return kvern_cache_create(w->composition, 2, 5, &w->made);
}

static kvern_status make_state(fault_world *w)
{
    return kvern_state_create(w->composition, 4, &w->made_state);
}

static kvern_status fork_cache(fault_world *w)
{
    static const size_t rows[4] = {2, 0, 0, 1};
    return kvern_cache_fork(w->cache, rows, 4, &w->made);
}

static kvern_status fork_state(fault_world *w)
{
    static const size_t rows[4] = {2, 0, 0, 1};
    return kvern_state_fork(w->state, rows, 4, &w->made_state);
}

// Rows that share their pages with those that they are to join.
static kvern_status make_others(fault_world *w)
{
    static const size_t rows[2] = {2, 0};
    kvern_status status = kvern_cache_fork(w->cache, rows, 2, &w->other);
    return status ? status : kvern_state_fork(w->state, rows, 2, &w->other_state);
}

static kvern_status join_caches(fault_world *w)
{
    return kvern_cache_join(w->cache, &w->other, 1);
}

static kvern_status join_states(fault_world *w)
{
    return kvern_state_join(w->state, &w->other_state, 1);
}

static kvern_status add_rows(fault_world *w)
{
    return kvern_cache_add_rows(w->cache, 4);
}

static kvern_status add_rows_of_state(fault_world *w)
{
    return kvern_state_add_rows(w->state, 16);
}

static kvern_status extract_from_cache(fault_world *w)
{
    return kvern_cache_extract(w->cache, 2, &w->made);
}

static kvern_status extract_from_state(fault_world *w)
{
    return kvern_state_extract(w->state, 0, &w->made_state);
}

static kvern_status append_to(kvern_cache *cache, const int64_t *counts, kvern_phase phase,
                              kvern_read **read)
{
    feed f = feed_create(cache, sequences, counts, QUERY_HEADS);
    kvern_status status = feed_append(cache, phase, &f, read);
    feed_destroy(&f);
    return status;
}

static kvern_status append(fault_world *w, const int64_t *counts, kvern_phase phase,
                           kvern_read **read)
{
    return append_to(w->cache, counts, phase, read);
}

// Row 0 converts pages that a fork shares, row 1 its own, and row 2 drops pages that are shared.
static kvern_status append_converting(fault_world *w)
{
    static const int64_t counts[ROWS] = {1, 130, 70};
    return append_to(w->later, counts, KVERN_PHASE_WINDOW, NULL);
}

// The same with a read, which keeps row 1 in bf16 too.
static kvern_status append_converting_read(fault_world *w)
{
    static const int64_t counts[ROWS] = {1, 130, 70};
    return append_to(w->later, counts, KVERN_PHASE_WINDOW, &w->made_read);
}

// Rows that nobody shares, in whose own tables pages are dropped and used again.
static kvern_status let_go_of_forks(fault_world *w)
{
    kvern_cache_destroy(w->later_fork);
    w->later_fork = NULL;
    return kvern_cache_fork(w->later, NULL, 0, &w->later_fork); // something to look at
}

static kvern_status append_recycling(fault_world *w)
{
    static const int64_t counts[ROWS] = {0, 1, 1};
    return append_to(w->later, counts, KVERN_PHASE_DECODE, &w->made_read);
}

static kvern_status reserve_later(fault_world *w)
{
    return kvern_cache_reserve(w->later, 2, 900, QUERY_HEADS);
}

// Rows 0 and 2 are shared with a fork and a read: tables and partly filled pages are copied.
static kvern_status append_decode(fault_world *w)
{
    static const int64_t counts[ROWS] = {1, 1, 1};
    return append(w, counts, KVERN_PHASE_DECODE, &w->made_read);
}

// Across pages, into tables that must grow.
static kvern_status append_window(fault_world *w)
{
    static const int64_t counts[ROWS] = {700, 65, 3};
    return append(w, counts, KVERN_PHASE_WINDOW, &w->made_read);
}

static kvern_status append_known(fault_world *w)
{
    static const int64_t counts[ROWS] = {0, 130, 0};
    return append(w, counts, KVERN_PHASE_KNOWN, NULL);
}

static kvern_status reserve_cache(fault_world *w)
{
    return kvern_cache_reserve(w->cache, 2, 900, QUERY_HEADS);
}

static kvern_status reserve_state(fault_world *w)
{
    return kvern_state_reserve(w->state, 0, 900, QUERY_HEADS);
}

static kvern_status attend(fault_world *w)
{
    kvern_queries queries = w->last.queries;
    if (!w->out) {
        w->out_count = w->last.out_count;
        w->out = calloc(w->out_count, sizeof *w->out);
        assert_non_null(w->out);
    }
    queries.out = w->out;
    return kvern_read_attend(w->read, &queries);
}

static kvern_status begin_step(fault_world *w)
{
    static const int64_t counts[ROWS] = {1, 700, 66};
    return kvern_step_begin(w->state, KVERN_PHASE_WINDOW, counts);
}

static kvern_status append_in_step(fault_world *w)
{
    static const int64_t counts[ROWS] = {1, 700, 66};
    feed f = feed_create(kvern_state_cache(w->state, 1), sequences, counts, QUERY_HEADS);
    kvern_status status = feed_step_append(w->state, 1, &f, &w->made_read);
    feed_destroy(&f);
    return status;
}

// All layers append; what is left is the end of the step, with conversions of shared rows and
// others.
static kvern_status append_whole_step(fault_world *w)
{
    static const int64_t counts[ROWS] = {30, 700, 66};
    kvern_status status = kvern_step_begin(w->state, KVERN_PHASE_WINDOW, counts);
    for (size_t l = 0; !status && l < LAYERS; l++) {
        feed f = feed_create(kvern_state_cache(w->state, l), sequences, counts, QUERY_HEADS);
        status = feed_step_append(w->state, l, &f, NULL);
        feed_destroy(&f);
    }
    return status;
}

static kvern_status end_step(fault_world *w)
{
    return kvern_step_end(w->state);
}

// A decode step in which layer 0 is written by slots; a read holds the pages of its rows.
static kvern_status begin_slots(fault_world *w)
{
    static const int64_t one[ROWS] = {1, 1, 1}, none[ROWS] = {0, 0, 0};
    kvern_status status = kvern_step_begin(w->state, KVERN_PHASE_DECODE, one);
    if (!status)
        status = kvern_cache_read_donor(kvern_state_cache(w->state, 0), none, &w->other_read);
    return status;
}

static kvern_status write_slot(fault_world *w)
{
    float k[3 * 16], v[3 * 16];
    feed_values(5, 5, FEED_K, 3 * 16, k);
    feed_values(5, 5, FEED_V, 3 * 16, v);
    return kvern_step_write(w->state, 0, 2, KVERN_F32, k, v);
}

static kvern_status write_slots(fault_world *w)
{
    float k[3 * 16] = {1}, v[3 * 16] = {2};
    kvern_status status = begin_slots(w);
    for (size_t r = 0; r < ROWS && !status; r++)
        status = kvern_step_write(w->state, 0, r, KVERN_F32, k, v);
    return status;
}

static kvern_status finish_slots(fault_world *w)
{
    return kvern_step_slots_done(w->state, 0, &w->made_read);
}

// Row 0 gets as far as a conversion, in pages that the fork of the state shares.
static const int64_t drafts[ROWS] = {1, 5, 4};

static kvern_status begin_round(fault_world *w)
{
    return kvern_round_begin(w->state, drafts);
}

static kvern_status begin_step_of_round(fault_world *w)
{
    return kvern_step_begin(w->state, KVERN_PHASE_WINDOW, drafts);
}

static kvern_status draft(fault_world *w)
{
    kvern_status status = begin_round(w);
    return status ? status : run_step(w->state, drafts);
}

static kvern_status commit_round(fault_world *w)
{
    return kvern_round_commit(w->state);
}

static kvern_status roll_back(fault_world *w)
{
    static const int64_t keep[ROWS] = {1, 0, 2};
    return kvern_round_rollback(w->state, keep);
}

void fault_expect_nothing_made(const fault_world *w)
{
    assert_null(w->made);
    assert_null(w->made_state);
    assert_null(w->made_read);
    assert_null(w->made_composition);
    assert_null(w->made_context);
}

const fault_operation fault_operations[] = {
    {"context_creation", NULL, make_context},
    {"composition_creation", NULL, make_composition},
    {"cache_creation", NULL, make_cache},
    {"state_creation", NULL, make_state},
    {"cache_fork", NULL, fork_cache},
    {"state_fork", NULL, fork_state},
    {"cache_extract", NULL, extract_from_cache},
    {"state_extract", NULL, extract_from_state},
    {"cache_join", make_others, join_caches},
    {"state_join", make_others, join_states},
    {"cache_add_rows", NULL, add_rows},
    {"state_add_rows", NULL, add_rows_of_state},
    {"append_decode", NULL, append_decode},
    {"append_window", NULL, append_window},
    {"append_known", NULL, append_known},
    {"cache_reserve", NULL, reserve_cache},
    {"state_reserve", NULL, reserve_state},
    {"read_attend", NULL, attend},
    {"step_begin", NULL, begin_step},
    {"step_append", begin_step, append_in_step},
    {"append_converting", NULL, append_converting},
    {"append_converting_read", NULL, append_converting_read},
    {"append_recycling", let_go_of_forks, append_recycling},
    {"reserve_window", let_go_of_forks, reserve_later},
    {"step_end", append_whole_step, end_step},
    {"step_write", begin_slots, write_slot},
    {"step_slots_done", write_slots, finish_slots},
    {"step_begin_in_round", begin_round, begin_step_of_round},
    {"round_commit", draft, commit_round},
    {"round_rollback", draft, roll_back},
};

const size_t fault_operation_count = sizeof fault_operations / sizeof fault_operations[0];
