// SPDX-License-Identifier: MIT
// A store that machines share, which several threads use at once while the server loses what it has
// and goes away: what is lent is what its tokens say, and everybody gets on. Under ThreadSanitizer
// too.
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/random.h"
#include "tests/support/remote_bed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 12
#define PROMPTS 5
#define LENGTH 80

typedef struct user {
    const store_bed *bed;
    kvern_remote_store *store;
    uint64_t seed, lent;
} user;

// A prompt whose first half all have in common.
static void make_prompt(uint64_t number, int32_t tokens[2 * LENGTH])
{
    store_repeat(tokens, LENGTH / 2, 1);
    store_repeat(tokens + LENGTH / 2, 2 * LENGTH - LENGTH / 2, (int32_t)number + 10);
}

static void use(user *u, uint64_t number)
{
    int32_t tokens[2 * LENGTH];
    kvern_state *s;
    make_prompt(number, tokens);
    u->lent += (uint64_t)remote_lend(u->bed, u->store, NULL, tokens, LENGTH, &s);
    store_expect_goes_on(u->bed, s, 0, tokens, LENGTH);
    assert_ok(kvern_remote_store_publish(u->store, NULL, tokens, LENGTH, s, 0, NULL));
    store_expect_goes_on(u->bed, s, 0, tokens, LENGTH + 1); // while that is written
    kvern_state_destroy(s);
}

static void *work(void *given)
{
    user *u = given;
    test_random random = test_random_seed(u->seed);
    for (int round = 0; round < ROUNDS; round++) {
        use(u, test_random_below(&random, PROMPTS));
        if (test_random_below(&random, 8) == 0)
            kvern_remote_store_flush(u->store);
        if (test_random_below(&random, 4) == 0) {
            kvern_remote_fetch *fetch; // given up at once
            assert_ok(kvern_remote_store_begin(u->store, NULL, u->bed->composition,
                                               (const int32_t[]){1, 1, 1}, 3, 0, 0, &fetch));
            kvern_remote_store_end(u->store, fetch);
        }
    }
    return NULL;
}

// What happens to the server meanwhile.
typedef void trouble(void);

static void none(void)
{
}

static void forget(void)
{
    for (int i = 0; i < 20; i++) {
        freeReplyObject(remote_ask("FLUSHALL"));
        usleep(5000);
    }
}

static void begin_anew(void)
{
    for (int i = 0; i < 3; i++) {
        usleep(20000);
        remote_kill();
        usleep(20000);
        remote_start(NULL);
    }
}

static void run(uint64_t budget, trouble *happens)
{
    pthread_t threads[THREADS];
    user users[THREADS];
    folder_make();
    remote_start(NULL);
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    options.budget_bytes = budget;
    options.queue_entries = 3;
    kvern_remote_store *stores[] = {remote_open(b, NULL, &options), remote_open(b, NULL, &options)};
    for (uint64_t t = 0; t < THREADS; t++) {
        users[t] = (user){b, stores[t % 2], t + 1, 0};
        assert_int_equal(0, pthread_create(&threads[t], NULL, work, &users[t]));
    }
    happens();
    uint64_t lent = 0;
    for (size_t t = 0; t < THREADS; t++) {
        assert_int_equal(0, pthread_join(threads[t], NULL));
        lent += users[t].lent;
    }
    uint64_t counted = 0;
    for (size_t i = 0; i < 2; i++) {
        kvern_remote_store_flush(stores[i]);
        const kvern_remote_store_stats stats = remote_stats(stores[i]);
        counted += stats.lookups.tokens_lent;
        assert_int_equal(0, stats.damaged + stats.failures + stats.fetching + stats.queued);
        kvern_remote_store_close(stores[i]);
    }
    assert_int_equal(lent, counted);
    assert_true(happens != none || lent > 0);
    store_bed_close(b);
    remote_kill();
    folder_remove();
}

static void threads_share_a_store(void **state)
{
    (void)state;
    run(0, none);
}

static void threads_share_a_store_with_a_budget(void **state)
{
    (void)state;
    run(60000, none);
}

static void threads_share_a_store_that_forgets(void **state)
{
    (void)state;
    run(0, forget);
}

static void threads_share_a_store_that_begins_anew(void **state)
{
    (void)state;
    run(0, begin_anew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(threads_share_a_store_with_a_budget),
        cmocka_unit_test(threads_share_a_store_that_forgets),
        cmocka_unit_test(threads_share_a_store_that_begins_anew),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
