// SPDX-License-Identifier: MIT
// A store on disk that several threads use at once, faults T1, T3, T7 and T8 of other systems: what
// is lent is what its tokens say, entries go meanwhile, and everybody gets on. Under
// ThreadSanitizer too.
#include "tests/support/check.h"
#include "tests/support/disk_bed.h"
#include "tests/support/folder.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 12
#define PROMPTS 5
#define LENGTH 40

typedef struct user {
    const store_bed *bed;
    kvern_disk_store *store, *reader;
    uint64_t seed, lent;
} user;

// A prompt whose first half all have in common.
static void make_prompt(uint64_t number, int32_t tokens[2 * LENGTH])
{
    store_repeat(tokens, LENGTH / 2, 1);
    store_repeat(tokens + LENGTH / 2, 2 * LENGTH - LENGTH / 2, (int32_t)number + 10);
}

static void use(user *u, kvern_disk_store *store, uint64_t number)
{
    int32_t tokens[2 * LENGTH];
    kvern_state *s;
    make_prompt(number, tokens);
    u->lent += (uint64_t)disk_lend(u->bed, store, NULL, tokens, LENGTH, &s);
    store_expect_goes_on(u->bed, s, 0, tokens, LENGTH);
    assert_ok(kvern_disk_store_publish(store, NULL, tokens, LENGTH, s, 0, NULL));
    store_expect_goes_on(u->bed, s, 0, tokens, LENGTH + 1); // while that is written
    kvern_state_destroy(s);
}

static void *work(void *given)
{
    user *u = given;
    test_random random = test_random_seed(u->seed);
    for (int round = 0; round < ROUNDS; round++) {
        const bool reads = test_random_below(&random, 3) == 0;
        if (reads)
            assert_ok(kvern_disk_store_rescan(u->reader));
        use(u, reads ? u->reader : u->store, test_random_below(&random, PROMPTS));
        if (test_random_below(&random, 6) == 0)
            assert_ok(kvern_disk_store_prune(u->store, disk_stats(u->store).bytes / 2));
        if (test_random_below(&random, 8) == 0)
            kvern_disk_store_flush(u->store);
    }
    return NULL;
}

// A budget of few entries, and of one.
static void run(uint64_t budget)
{
    pthread_t threads[THREADS];
    user users[THREADS];
    folder_make();
    store_bed *b = store_bed_small(0);
    kvern_disk_store_options options = disk_options();
    options.budget_bytes = budget;
    options.queue_entries = 3;
    kvern_disk_store *d = disk_open(b, "d", &options, NULL);
    kvern_disk_store *reader = disk_open(b, "d", NULL, NULL);
    for (uint64_t t = 0; t < THREADS; t++) {
        users[t] = (user){b, d, reader, t + 1, 0};
        assert_int_equal(0, pthread_create(&threads[t], NULL, work, &users[t]));
    }
    uint64_t lent = 0;
    for (size_t t = 0; t < THREADS; t++) {
        assert_int_equal(0, pthread_join(threads[t], NULL));
        lent += users[t].lent;
    }
    kvern_disk_store_flush(d);
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_true(lent > 0 && stats.publications > 0);
    assert_int_equal(lent, stats.lookups.tokens_lent + disk_stats(reader).lookups.tokens_lent);
    assert_int_equal(0, stats.damaged + stats.failures + stats.pinned + stats.aside);
    disk_expect_sound(d);
    kvern_disk_store_close(reader);
    kvern_disk_store_close(d);
    store_bed_close(b);
    folder_remove();
}

static void threads_share_a_store(void **state)
{
    (void)state;
    run(0);
}

static void threads_share_a_store_that_evicts(void **state)
{
    (void)state;
    run(30000);
}

static void threads_share_a_store_of_one_entry(void **state)
{
    (void)state;
    run(11000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(threads_share_a_store_that_evicts),
        cmocka_unit_test(threads_share_a_store_of_one_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
