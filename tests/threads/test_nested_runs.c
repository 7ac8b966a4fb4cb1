// SPDX-License-Identifier: MIT
// Reads attended within tasks of the context's own executor, and runs within runs: they end, do
// every task once, and give the bits of reads that were attended outside.

#include "tests/support/check.h"
#include "tests/support/feed.h"

#include <kvern/kvern.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TASKS 12
#define HEADS 8
#define DIM 32
#define TOKENS 300

// A read with so much work that an attend of it is shared among threads, and what it gives.
typedef struct bed {
    kvern_context *context;
    kvern_cache *cache;
    kvern_read *read;
    feed f;
    float *out[TASKS];
    kvern_status status[TASKS];
    kvern_executor executor; // of the context that tasks run on
    _Atomic int count;
} bed;

static kvern_context *new_context(size_t threads)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.threads = threads;
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

static void set_up(bed *b)
{
    const kvern_layer layer = kvern_layer_default(2, DIM);
    const uint64_t sequence = 7;
    const int64_t count = TOKENS;
    kvern_composition *composition;
    memset(b, 0, sizeof *b);
    b->context = new_context(4);
    b->executor = kvern_context_executor(b->context);
    assert_ok(kvern_composition_create(b->context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &b->cache));
    kvern_composition_release(composition);
    b->f = feed_create(b->cache, &sequence, &count, HEADS);
    assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &b->f, &b->read));
    assert_ok(kvern_read_attend(b->read, &b->f.queries));
    for (size_t t = 0; t < TASKS; t++)
        b->out[t] = calloc(b->f.out_count, sizeof(float));
}

static void tear_down(bed *b)
{
    for (size_t t = 0; t < TASKS; t++)
        free(b->out[t]);
    feed_destroy(&b->f);
    kvern_read_release(b->read);
    kvern_cache_destroy(b->cache);
    kvern_context_release(b->context);
}

static void attend_in_task(void *arg, size_t index)
{
    bed *b = arg;
    kvern_queries queries = b->f.queries;
    queries.out = b->out[index];
    b->status[index] = kvern_read_attend(b->read, &queries);
}

static void check_results(const bed *b)
{
    for (size_t t = 0; t < TASKS; t++) {
        assert_int_equal(KVERN_OK, b->status[t]);
        check_same_floats(b->f.out, b->out[t], b->f.out_count, "attended in a task");
    }
}

static void test_attend_in_a_task(void **state)
{
    bed b;
    (void)state;
    set_up(&b);
    for (int round = 0; round < 20; round++)
        b.executor.run(b.executor.user, TASKS, attend_in_task, &b);
    check_results(&b);
    tear_down(&b);
}

// The tasks belong to another context, whose threads must not wait for those of the first either.
static void test_attend_in_a_task_of_another_context(void **state)
{
    bed b;
    (void)state;
    set_up(&b);
    kvern_context *other = new_context(3);
    const kvern_executor executor = kvern_context_executor(other);
    executor.run(executor.user, TASKS, attend_in_task, &b);
    check_results(&b);
    kvern_context_release(other);
    tear_down(&b);
}

static void count_task(void *arg, size_t index)
{
    bed *b = arg;
    (void)index;
    atomic_fetch_add(&b->count, 1);
}

static void run_in_task(void *arg, size_t index)
{
    bed *b = arg;
    b->executor.run(b->executor.user, index, count_task, b);
}

static void run_in_run_in_task(void *arg, size_t index)
{
    bed *b = arg;
    (void)index;
    b->executor.run(b->executor.user, 4, run_in_task, b);
}

// Three deep; and a run that comes after them is shared again.
static void test_runs_in_runs(void **state)
{
    bed b;
    (void)state;
    set_up(&b);
    b.executor.run(b.executor.user, 5, run_in_run_in_task, &b);
    assert_int_equal(5 * (0 + 1 + 2 + 3), atomic_load(&b.count));
    b.executor.run(b.executor.user, 100, count_task, &b);
    assert_int_equal(30 + 100, atomic_load(&b.count));
    tear_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attend_in_a_task),
        cmocka_unit_test(test_attend_in_a_task_of_another_context),
        cmocka_unit_test(test_runs_in_runs),
    };
    alarm(300); // a run that waits for itself would wait for ever
    return cmocka_run_group_tests(tests, NULL, NULL);
}
