// SPDX-License-Identifier: MIT
// A store that many threads use at once. What a row holds follows from its tokens, so whatever is
// lent can be checked against them.

#include "tests/support/feed.h"
#include "tests/support/sanitizer.h"
#include "tests/support/store_bed.h"

#include "tests/support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define MOST 200
#define PREFIX 70 // tokens that all prompts have in common
#define TEXTS 6

static void must(bool holds, const char *what)
{
    if (!holds) { // cmocka's failures are for its own thread
        fprintf(stderr, "%s: %s\n", what, kvern_error_detail());
        abort();
    }
}

// Texts that share a beginning, and differ behind it from each other.
static void text(int32_t *tokens, int32_t index)
{
    store_repeat(tokens, PREFIX, 1);
    store_repeat(tokens + PREFIX, MOST - PREFIX, 10 + index);
}

// Whether every position holds what its token gives.
static void expect_content(const kvern_state *s, const int32_t *tokens)
{
    const kvern_cache *cache = kvern_state_cache(s, 0);
    const kvern_layer *layer = kvern_cache_layer(cache);
    float got[64], wanted[64];
    const int64_t length = kvern_state_length(s, 0);
    for (int64_t p = 0; p < length; p += 1 + p % 7) {
        must(kvern_cache_export(cache, 0, p, 1, got, NULL) == KVERN_OK, "export");
        feed_values((uint64_t)tokens[p] + 1, p, FEED_K, layer->k_dim, wanted);
        must(memcmp(got, wanted, layer->k_dim * sizeof *got) == 0,
             "a row holds what its tokens do not give");
    }
}

typedef struct worker {
    store_bed *b;
    int number, rounds;
    uint64_t hits, refused;
} worker;

static bool lend(worker *w, const int32_t *tokens, size_t count, kvern_state *s)
{
    kvern_store_hit hit = kvern_store_hit_default();
    must(kvern_store_find(w->b->store, NULL, w->b->composition, tokens, count, &hit) == KVERN_OK,
         "find");
    const bool found = hit.entry;
    if (found) {
        must(kvern_store_lend(w->b->store, &hit, s, 0) == KVERN_OK, "lend");
        must(kvern_state_length(s, 0) == hit.positions, "a row is as long as what it was lent");
    }
    kvern_store_release(w->b->store, &hit);
    return found;
}

static void *work(void *arg)
{
    worker *w = arg;
    test_random random = test_random_seed((uint64_t)w->number + 1);
    for (int r = 0; r < w->rounds; r++) {
        int32_t tokens[MOST];
        kvern_state *s;
        const size_t count = PREFIX + 2 + (size_t)test_random_below(&random, MOST - PREFIX - 2);
        text(tokens, (int32_t)test_random_below(&random, TEXTS));
        must(kvern_state_create(w->b->composition, 1, &s) == KVERN_OK, "create");
        w->hits += lend(w, tokens, count, s);
        expect_content(s, tokens);
        store_serve(s, 0, tokens, (int64_t)count, NULL);
        const kvern_status status =
            kvern_store_publish(w->b->store, NULL, tokens, count, s, 0, NULL);
        must(status == KVERN_OK || status == KVERN_ERR_BUDGET, "publish");
        w->refused += status != KVERN_OK;
        if (test_random_below(&random, 8) == 0)
            (void)kvern_store_give_up(w->b->store, test_random_below(&random, 20000));
        expect_content(s, tokens);
        kvern_state_destroy(s);
    }
    return NULL;
}

static int rounds_of(int usual)
{
    return (check_is_long() ? 20 * usual : usual) / (HAS_SANITIZER ? 4 : 1);
}

static void run_workers(store_bed *b, int rounds)
{
    worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t hits = 0;
    for (int t = 0; t < THREADS; t++) {
        workers[t] = (worker){b, t, rounds, 0, 0};
        assert_int_equal(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        hits += workers[t].hits;
    }
    const kvern_store_stats stats = store_stats(b);
    assert_int_equal(stats.lookups.count, (uint64_t)THREADS * (uint64_t)rounds);
    assert_int_equal(stats.lookups.loans, hits);
    assert_int_equal(stats.lookups.full_hits + stats.lookups.partial_hits + stats.lookups.misses,
                     stats.lookups.count);
    assert_int_equal(stats.pinned, 0);
    assert_true(hits > 0);
    store_expect_sound(b);
}

static store_bed *open_bed(uint64_t budget)
{
    kvern_layer layer = kvern_layer_default(1, 32);
    layer.k_codec = layer.v_codec = kvern_codec_dense(KVERN_F32);
    return store_bed_open(&layer, 1, budget, 0);
}

// T1: what one request serves never answers another, over prefixes that they share.
static void fault_t1_cross_request_mixing(void **state)
{
    (void)state;
    store_bed *b = open_bed(0);
    run_workers(b, rounds_of(60));
    store_bed_close(b);
}

// T7: entries that are evicted while others look them up: what is lent is what its tokens say.
static void fault_t7_eviction_race(void **state)
{
    (void)state;
    store_bed *b = open_bed(160000); // about four entries
    run_workers(b, rounds_of(60));
    assert_true(store_stats(b).evictions > 0);
    store_bed_close(b);
}

// T8: with room for one entry at most all threads go on.
static void fault_t8_deadlock_at_capacity(void **state)
{
    (void)state;
    store_bed *b = open_bed(70000);
    run_workers(b, rounds_of(40));
    assert_true(store_stats(b).evictions > 0);
    store_bed_close(b);
}

// T3: an entry that is replaced while it is looked up is the old one or the new one.
typedef struct replacer {
    store_bed *b;
    _Atomic bool done;
} replacer;

static void *replace(void *arg)
{
    replacer *r = arg;
    int32_t tokens[MOST];
    text(tokens, 0);
    for (int i = 0; i < rounds_of(400); i++) {
        kvern_state *s;
        must(kvern_state_create(r->b->composition, 1, &s) == KVERN_OK, "create");
        store_serve(s, 0, tokens, PREFIX + 5, NULL);
        must(kvern_store_publish(r->b->store, NULL, tokens, PREFIX + 5, s, 0, NULL) == KVERN_OK,
             "publish");
        kvern_state_destroy(s);
    }
    atomic_store(&r->done, true);
    return NULL;
}

static void fault_t3_read_during_write(void **state)
{
    (void)state;
    replacer r = {.b = open_bed(0)};
    int32_t tokens[MOST];
    pthread_t thread;
    uint64_t found = 0;
    text(tokens, 0);
    store_put(r.b, NULL, tokens, PREFIX + 5);
    assert_int_equal(pthread_create(&thread, NULL, replace, &r), 0);
    while (!atomic_load(&r.done)) {
        worker w = {.b = r.b};
        kvern_state *s = store_state(r.b, 1);
        assert_true(lend(&w, tokens, MOST, s)); // there is always one
        assert_int_equal(kvern_state_length(s, 0), PREFIX + 5);
        expect_content(s, tokens);
        kvern_state_destroy(s);
        found++;
    }
    pthread_join(thread, NULL);
    assert_true(found > 0);
    assert_int_equal(store_stats(r.b).entries, 1);
    store_expect_sound(r.b);
    store_bed_close(r.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_t1_cross_request_mixing),
        cmocka_unit_test(fault_t3_read_during_write),
        cmocka_unit_test(fault_t7_eviction_race),
        cmocka_unit_test(fault_t8_deadlock_at_capacity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
