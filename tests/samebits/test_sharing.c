// SPDX-License-Identifier: MIT
// Rows that were forked from one another, attended together, give the bits that each of them gives
// alone: trees of forks with prefixes of every depth, in every order, with all storages and
// windows, more vectors than a tile holds, on any kernels and threads.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 14
#define MOST_APPENDS 24
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// All appends of a row since its beginning, those before its forks included.
typedef struct history {
    uint64_t sequence[MOST_APPENDS];
    int64_t tokens[MOST_APPENDS];
    size_t appends;
} history;

// A batch whose rows fork and grow.
typedef struct family {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    size_t query_heads;
    uint64_t next_sequence;
    history rows[MOST_ROWS];
    size_t row_count;
} family;

static void family_create(family *f, const kvern_layer *layer, size_t query_heads,
                          uint32_t features, kvern_executor executor)
{
    memset(f, 0, sizeof *f);
    ledger_init(&f->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&f->books); // what was never written is NaN
    options.cpu_features = features;
    options.executor = executor;
    assert_ok(kvern_context_create(&options, &f->context));
    assert_ok(kvern_composition_create(f->context, layer, 1, &f->composition));
    assert_ok(kvern_cache_create(f->composition, 0, 1, &f->cache));
    f->query_heads = query_heads;
    f->next_sequence = 1;
    f->row_count = 1;
}

static void family_destroy(family *f)
{
    kvern_cache_destroy(f->cache);
    kvern_composition_release(f->composition);
    kvern_context_release(f->context);
    ledger_finish(&f->books);
}

// The batch becomes rows[0 .. count - 1] of what it was.
static void family_fork(family *f, const size_t *rows, size_t count)
{
    kvern_cache *fork;
    history of_rows[MOST_ROWS];
    assert_ok(kvern_cache_fork(f->cache, rows, count, &fork));
    for (size_t r = 0; r < count; r++)
        of_rows[r] = f->rows[rows[r]];
    memcpy(f->rows, of_rows, count * sizeof of_rows[0]);
    kvern_cache_destroy(f->cache);
    f->cache = fork;
    f->row_count = count;
}

// Appends tokens of new sequences, different ones in each row. Results go to `out`, packed; or
// NULL.
static void family_append(family *f, kvern_phase phase, const int64_t *counts, float *out)
{
    uint64_t sequences[MOST_ROWS];
    for (size_t r = 0; r < f->row_count; r++) {
        history *row = &f->rows[r];
        sequences[r] = f->next_sequence++;
        if (counts[r] == 0)
            continue;
        assert_true(row->appends < MOST_APPENDS);
        row->sequence[row->appends] = sequences[r];
        row->tokens[row->appends++] = counts[r];
    }
    feed_run(f->cache, phase, sequences, counts, out ? f->query_heads : 1, out);
}

// The results of a row's last append when there is no other row, on plain kernels and one thread.
static float *alone(const kvern_layer *layer, size_t query_heads, const history *row)
{
    family f;
    family_create(&f, layer, query_heads, 0, executor_backwards(1));
    const size_t last = row->appends - 1;
    float *out = malloc((size_t)row->tokens[last] * query_heads * layer->v_dim * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < last; i++)
        feed_one(f.cache, KVERN_PHASE_WINDOW, row->sequence[i], row->tokens[i], 1, NULL);
    feed_one(f.cache, KVERN_PHASE_WINDOW, row->sequence[last], row->tokens[last], query_heads, out);
    family_destroy(&f);
    return out;
}

// Appends counts[r] tokens to each row, attends them together, and compares each row with itself
// alone.
static void expect_alone(family *f, kvern_phase phase, const int64_t *counts, const char *what)
{
    const kvern_layer *layer = kvern_cache_layer(f->cache);
    const size_t token = f->query_heads * layer->v_dim;
    size_t tokens = 0, done = 0;
    for (size_t r = 0; r < f->row_count; r++)
        tokens += (size_t)counts[r];
    float *out = malloc((tokens * token + 1) * sizeof *out);
    assert_non_null(out);
    family_append(f, phase, counts, out);
    for (size_t r = 0; r < f->row_count; r++) {
        if (counts[r] == 0)
            continue;
        float *wanted = alone(layer, f->query_heads, &f->rows[r]);
        check_same_bytes(wanted, out + done * token, (size_t)counts[r] * token * sizeof *out, what);
        done += (size_t)counts[r];
        free(wanted);
    }
    free(out);
}

// ---- Where it is done ----

static kvern_executor executor_number(size_t i)
{
    switch (i % 6) {
    case 0:
        return executor_backwards(1);
    case 1:
        return executor_shuffled(2);
    case 2:
        return executor_threads(3);
    case 3:
        return executor_odd_environment(2);
    case 4:
        return executor_backwards(7);
    default:
        return executor_shuffled(5);
    }
}

