// SPDX-License-Identifier: MIT
#include "tests/support/executors.h"

#include "tests/support/check.h"
#include "tests/support/float_environment.h"
#include "tests/support/random.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef void task_fn(void *arg, size_t index);

static void run_backwards(void *user, size_t tasks, task_fn *task, void *arg)
{
    (void)user;
    while (tasks > 0)
        task(arg, --tasks);
}

static void run_shuffled(void *user, size_t tasks, task_fn *task, void *arg)
{
    static test_random random;
    (void)user;
    size_t *order = malloc(tasks * sizeof *order);
    assert_non_null(order);
    for (size_t i = 0; i < tasks; i++) {
        const size_t j = test_random_below(&random, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < tasks; i++)
        task(arg, order[i]);
    free(order);
}

// One task for one thread.
typedef struct errand {
    pthread_t thread;
    task_fn *task;
    void *arg;
    size_t index;
    float_environment environment;
} errand;

static void *do_errand(void *arg)
{
    const errand *one = arg;
    float_environment_set(one->environment);
    one->task(one->arg, one->index);
    return NULL;
}

static void run_errands(bool odd, size_t tasks, task_fn *task, void *arg)
{
    errand *errands = calloc(tasks, sizeof *errands);
    assert_non_null(errands);
    for (size_t i = 0; i < tasks; i++) {
        const float_environment environment =
            odd ? (float_environment)(1 + i % (FLOAT_ENVIRONMENTS - 1)) : FLOAT_DEFAULT;
        errands[i] = (errand){.task = task, .arg = arg, .index = i, .environment = environment};
        assert_int_equal(pthread_create(&errands[i].thread, NULL, do_errand, &errands[i]), 0);
    }
    for (size_t i = 0; i < tasks; i++)
        pthread_join(errands[i].thread, NULL);
    free(errands);
}

static void run_threads(void *user, size_t tasks, task_fn *task, void *arg)
{
    (void)user;
    run_errands(false, tasks, task, arg);
}

static void run_odd(void *user, size_t tasks, task_fn *task, void *arg)
{
    (void)user;
    run_errands(true, tasks, task, arg);
}

kvern_executor executor_backwards(size_t threads)
{
    return (kvern_executor){.run = run_backwards, .threads = threads};
}

kvern_executor executor_shuffled(size_t threads)
{
    return (kvern_executor){.run = run_shuffled, .threads = threads};
}

kvern_executor executor_threads(size_t threads)
{
    return (kvern_executor){.run = run_threads, .threads = threads};
}

kvern_executor executor_odd_environment(size_t threads)
{
    return (kvern_executor){.run = run_odd, .threads = threads};
}
