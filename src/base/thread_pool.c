// SPDX-License-Identifier: MIT
// How a run works. The job is published under a new round number; a ticket holds that number and
// the index of the next task. A thread claims a task by counting the ticket up with
// compare-and-swap: that fails when the round has changed, so a thread that comes late can neither
// run a task of a round that is over nor mix two jobs. The run is over when all tasks have been
// counted as done.
#include "src/base/thread_pool.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/relax.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

// How long a thread looks for the next task before it goes to sleep: longer than what lies between
// two runs of a forward pass. A look takes 10 to 60 ns, for processors pause for different times,
// so now and then a thread looks at the clock.
#define NANOSECONDS_BEFORE_SLEEP 100000
#define LOOKS_PER_CLOCK 64

// Looks for the end of a run before the caller gives its processor to the threads it waits for.
#define LOOKS_BEFORE_YIELD 400

// A ticket: the round in the upper half, the next task in the lower one.
#define INDEX_BITS 32
#define MOST_TASKS ((size_t)UINT32_MAX)

typedef void task_function(void *arg, size_t index);

// Whether this thread is at a task of a run. A run that such a task starts, of this pool or another
// one, has to be its own: the threads are taken, and the turn may be the one it is part of.
static _Thread_local bool is_in_run;

struct kvern_thread_pool {
    kvern_heap *heap;
    pthread_mutex_t turn; // held for the length of a run
    pthread_mutex_t lock; // for sleeping and waking
    pthread_cond_t wake;
    _Atomic size_t sleepers;
    _Atomic bool stopping;

    _Atomic uint64_t ticket;
    _Atomic size_t done;
    // The job of the round. Written while no task can be claimed; read before a claim, and only
    // used after it.
    _Atomic size_t tasks;
    task_function *_Atomic task;
    void *_Atomic arg;

    size_t size;    // threads asked for; the calling one needs no entry
    size_t started; // entries of threads
    pthread_t threads[];
};

static size_t pool_bytes(size_t threads)
{
    return sizeof(kvern_thread_pool) + threads * sizeof(pthread_t);
}

static bool has_task(kvern_thread_pool *pool)
{
    const uint64_t ticket = atomic_load(&pool->ticket);
    return (ticket & UINT32_MAX) < atomic_load(&pool->tasks);
}

// Claims and runs one task. False: there was none, or another thread was faster. The count of tasks
// is read before the job, as it is written after it: whoever sees it sees the job that it belongs
// to or a later one, and for a later one the ticket has changed.
static bool run_one(kvern_thread_pool *pool)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    const size_t index = ticket & UINT32_MAX;
    if (index >= atomic_load(&pool->tasks))
        return false;
    task_function *task = atomic_load(&pool->task);
    void *arg = atomic_load(&pool->arg);
    if (!atomic_compare_exchange_strong(&pool->ticket, &ticket, ticket + 1))
        return false;
    KVERN_ASSERT(!is_in_run);
    is_in_run = true;
    task(arg, index);
    is_in_run = false;
    atomic_fetch_add(&pool->done, 1);
    return true;
}

// Sleeps until there is a task or the pool stops. A sleeper counts itself before it looks a last
// time, and a run looks at the count after it has published, so one of them sees the other.
static void sleep_for_work(kvern_thread_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_task(pool) && !atomic_load(&pool->stopping))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void wake_sleepers(kvern_thread_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static int64_t clock_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Whether a thread that has looked `looks` times in vain looks once more. *begin: when it began to.
static bool looks_on(size_t looks, int64_t *begin)
{
    if (looks % LOOKS_PER_CLOCK)
        return true;
    const int64_t now = clock_nanoseconds();
    if (looks == 0)
        *begin = now;
    return now - *begin < NANOSECONDS_BEFORE_SLEEP;
}

static void *work(void *arg)
{
    kvern_thread_pool *pool = arg;
    size_t looks = 0;
    int64_t begin = 0;
    while (!atomic_load(&pool->stopping)) {
        if (has_task(pool)) {
            (void)run_one(pool);
            looks = 0;
        } else if (looks_on(looks++, &begin)) {
            kvern_relax();
        } else {
            sleep_for_work(pool);
            looks = 0;
        }
    }
    return NULL;
}

static void run_round(kvern_thread_pool *pool, size_t tasks, task_function *task, void *arg)
{
    KVERN_ASSERT(tasks > 1 && tasks <= MOST_TASKS);
    KVERN_ASSERT(atomic_load(&pool->done) == atomic_load(&pool->tasks)); // of the run before
    const uint64_t round = (atomic_load(&pool->ticket) >> INDEX_BITS) + 1;
    atomic_store(&pool->tasks, 0); // nothing can be claimed while the job is exchanged
    atomic_store(&pool->ticket, round << INDEX_BITS);
    atomic_store(&pool->task, task);
    atomic_store(&pool->arg, arg);
    atomic_store(&pool->done, 0);
    atomic_store(&pool->tasks, tasks);
    wake_sleepers(pool);
    while (has_task(pool))
        (void)run_one(pool);
    for (size_t looks = 0; atomic_load(&pool->done) < tasks; looks++) {
        if (looks < LOOKS_BEFORE_YIELD)
            kvern_relax();
        else
            sched_yield();
    }
}

void kvern_thread_pool_run(void *user, size_t tasks, task_function *task, void *arg)
{
    kvern_thread_pool *pool = user;
    // Nothing to share, nobody to share it with, or more than a ticket counts.
    if (tasks <= 1 || is_in_run || tasks > MOST_TASKS) {
        for (size_t i = 0; i < tasks; i++)
            task(arg, i);
        return;
    }
    pthread_mutex_lock(&pool->turn);
    run_round(pool, tasks, task, arg);
    pthread_mutex_unlock(&pool->turn);
}

// All but those that a thread's own instructions raise, and the one that profilers count by.
void kvern_left_signals(sigset_t *set)
{
    static const int taken[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};
    sigfillset(set);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigdelset(set, taken[i]);
}

// As many threads as the system gives. They inherit their mask from the one that starts them.
static void start_threads(kvern_thread_pool *pool)
{
    sigset_t left, own;
    kvern_left_signals(&left);
    pthread_sigmask(SIG_BLOCK, &left, &own);
    while (pool->started < pool->size - 1 &&
           pthread_create(&pool->threads[pool->started], NULL, work, pool) == 0)
        pool->started++;
    pthread_sigmask(SIG_SETMASK, &own, NULL);
}

kvern_status kvern_thread_pool_start(kvern_heap *heap, size_t threads, kvern_thread_pool **out)
{
    void *block;
    *out = NULL;
    kvern_status status = kvern_heap_take_zeroed(heap, pool_bytes(threads), &block);
    if (status)
        return status;
    kvern_thread_pool *pool = block;
    pool->heap = heap;
    pool->size = threads;
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    start_threads(pool);
    if (pool->started < threads - 1) {
        status = kvern_fail(KVERN_ERR_THREADS, "only %zu of %zu threads could be started",
                            pool->started + 1, threads);
        kvern_thread_pool_stop(pool);
        return status;
    }
    *out = pool;
    return KVERN_OK;
}

void kvern_thread_pool_stop(kvern_thread_pool *pool)
{
    if (!pool)
        return;
    KVERN_ASSERT(!has_task(pool));
    atomic_store(&pool->stopping, true);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < pool->started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    kvern_heap_give(pool->heap, pool, pool_bytes(pool->size), KVERN_HEAP_ALIGNMENT);
}
