// SPDX-License-Identifier: MIT
// Every operation of the library with its first, second, ... last allocation refused: the status
// says so, nothing that the caller can see has changed, the same call succeeds afterwards with the
// results that it always has, and in the end everything has been given back.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 3
#define LAYERS 3
#define QUERY_HEADS 6

// ---- A world to act in ----

// What an operation works on: a cache of three rows and a state, some of whose pages are shared
// with a fork and a read. Everything is made through the ledger.
typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache, *cache_fork;
    kvern_state *state, *state_fork;
    kvern_read *read;  // of the cache's last append, held over everything
    feed last;         // the feed of that append
    kvern_cache *made; // by the operation
    kvern_state *made_state;
    kvern_composition *made_composition;
    kvern_context *made_context;
    kvern_read *made_read;
    float *out; // what the operation attended
    size_t out_count;
} world;

static const uint64_t sequences[ROWS] = {11, 12, 13};

// Layers of different geometry; two of them share a page size.
static void plan_layers(kvern_layer *layers)
{
    layers[0] = kvern_layer_default(3, 16);
    layers[1] = kvern_layer_default(2, 24);
    layers[2] = kvern_layer_default(1, 8);
    layers[2].v_dim = 40;
    layers[2].k_codec = KVERN_F32;
    layers[2].v_codec = KVERN_F16;
}

static kvern_status create_context(ledger *books, kvern_context **out)
{
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(books);
    options.threads = 2;
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
        status = kvern_step_append(state, l, &f.tokens, NULL);
        feed_destroy(&f);
    }
    if (!status)
        return kvern_step_end(state);
    kvern_step_abandon(state);
    return status;
}

static void world_fill(world *w)
{
    static const int64_t first[ROWS] = {70, 0, 130}, second[ROWS] = {1, 1, 64};
    static const size_t both[2] = {0, 2};
    feed_run(w->cache, KVERN_PHASE_WINDOW, sequences, first, QUERY_HEADS, NULL);
    assert_ok(kvern_cache_fork(w->cache, both, 2, &w->cache_fork));
    w->last = feed_create(w->cache, sequences, second, QUERY_HEADS);
    assert_ok(feed_append(w->cache, KVERN_PHASE_WINDOW, &w->last, &w->read));
    assert_ok(run_step(w->state, first));
    assert_ok(run_step(w->state, second));
    assert_ok(kvern_state_fork(w->state, both, 2, &w->state_fork));
}

static world *world_create(void)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    ledger_init(&w->books);
    assert_ok(create_context(&w->books, &w->context));
    assert_ok(create_composition(w->context, &w->composition));
    assert_ok(kvern_cache_create(w->composition, 0, ROWS, &w->cache));
    assert_ok(kvern_state_create(w->composition, ROWS, &w->state));
    world_fill(w);
    return w;
}

static void world_destroy(world *w)
{
    kvern_read_release(w->made_read);
    kvern_cache_destroy(w->made);
    kvern_state_destroy(w->made_state);
    kvern_composition_release(w->made_composition);
    kvern_context_release(w->made_context);
    kvern_read_release(w->read);
    kvern_cache_destroy(w->cache_fork);
    kvern_cache_destroy(w->cache);
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

// A growing list of bytes; two worlds look the same when their lists are equal.
typedef struct sight {
    unsigned char *bytes;
    size_t count, capacity;
} sight;

static void note(sight *s, const void *bytes, size_t count)
{
    if (s->count + count > s->capacity) {
        s->capacity = 2 * (s->count + count);
        s->bytes = realloc(s->bytes, s->capacity);
        assert_non_null(s->bytes);
    }
    memcpy(s->bytes + s->count, bytes, count);
    s->count += count;
}

static void note_number(sight *s, uint64_t number)
{
    note(s, &number, sizeof number);
}

static void note_cache(sight *s, const kvern_cache *cache)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    note_number(s, kvern_cache_bytes(cache));
    for (size_t r = 0; r < kvern_cache_rows(cache); r++) {
        const int64_t length = kvern_cache_length(cache, r);
        const size_t k = (size_t)length * layer->kv_heads * layer->k_dim;
        const size_t v = (size_t)length * layer->kv_heads * layer->v_dim;
        float *values = malloc((k + v + 1) * sizeof *values);
        assert_non_null(values);
        assert_ok(kvern_cache_export(cache, r, 0, length, values, values + k));
        note_number(s, (uint64_t)length);
        note(s, values, (k + v) * sizeof *values);
        free(values);
    }
}

