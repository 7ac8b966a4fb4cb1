// SPDX-License-Identifier: MIT
#include "src/base/executor.h"

#include "src/base/fail.h"

#include <sched.h>

static void run_serial(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    (void)user;
    for (size_t i = 0; i < tasks; i++)
        task(arg, i);
}

static size_t usable_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    const int count = CPU_COUNT(&set);
    return count > 0 ? (size_t)count : 1;
}

#ifdef KVERN_HAVE_PTHREADPOOL
#include <pthread.h>
#include <pthreadpool.h>
#include <stdbool.h>

typedef struct pool_job {
    void (*task)(void *arg, size_t index);
    void *arg;
} pool_job;

static void run_job(void *context, size_t index)
{
    const pool_job *job = context;
    job->task(job->arg, index);
}

static void run_pool(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    pool_job job = {task, arg};
    pthreadpool_parallelize_1d(user, run_job, &job, tasks, 0);
}

static void *wait_for_start(void *arg)
{
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
    return NULL;
}

// Whether `count` more threads can live at the same time. The pool must not find out: it waits
// forever for a thread that could not be started.
static bool can_start(size_t count)
{
    pthread_t threads[KVERN_MOST_THREADS];
    pthread_mutex_t start = PTHREAD_MUTEX_INITIALIZER;
    size_t started = 0;
    pthread_mutex_lock(&start);
    while (started < count && pthread_create(&threads[started], NULL, wait_for_start, &start) == 0)
        started++;
    pthread_mutex_unlock(&start);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return started == count;
}

static kvern_status start_pool(size_t threads, kvern_executor *executor, void **pool)
{
    pthreadpool_t made = can_start(threads - 1) ? pthreadpool_create(threads) : NULL;
    if (!made)
        return kvern_fail(KVERN_ERR_THREADS, "%zu threads could not be started", threads);
    *pool = made;
    *executor = (kvern_executor){made, run_pool, threads};
    return KVERN_OK;
}

void kvern_executor_stop(void *pool)
{
    if (pool)
        pthreadpool_destroy(pool);
}
#else
// A build without pthreadpool: the calling thread does everything, or the caller brings an
// executor.
static kvern_status start_pool(size_t threads, kvern_executor *executor, void **pool)
{
    (void)executor;
    (void)pool;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "this build has no thread pool: %zu threads need an executor of the caller's",
                      threads);
}

void kvern_executor_stop(void *pool)
{
    (void)pool;
}
#endif

kvern_status kvern_executor_start(size_t threads, kvern_executor *executor, void **pool)
{
    *pool = NULL;
#ifdef KVERN_HAVE_PTHREADPOOL
    const size_t count = threads ? threads : usable_processors();
#else
    const size_t count = threads ? threads : (usable_processors(), 1);
#endif
    if (count > 1)
        return start_pool(count, executor, pool);
    *executor = (kvern_executor){NULL, run_serial, 1};
    return KVERN_OK;
}