static uint32_t features_number(size_t i)
{
    const kernel_variants variants = kernel_variants_here();
    return variants.features[variants.count - 1 - i % variants.count];
}

// ---- Trees of forks ----

static void fork_at_random(family *f, test_random *random, size_t count)
{
    size_t rows[MOST_ROWS];
    for (size_t r = 0; r < count; r++)
        rows[r] = test_random_below(random, f->row_count);
    family_fork(f, rows, count);
}

static void append_at_random(family *f, test_random *random, int64_t most)
{
    int64_t counts[MOST_ROWS];
    for (size_t r = 0; r < f->row_count; r++)
        counts[r] = (int64_t)test_random_below(random, (uint64_t)most);
    family_append(f, KVERN_PHASE_WINDOW, counts, NULL);
}

// Grows a tree to some rows, in an order in which relatives need not be neighbours.
static void grow(family *f, test_random *random, int64_t root)
{
    family_append(f, KVERN_PHASE_WINDOW, &root, NULL);
    fork_at_random(f, random, 2 + test_random_below(random, 2));
    append_at_random(f, random, 90);
    fork_at_random(f, random, 4 + test_random_below(random, 3));
    append_at_random(f, random, 70);
    fork_at_random(f, random, 6 + test_random_below(random, MOST_ROWS - 5));
}

// Decodes, verify windows of several tokens per row, and rows that stand aside.
static void expect_steps_alone(family *f, test_random *random, const char *what)
{
    int64_t counts[MOST_ROWS];
    for (size_t r = 0; r < f->row_count; r++)
        counts[r] = 1;
    expect_alone(f, KVERN_PHASE_DECODE, counts, what);
    for (size_t r = 0; r < f->row_count; r++)
        counts[r] = (int64_t)test_random_below(random, 6);
    expect_alone(f, KVERN_PHASE_WINDOW, counts, what);
    for (size_t r = 0; r < f->row_count; r++)
        counts[r] = r % 5 == 0 ? 40 : 1; // more vectors than a tile beside few
    expect_alone(f, KVERN_PHASE_KNOWN, counts, what);
}

static void check_tree(const kvern_layer *layer, size_t group, size_t number, int64_t root)
{
    char what[160];
    test_random random = test_random_seed(check_seed() + number);
    family f;
    family_create(&f, layer, layer->kv_heads * group, features_number(number),
                  executor_number(number / 2));
    snprintf(what, sizeof what, "%s, group %zu, tree %zu", kvern_cache_signature(f.cache), group,
             number);
    grow(&f, &random, root);
    expect_steps_alone(&f, &random, what);
    family_destroy(&f);
}

// The next storage: every third one with a sanitizer, where each takes long.
static size_t next_storage(size_t s)
{
    return s + (HAS_SANITIZER && !check_is_long() ? 3 : 1);
}

static void trees_of_forks_are_equal(void **state)
{
    (void)state;
    static const size_t groups[] = {1, 3, 4};
    static const size_t dims[] = {64, 128};
    static const int64_t roots[] = {0, 64, 130, 200, 319};
    size_t number = 0;
    for (size_t s = 0; s < storage_count; s = next_storage(s)) {
        for (size_t i = 0; i < COUNT(groups); i++, number++) {
            const kvern_layer layer = storage_layer(&storages[s], 1 + i % 2, dims[number % 2]);
            check_tree(&layer, groups[i], number, roots[number % COUNT(roots)]);
        }
    }
}

static void trees_with_windows_are_equal(void **state)
{
    (void)state;
    static const int64_t windows[][2] = {{20, 0}, {64, 0}, {100, 5}, {150, 70}, {300, 0}, {400, 3}};
    size_t number = 100;
    for (size_t s = 0; s < storage_count; s = next_storage(s)) {
        for (size_t i = 0; i < 3; i++, number++) {
            const int64_t *window = windows[number % COUNT(windows)];
            const kvern_layer layer =
                storage_window(&storages[s], 1, 64, window[0], window[1], (int64_t)i * 10);
            check_tree(&layer, 1 + number % 4, number, 30 + (int64_t)(number * 37 % 300));
        }
    }
}

// ---- Long prefixes: tiles that are cut by spans ----

static void check_long(const kvern_layer *layer, size_t query_heads, int64_t prefix, size_t number)
{
    static const size_t first[8] = {0}, second[8] = {0, 1, 2, 3, 4, 5, 0, 6};
    int64_t counts[8] = {1, 700, 3, 0, 1100, 1, 64, 2000}, ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    family f;
    family_create(&f, layer, query_heads, features_number(0), executor_number(number));
    family_append(&f, KVERN_PHASE_WINDOW, &prefix, NULL);
    family_fork(&f, first, 8);
    family_append(&f, KVERN_PHASE_WINDOW, counts, NULL); // rows of many lengths: other spans
    family_fork(&f, second, 8);
    expect_alone(&f, KVERN_PHASE_DECODE, ones, kvern_cache_signature(f.cache));
    family_destroy(&f);
}

