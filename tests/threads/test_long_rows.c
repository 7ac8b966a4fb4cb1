// SPDX-License-Identifier: MIT
// How attends of long rows are shared among threads: all of them have work however long the rows
// are, with scratch that does not grow with the rows; and what is cut, in whatever order it is
// done, gives the bits of one thread.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 40

// ---- How many threads have work ----

// Counts the tasks of a run and leaves them undone: how much work there is does not matter here.
static void count_tasks(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    size_t *most = user;
    (void)task;
    (void)arg;
    *most = tasks > *most ? tasks : *most;
}

static kvern_context *new_context(kvern_executor executor, ledger *books)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.executor = executor;
    if (books)
        options.allocator = ledger_allocator(books);
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

static kvern_cache *new_cache(kvern_context *context, const kvern_layer *layer, size_t rows)
{
    kvern_composition *composition;
    kvern_cache *cache;
    assert_ok(kvern_composition_create(context, layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, rows, &cache));
    kvern_composition_release(composition);
    return cache;
}

// Zeros: what is stored does not matter either.
static void append_zeros(kvern_cache *cache, const int64_t *counts, kvern_read **read)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t dims = layer->k_dim > layer->v_dim ? layer->k_dim : layer->v_dim;
    float *zeros = calloc(layer->kv_heads * dims, sizeof *zeros);
    kvern_tokens tokens = kvern_tokens_default(layer);
    tokens.k = tokens.v = zeros;
    tokens.k_token_stride = tokens.v_token_stride = 0;
    tokens.counts = counts;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, read));
    free(zeros);
}

typedef struct shape {
    size_t kv_heads, query_heads, k_dim, v_dim, threads;
} shape;

static uint64_t held_bytes(const kvern_context *context)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(context, &memory));
    return memory.held_bytes;
}

// Tasks of a decode of rows with these lengths. *scratch (may be NULL): the bytes that it takes.
static size_t tasks_of(const shape *s, const int64_t *lengths, size_t rows, uint64_t *scratch)
{
    size_t tasks = 0;
    kvern_context *context = new_context(
        (kvern_executor){.user = &tasks, .run = count_tasks, .threads = s->threads}, NULL);
    kvern_layer layer = kvern_layer_default(s->kv_heads, s->k_dim);
    layer.v_dim = s->v_dim;
    kvern_cache *cache = new_cache(context, &layer, rows);
    const kvern_layer *made = kvern_cache_layer(cache);
    int64_t counts[MOST_ROWS], ones[MOST_ROWS];
    for (size_t r = 0; r < rows; r++) {
        counts[r] = lengths[r] - 1;
        ones[r] = 1;
    }
    kvern_read *read;
    append_zeros(cache, counts, NULL);
    append_zeros(cache, ones, &read);
    const size_t dim = s->k_dim > s->v_dim ? s->k_dim : s->v_dim;
    float *q = calloc(rows * s->query_heads * dim, sizeof *q);
    kvern_queries queries = kvern_queries_default(made, s->query_heads);
    queries.q = q;
    queries.out = q;
    const uint64_t before = held_bytes(context);
    tasks = 0; // long appends have some, too
    assert_ok(kvern_read_attend(read, &queries));
    if (scratch)
        *scratch = held_bytes(context) - before;
    free(q);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_context_release(context);
    return tasks;
}

// One KV head for 128 query heads, values of 512 dims: four tiles, and spans for 64 threads, from
// 16 spans on.
static void test_one_long_row(void **state)
{
    (void)state;
    static const int64_t lengths[] = {15361, 16384, 61440, 61441, 64513, 70000};
    const shape s = {1, 128, 8, 512, 64};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        assert_int_equal(64, tasks_of(&s, &lengths[i], 1, NULL));
}

// Few threads' worth of rows, each of them long.
static void test_batch_of_long_rows(void **state)
{
    (void)state;
    int64_t lengths[16];
    const shape s = {1, 1, 8, 8, 64};
    for (size_t r = 0; r < 16; r++)
        lengths[r] = 131072;
    assert_int_equal(64, tasks_of(&s, lengths, 16, NULL));
}

// More tiles than all threads need, but nearly all of the work in one of them, which is cut: that
// shows in the scratch, which holds its partial results.
static void test_one_long_row_among_many(void **state)
{
    (void)state;
    int64_t lengths[MOST_ROWS];
    uint64_t equal, one_long;
    const shape s = {1, 1, 8, 8, 8};
    for (size_t r = 0; r < MOST_ROWS; r++)
        lengths[r] = 5000;
    assert_int_equal(8, tasks_of(&s, lengths, MOST_ROWS, &equal));
    lengths[7] = 100000;
    assert_int_equal(8, tasks_of(&s, lengths, MOST_ROWS, &one_long));
    assert_true(one_long >= equal + 2 * 8 * (2 + 8) * sizeof(float));
}

// ---- Scratch ----

