// SPDX-License-Identifier: MIT
// Reads of selected positions give the bits of a dense read of a row that holds these positions and
// no others: each query with a selection of its own, in all storages, on any kernels and threads,
// and in rounds.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 4
#define MOST_HEADS 48

// A cache whose last append is read, with the tokens of sequence r + 1 in row r.
typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    feed last;
    size_t rows, heads;
} world;

static void world_create(world *w, const kvern_layer *layer, size_t rows, size_t heads,
                         uint32_t features, kvern_executor executor)
{
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books); // what was never written is NaN
    options.cpu_features = features;
    options.executor = executor;
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, layer, 1, &w->composition));
    assert_ok(kvern_cache_create(w->composition, 0, rows, &w->cache));
    w->rows = rows;
    w->heads = heads;
}

// Rows become lengths[r] long, and are read at their last counts[r] positions.
static void world_fill(world *w, const int64_t *lengths, const int64_t *counts)
{
    uint64_t sequences[MOST_ROWS];
    int64_t before[MOST_ROWS];
    for (size_t r = 0; r < w->rows; r++) {
        sequences[r] = r + 1;
        before[r] = lengths[r] - counts[r];
    }
    feed_run(w->cache, KVERN_PHASE_WINDOW, sequences, before, 1, NULL);
    w->last = feed_create(w->cache, sequences, counts, w->heads);
    assert_ok(feed_append(w->cache, KVERN_PHASE_WINDOW, &w->last, &w->read));
}

static void world_destroy(world *w)
{
    feed_destroy(&w->last);
    kvern_read_release(w->read);
    kvern_cache_destroy(w->cache);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

// ---- Selections ----

typedef struct lists {
    size_t queries;
    int64_t stride;
    int64_t *positions, *counts;
    kvern_selection selection;
} lists;

static lists lists_create(size_t queries, int64_t stride)
{
    lists l = {.queries = queries, .stride = stride};
    l.positions = malloc((queries * (size_t)stride + 1) * sizeof *l.positions);
    l.counts = malloc((queries + 1) * sizeof *l.counts);
    assert_true(l.positions && l.counts);
    l.selection = kvern_selection_default(l.positions, l.counts, queries, stride);
    l.selection.queries = queries;
    return l;
}

static void lists_destroy(lists *l)
{
    free(l->positions);
    free(l->counts);
}

// About `share` of 1000 positions up to the query's own, which has to be there when nothing else
// is.
static void choose(lists *l, test_random *random, size_t query, int64_t position, uint64_t share)
{
    int64_t *to = l->positions + (int64_t)query * l->stride, count = 0;
    for (int64_t p = 0; p <= position; p++)
        if (test_random_below(random, 1000) < share)
            to[count++] = p;
    if (count == 0)
        to[count++] = (int64_t)test_random_below(random, (uint64_t)position + 1);
    l->counts[query] = count;
}

static void choose_for_all(lists *l, test_random *random, const int64_t *lengths,
                           const int64_t *counts, size_t rows)
{
    static const uint64_t shares[] = {0, 3, 30, 300, 900, 1000};
    size_t query = 0;
    for (size_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < counts[r]; i++)
            choose(l, random, query++, lengths[r] - counts[r] + i,
                   shares[test_random_below(random, 6)]);
}

// ---- What results should be ----

// A row with the tokens of a sequence at the listed positions.
static void append_listed(kvern_cache *cache, uint64_t sequence, const int64_t *positions,
                          int64_t count, kvern_read **read)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t k = layer->kv_heads * layer->k_dim, v = layer->kv_heads * layer->v_dim;
    kvern_tokens tokens = kvern_tokens_default(layer);
    float *keys = malloc((size_t)count * k * sizeof *keys);
    float *values = malloc((size_t)count * v * sizeof *values);
    assert_true(keys && values);
    for (int64_t i = 0; i < count; i++) {
        feed_values(sequence, positions[i], FEED_K, k, keys + (size_t)i * k);
        feed_values(sequence, positions[i], FEED_V, v, values + (size_t)i * v);
    }
    tokens.k = keys;
    tokens.v = values;
    tokens.counts = &count;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, read));
    free(keys);
    free(values);
}