static void note_state(sight *s, const kvern_state *state)
{
    note_number(s, kvern_state_bytes(state));
    for (size_t r = 0; r < kvern_state_rows(state); r++) {
        note_number(s, (uint64_t)kvern_state_length(state, r));
        note_number(s, (uint64_t)kvern_step_position(state, r));
        note_number(s, (uint64_t)kvern_step_count(state, r));
    }
    for (size_t l = 0; l < LAYERS; l++)
        note_cache(s, kvern_state_cache(state, l));
}

static void note_memory(sight *s, const world *w)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w->context, &memory));
    if (!w->made_context)
        assert_int_equal(memory.held_bytes, w->books.held_bytes);
    note_number(s, memory.held_bytes);
    note_number(s, memory.page_bytes);
}

static sight look(const world *w)
{
    sight s = {0};
    note_memory(&s, w);
    note_cache(&s, w->cache);
    note_cache(&s, w->cache_fork);
    note_state(&s, w->state);
    note_state(&s, w->state_fork);
    return s;
}

// What can be seen without the memory counters, and what the operation attended.
static sight look_at_result(const world *w)
{
    sight s = {0};
    note_cache(&s, w->cache);
    note_state(&s, w->state);
    if (w->made)
        note_cache(&s, w->made);
    if (w->made_state)
        note_state(&s, w->made_state);
    note(&s, w->out ? (const void *)w->out : "", w->out_count * sizeof(float));
    return s;
}

static void expect_equal(const sight *wanted, const sight *got, const char *what)
{
    assert_int_equal(wanted->count, got->count);
    check_same_bytes(wanted->bytes, got->bytes, wanted->count, what);
}

// ---- Operations ----

static kvern_status make_context(world *w)
{
    return create_context(&w->books, &w->made_context);
}

static kvern_status make_composition(world *w)
{
    return create_composition(w->context, &w->made_composition);
}

static kvern_status make_cache(world *w)
{
    return kvern_cache_create(w->composition, 2, 5, &w->made);
}

static kvern_status make_state(world *w)
{
    return kvern_state_create(w->composition, 4, &w->made_state);
}

static kvern_status fork_cache(world *w)
{
    static const size_t rows[4] = {2, 0, 0, 1};
    return kvern_cache_fork(w->cache, rows, 4, &w->made);
}

static kvern_status fork_state(world *w)
{
    static const size_t rows[4] = {2, 0, 0, 1};
    return kvern_state_fork(w->state, rows, 4, &w->made_state);
}

static kvern_status append(world *w, const int64_t *counts, kvern_phase phase, kvern_read **read)
{
    feed f = feed_create(w->cache, sequences, counts, QUERY_HEADS);
    kvern_status status = feed_append(w->cache, phase, &f, read);
    feed_destroy(&f);
    return status;
}

// Rows 0 and 2 are shared with a fork and a read: tables and partly filled pages are copied.
static kvern_status append_decode(world *w)
{
    static const int64_t counts[ROWS] = {1, 1, 1};
    return append(w, counts, KVERN_PHASE_DECODE, &w->made_read);
}

// Across pages, into tables that must grow.
static kvern_status append_window(world *w)
{
    static const int64_t counts[ROWS] = {700, 65, 3};
    return append(w, counts, KVERN_PHASE_WINDOW, &w->made_read);
}

static kvern_status append_known(world *w)
{
    static const int64_t counts[ROWS] = {0, 130, 0};
    return append(w, counts, KVERN_PHASE_KNOWN, NULL);
}