// Bytes that a reservation for one row takes beside its pages.
static uint64_t scratch_of(const shape *s, int64_t tokens)
{
    size_t tasks = 0;
    kvern_context *context = new_context(
        (kvern_executor){.user = &tasks, .run = count_tasks, .threads = s->threads}, NULL);
    kvern_layer layer = kvern_layer_default(s->kv_heads, s->k_dim);
    layer.v_dim = s->v_dim;
    kvern_cache *cache = new_cache(context, &layer, 1);
    assert_ok(kvern_cache_reserve(cache, 0, tokens, 0));
    const uint64_t before = held_bytes(context);
    assert_ok(kvern_cache_reserve(cache, 0, tokens, s->query_heads));
    const uint64_t scratch = held_bytes(context) - before;
    kvern_cache_destroy(cache);
    kvern_context_release(context);
    return scratch;
}

// What docs/ARCHITECTURE.md says: 20 partial results per thread at most, however long the row.
static void test_scratch_has_a_bound(void **state)
{
    (void)state;
    const shape s = {1, 128, 8, 512, 64};
    const uint64_t partial = 32 * (2 + 512) * sizeof(float) + 64;
    const uint64_t worker = 2 * partial + 32 * (8 + 64 + 16) * sizeof(float);
    const uint64_t most = 64 * (20 * partial + worker) + 65536;
    assert_true(scratch_of(&s, 8000) <= most);
    assert_true(scratch_of(&s, 200000) <= most);
    assert_true(scratch_of(&s, 200000) < scratch_of(&s, 8000) + 64 * 20 * partial);
    assert_int_equal(scratch_of(&s, 300000), scratch_of(&s, 200000));
}

// ---- Bits ----

// A decode of the rows of one batch, with the executor.
static float *decode(const kvern_layer *layer, size_t query_heads, const int64_t *lengths,
                     size_t rows, kvern_executor executor, size_t *count)
{
    ledger books;
    ledger_init(&books);
    kvern_context *context = new_context(executor, &books);
    kvern_cache *cache = new_cache(context, layer, rows);
    uint64_t sequences[MOST_ROWS];
    int64_t before[MOST_ROWS], last[MOST_ROWS];
    for (size_t r = 0; r < rows; r++) {
        sequences[r] = 100 + r;
        last[r] = r % 2 ? 1 : 3; // a window, too: its queries see different things
        before[r] = lengths[r] - last[r];
    }
    feed_run(cache, KVERN_PHASE_WINDOW, sequences, before, query_heads, NULL);
    feed f = feed_create(cache, sequences, last, query_heads);
    kvern_read *read;
    assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, &read));
    assert_ok(kvern_read_attend(read, &f.queries));
    float *out = malloc(f.out_count * sizeof *out);
    memcpy(out, f.out, f.out_count * sizeof *out);
    *count = f.out_count;
    feed_destroy(&f);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_context_release(context);
    ledger_finish(&books);
    return out;
}

static void check_bits(const kvern_layer *layer, size_t query_heads, const int64_t *lengths,
                       size_t rows)
{
    size_t count, again;
    const kvern_executor executors[] = {executor_backwards(2), executor_shuffled(3),
                                        executor_threads(2), executor_threads(7),
                                        executor_threads(64)};
    float *wanted = decode(layer, query_heads, lengths, rows, executor_backwards(1), &count);
    for (size_t e = 0; e < sizeof executors / sizeof executors[0]; e++) {
        float *got = decode(layer, query_heads, lengths, rows, executors[e], &again);
        assert_int_equal(count, again);
        check_same_floats(wanted, got, count, "cut by spans");
        free(got);
    }
    free(wanted);
}

// Many more spans than rings have slots; with kept positions the first span is merged, not copied.
static void test_rings_go_round(void **state)
{
    (void)state;
    const int64_t long_row = 40 * 1024 + 17;
    kvern_layer layer = kvern_layer_default(1, 8);
    check_bits(&layer, 1, &long_row, 1);
    check_bits(&layer, 40, &long_row, 1); // two tiles per query that read the same pages
    layer = kvern_layer_window(1, 8, 20000);
    check_bits(&layer, 3, &long_row, 1);
    layer.keep = 2000;
    layer.slack = 8;
    check_bits(&layer, 3, &long_row, 1);
}

// Tiles of very different lengths, cut and whole ones at once.
static void test_ragged_rows(void **state)
{
    (void)state;
    int64_t lengths[24];
    const kvern_layer layer = kvern_layer_default(2, 8);
    for (size_t r = 0; r < 24; r++)
        lengths[r] = 3 + (int64_t)(r % 5) * 1100;
    lengths[4] = 30000;
    lengths[20] = 17000;
    check_bits(&layer, 4, lengths, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_long_row),
        cmocka_unit_test(test_batch_of_long_rows),
        cmocka_unit_test(test_one_long_row_among_many),
        cmocka_unit_test(test_scratch_has_a_bound),
        cmocka_unit_test(test_rings_go_round),
        cmocka_unit_test(test_ragged_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