// The result of one query over such a row, on plain kernels and one thread.
static void attend_listed(const kvern_layer *layer, const kvern_queries *options, uint64_t sequence,
                          int64_t position, const int64_t *positions, int64_t count, float *out)
{
    world w;
    world_create(&w, layer, 1, options->query_heads, 0, executor_backwards(1));
    append_listed(w.cache, sequence, positions, count, &w.read);
    const int64_t one = 1, first = count - 1;
    float q[MOST_HEADS * 128];
    feed_values(sequence, position, FEED_Q, options->query_heads * layer->k_dim, q);
    kvern_queries queries = *options;
    queries.selection = NULL;
    queries.q = q;
    queries.out = out;
    queries.counts = &one;
    queries.first = &first;
    assert_ok(kvern_read_attend(w.read, &queries));
    world_destroy(&w);
}

static void expect_listed(const world *w, const lists *l, const kvern_queries *options,
                          const int64_t *lengths, const int64_t *counts, const float *got,
                          const char *what)
{
    const kvern_layer *layer = kvern_cache_layer(w->cache);
    const size_t token = w->heads * layer->v_dim;
    float *wanted = malloc(token * sizeof *wanted);
    assert_non_null(wanted);
    size_t query = 0;
    for (size_t r = 0; r < w->rows; r++) {
        for (int64_t i = 0; i < counts[r]; i++, query++) {
            attend_listed(layer, options, r + 1, lengths[r] - counts[r] + i,
                          l->positions + (int64_t)query * l->stride, l->counts[query], wanted);
            check_same_bytes(wanted, got + query * token, token * sizeof *wanted, what);
        }
    }
    free(wanted);
}

// ---- Tests ----

static kvern_executor executor_number(size_t i)
{
    switch (i % 5) {
    case 0:
        return executor_backwards(1);
    case 1:
        return executor_shuffled(3);
    case 2:
        return executor_threads(4);
    case 3:
        return executor_odd_environment(2);
    default:
        return executor_backwards(16);
    }
}

static uint32_t features_number(size_t i)
{
    const kernel_variants variants = kernel_variants_here();
    return variants.features[variants.count - 1 - i % variants.count];
}

static void check_lengths(const kvern_layer *layer, const char *name, size_t number, size_t heads,
                          const int64_t *lengths, const int64_t *counts, size_t rows)
{
    static const float sinks[MOST_HEADS] = {0.5f, -3, 7};
    test_random random = test_random_seed(check_seed() + number);
    world w;
    world_create(&w, layer, rows, heads, features_number(number), executor_number(number));
    world_fill(&w, lengths, counts);
    size_t queries = 0;
    int64_t longest = 1;
    for (size_t r = 0; r < rows; r++) {
        queries += (size_t)counts[r];
        longest = lengths[r] > longest ? lengths[r] : longest;
    }
    lists l = lists_create(queries, longest);
    choose_for_all(&l, &random, lengths, counts, rows);
    kvern_queries q = w.last.queries;
    q.sinks = number % 3 == 0 ? sinks : NULL;
    q.softcap = number % 4 == 0 ? 20 : 0;
    q.selection = &l.selection;
    assert_ok(kvern_read_attend(w.read, &q));
    expect_listed(&w, &l, &q, lengths, counts, w.last.out, name);
    lists_destroy(&l);
    world_destroy(&w);
}

static void selected_reads_equal_rows_of_the_selected(void **state)
{
    (void)state;
    static const int64_t lengths[MOST_ROWS] = {300, 1, 1100, 64}, counts[] = {3, 1, 2, 4};
    for (size_t s = 0; s < storage_count; s++) {
        if (storages[s].start != KVERN_NO_START || storages[s].residual)
            continue; // a selection there is refused
        const kvern_layer layer = storage_layer(&storages[s], 2, 64);
        check_lengths(&layer, storages[s].name, s, 6, lengths, counts, MOST_ROWS);
    }
}

// Many vectors of one KV head, keys and values of different dims, and a row without a query.
static void many_heads_share_a_selection(void **state)
{
    (void)state;
    static const int64_t lengths[MOST_ROWS] = {2500, 70, 130}, counts[] = {4, 0, 1};
    kvern_layer layer = storage_layer(&storages[0], 1, 72);
    layer.v_dim = 40;
    for (size_t i = 0; i < (HAS_SANITIZER ? 2 : 5); i++)
        check_lengths(&layer, "many heads", i, MOST_HEADS, lengths, counts, 3);
}

