// SPDX-License-Identifier: MIT
// Several threads that share one context, its budget and the pages of some rows: each runs random
// programs of its own, with a twin that has all the memory it wants (see twins.h). What the budget
// refuses to one thread changes nothing for it, nor for the others. ThreadSanitizer runs this
// program.

#include "tests/support/check.h"
#include "tests/support/random.h"
#include "tests/support/twins.h"

#include <pthread.h>

#define THREADS 3

typedef struct worker {
    pthread_t thread;
    twin_side rich;
    twins *twins;
} worker;

static void open_side(twin_side *side, size_t threads, uint64_t budget)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = threads;
    options.budget_bytes = budget;
    twin_side_open(side, &options);
}

static void *work(void *arg)
{
    const worker *w = arg;
    twins_run(w->twins, 250);
    return NULL;
}

// Says how many calls were refused memory.
static uint64_t run_together(uint64_t seed)
{
    test_random random = test_random_seed(seed);
    worker workers[THREADS];
    twin_side shared;
    uint64_t refused = 0;
    open_side(&shared, 2, 1500000 + test_random_below(&random, 2500000));
    kvern_state *base = twins_base(&shared);
    for (int i = 0; i < THREADS; i++) {
        open_side(&workers[i].rich, 1, 0);
        workers[i].twins =
            twins_create(test_random_next(&random), &shared, &workers[i].rich, false);
        twins_begin(workers[i].twins, base);
    }
    kvern_state_destroy(base);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        refused += twins_refused(workers[i].twins);
        twins_destroy(workers[i].twins);
        twin_side_close(&workers[i].rich);
    }
    twin_side_close(&shared);
    return refused;
}

static void threads_share_a_budget(void **state)
{
    (void)state;
    const int programs = check_is_long() ? 300 : 6;
    uint64_t refused = 0;
    for (int i = 0; i < programs; i++)
        refused += run_together(check_seed() + (uint64_t)i * 1000003);
    print_message("%llu calls were refused memory\n", (unsigned long long)refused);
    assert_true(refused > 0);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