static kvern_status reserve_cache(world *w)
{
    return kvern_cache_reserve(w->cache, 2, 900, QUERY_HEADS);
}

static kvern_status reserve_state(world *w)
{
    return kvern_state_reserve(w->state, 0, 900, QUERY_HEADS);
}

static kvern_status attend(world *w)
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

static kvern_status begin_step(world *w)
{
    static const int64_t counts[ROWS] = {1, 700, 66};
    return kvern_step_begin(w->state, KVERN_PHASE_WINDOW, counts);
}

static kvern_status append_in_step(world *w)
{
    static const int64_t counts[ROWS] = {1, 700, 66};
    feed f = feed_create(kvern_state_cache(w->state, 1), sequences, counts, QUERY_HEADS);
    kvern_status status = kvern_step_append(w->state, 1, &f.tokens, &w->made_read);
    feed_destroy(&f);
    return status;
}

// ---- The trial ----

typedef kvern_status action(world *w);

// Runs `act` in new worlds (after `before`), refusing one allocation after the other, until nothing
// is left to refuse. Returns how often it was refused.
static size_t try_every_refusal(action *before, action *act, const char *name)
{
    world *perfect = world_create();
    if (before)
        assert_ok(before(perfect));
    assert_ok(act(perfect));
    sight wanted = look_at_result(perfect);
    bool refused = true;
    size_t count = 0;
    for (int64_t k = 0; refused; k++) {
        world *w = world_create();
        if (before)
            assert_ok(before(w));
        sight was = look(w);
        ledger_refuse(&w->books, k);
        kvern_status status = act(w);
        refused = ledger_relent(&w->books);
        count += refused;
        if (status) { // a refused arena may be replaced by a smaller one
            assert_true(refused);
            assert_status(KVERN_ERR_MEMORY, status);
            assert_true(kvern_error_detail()[0]);
            assert_null(w->made);
            assert_null(w->made_state);
            assert_null(w->made_read);
            assert_null(w->made_composition);
            assert_null(w->made_context);
            sight is = look(w);
            expect_equal(&was, &is, name);
            free(is.bytes);
            assert_ok(act(w));
        }
        sight result = look_at_result(w);
        expect_equal(&wanted, &result, name);
        free(result.bytes);
        free(was.bytes);
        world_destroy(w);
    }
    free(wanted.bytes);
    world_destroy(perfect);
    return count;
}

#define REFUSAL_TEST(name, before, act)                                                            \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(try_every_refusal(before, act, #name) > 0);                                    \
    }

REFUSAL_TEST(context_creation, NULL, make_context)
REFUSAL_TEST(composition_creation, NULL, make_composition)
REFUSAL_TEST(cache_creation, NULL, make_cache)
REFUSAL_TEST(state_creation, NULL, make_state)
REFUSAL_TEST(cache_fork, NULL, fork_cache)
REFUSAL_TEST(state_fork, NULL, fork_state)
REFUSAL_TEST(decode_append, NULL, append_decode)
REFUSAL_TEST(window_append, NULL, append_window)
REFUSAL_TEST(known_append, NULL, append_known)
REFUSAL_TEST(cache_reserve, NULL, reserve_cache)
REFUSAL_TEST(state_reserve, NULL, reserve_state)
REFUSAL_TEST(read_attend, NULL, attend)
REFUSAL_TEST(step_begin, NULL, begin_step)
REFUSAL_TEST(step_append, begin_step, append_in_step)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_creation), cmocka_unit_test(composition_creation),
        cmocka_unit_test(cache_creation),   cmocka_unit_test(state_creation),
        cmocka_unit_test(cache_fork),       cmocka_unit_test(state_fork),
        cmocka_unit_test(decode_append),    cmocka_unit_test(window_append),
        cmocka_unit_test(known_append),     cmocka_unit_test(cache_reserve),
        cmocka_unit_test(state_reserve),    cmocka_unit_test(read_attend),
        cmocka_unit_test(step_begin),       cmocka_unit_test(step_append),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