static void long_prefixes_are_equal_on_any_threads(void **state)
{
    (void)state;
    const kvern_layer layers[] = {
        storage_layer(&storages[0], 1, 64),
        storage_layer(&storages[6], 2, 64),
        storage_window(&storages[0], 1, 64, 1500, 0, 0),
        storage_window(&storages[3], 1, 64, 2100, 1030, 64),
    };
    for (size_t i = 0; i < COUNT(layers); i++) {
        for (size_t j = i % 2; j < 6; j += 2) // every executor, on two of the layers
            check_long(&layers[i], layers[i].kv_heads * (1 + j % 4), 2048 + (int64_t)(j * 31), j);
    }
}

// Rows whose windows lie as far apart as those of a tile may, and one position further: they share
// the page of a kept position, and their windows touch the most spans.
static void distant_windows_are_equal(void **state)
{
    (void)state;
    enum { KV_HEADS = 5, GROUP = 16, DIM = 256, FIRST = 4096, REACH = 1024 };
    static const size_t rows[2] = {0, 0};
    static const int64_t ones[2] = {1, 1};
    const kvern_layer layer = storage_window(&storages[0], KV_HEADS, DIM, 3, 1, 0);
    for (int64_t further = -1; further <= 1; further++) {
        const int64_t more[2] = {FIRST - 64, FIRST + REACH + further - 64};
        family f;
        family_create(&f, &layer, KV_HEADS * GROUP, features_number(0), executor_shuffled(3));
        family_append(&f, KVERN_PHASE_WINDOW, &(int64_t){64}, NULL);
        family_fork(&f, rows, 2);
        family_append(&f, KVERN_PHASE_WINDOW, more, NULL);
        expect_alone(&f, KVERN_PHASE_DECODE, ones, "windows far apart");
        family_destroy(&f);
    }
}

// ---- One read, attended later; other options ----

static const float sink_logits[8] = {0, 5, -20, 0.25f, 1, -1, 3, 0.5f};

// Queries of some rows and tokens only, sinks, a softcap, padded tensors: rows that share pages
// take them like any other. Row r alone is what the same read gives when only row r asks.
static void any_queries_of_shared_rows_are_equal(void **state)
{
    (void)state;
    enum { ROWS = 6, TOKENS = 4, HEADS = 8, DIM = 64 };
    static const size_t rows[ROWS] = {0};
    static const int64_t counts[ROWS] = {TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS};
    static const uint64_t sequences[ROWS] = {11, 12, 13, 14, 15, 16};
    static const int64_t asked[ROWS] = {1, 0, 4, 2, 3, 1}, first[ROWS] = {3, 0, 0, 1, 1, 0};
    static float together[ROWS * TOKENS * HEADS * DIM], one[ROWS * TOKENS * HEADS * DIM];
    const kvern_layer layer = storage_layer(&storages[0], 2, DIM);
    family f;
    family_create(&f, &layer, HEADS, features_number(0), executor_number(1));
    family_append(&f, KVERN_PHASE_WINDOW, &(int64_t){1500}, NULL);
    family_fork(&f, rows, ROWS);
    feed tokens = feed_create(f.cache, sequences, counts, HEADS);
    kvern_read *read;
    assert_ok(feed_append(f.cache, KVERN_PHASE_WINDOW, &tokens, &read));
    kvern_queries queries = tokens.queries;
    int64_t starts[ROWS];
    for (int64_t r = 0; r < ROWS; r++)
        starts[r] = (ROWS - 1 - r) * TOKENS;
    queries.first = first;
    queries.q_start = queries.out_start = starts;
    queries.softcap = 20;
    queries.sinks = sink_logits;
    queries.counts = asked;
    queries.out = together;
    assert_ok(kvern_read_attend(read, &queries));
    for (size_t r = 0; r < ROWS; r++) {
        int64_t only[ROWS] = {0};
        only[r] = asked[r];
        queries.counts = only;
        queries.out = one;
        assert_ok(kvern_read_attend(read, &queries));
    }
    check_same_bytes(one, together, sizeof one, "queries of shared rows");
    kvern_read_release(read);
    feed_destroy(&tokens);
    family_destroy(&f);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_of_forks_are_equal),
        cmocka_unit_test(trees_with_windows_are_equal),
        cmocka_unit_test(long_prefixes_are_equal_on_any_threads),
        cmocka_unit_test(distant_windows_are_equal),
        cmocka_unit_test(any_queries_of_shared_rows_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