// More queries than a round takes, of which each copies pages.
static void rounds_change_no_bit(void **state)
{
    (void)state;
    static const int64_t lengths[MOST_ROWS] = {1500, 1300},
                         counts[] = {HAS_SANITIZER ? 20 : 60, 10};
    kvern_layer layer = kvern_layer_default(8, 128);
    layer.k_codec = layer.v_codec = kvern_codec_dense(KVERN_F32);
    check_lengths(&layer, "rounds", 2, 8, lengths, counts, 2);
}

// All that is seen, by name.
static void a_selection_of_everything_is_the_dense_read(void **state)
{
    (void)state;
    static const int64_t lengths[MOST_ROWS] = {70, 1, 2200}, counts[] = {70, 1, 30};
    for (size_t s = 0; s < storage_count; s++) {
        if (storages[s].residual)
            continue; // a selection there is refused
        const kvern_layer layer = storage_layer(&storages[s], 2, 64);
        world w;
        world_create(&w, &layer, 3, 8, features_number(s), executor_number(s));
        world_fill(&w, lengths, counts);
        lists l = lists_create(101, 2200);
        test_random random = test_random_seed(1);
        for (size_t query = 0, r = 0; r < 3; r++)
            for (int64_t i = 0; i < counts[r]; i++)
                choose(&l, &random, query++, lengths[r] - counts[r] + i, 1000);
        assert_ok(kvern_read_attend(w.read, &w.last.queries));
        float *selected = malloc(w.last.out_count * sizeof *selected);
        assert_non_null(selected);
        kvern_queries q = w.last.queries;
        q.selection = &l.selection;
        q.out = selected;
        assert_ok(kvern_read_attend(w.read, &q));
        check_same_bytes(w.last.out, selected, w.last.out_count * sizeof *selected,
                         storages[s].name);
        free(selected);
        lists_destroy(&l);
        world_destroy(&w);
    }
}

// Queries of some tokens of the append, which lie anywhere in the caller's tensors.
static void a_selection_belongs_to_the_queries_of_the_call(void **state)
{
    (void)state;
    static const int64_t lengths[MOST_ROWS] = {200, 90}, counts[] = {10, 5};
    static const int64_t some[] = {2, 1}, first[] = {7, 3}, q_start[] = {7, 13},
                         out_start[] = {2, 0};
    const kvern_layer layer = kvern_layer_default(1, 64);
    const size_t heads = 4, token = heads * 64;
    world w;
    world_create(&w, &layer, 2, heads, features_number(0), executor_number(1));
    world_fill(&w, lengths, counts);
    lists l = lists_create(3, 200);
    test_random random = test_random_seed(2);
    choose(&l, &random, 0, 197, 400);
    choose(&l, &random, 1, 198, 100);
    choose(&l, &random, 2, 88, 500);
    float out[4 * 256], wanted[256];
    kvern_queries q = w.last.queries;
    q.selection = &l.selection;
    q.counts = some, q.first = first, q.q_start = q_start, q.out_start = out_start;
    q.out = out;
    memset(out, 0, sizeof out);
    assert_ok(kvern_read_attend(w.read, &q));
    static const struct {
        size_t out, query;
        uint64_t sequence;
        int64_t position;
    } results[] = {{2, 0, 1, 197}, {3, 1, 1, 198}, {0, 2, 2, 88}};
    const kvern_queries options = kvern_queries_default(&layer, heads);
    for (size_t i = 0; i < 3; i++) {
        attend_listed(&layer, &options, results[i].sequence, results[i].position,
                      l.positions + (int64_t)results[i].query * l.stride,
                      l.counts[results[i].query], wanted);
        check_same_bytes(wanted, out + results[i].out * token, sizeof wanted, "some queries");
    }
    lists_destroy(&l);
    world_destroy(&w);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selected_reads_equal_rows_of_the_selected),
        cmocka_unit_test(many_heads_share_a_selection),
        cmocka_unit_test(rounds_change_no_bit),
        cmocka_unit_test(a_selection_of_everything_is_the_dense_read),
        cmocka_unit_test(a_selection_belongs_to_the_queries_of_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
