// SPDX-License-Identifier: MIT
// Several threads on one context: each with its own caches, which are forks of one prefix; reads
// that are attended and released away from their cache; contexts side by side. The results are the
// bits of a serial run. ThreadSanitizer runs this program.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"

#include <kvern/kvern.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 16
#define HEADS 4
#define PREFIX_TOKENS 200

static kvern_context *new_context(ledger *books, kvern_executor executor)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.allocator = ledger_allocator(books);
    options.executor = executor;
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

static kvern_cache *new_cache(kvern_context *context, size_t kv_heads, size_t dim)
{
    const kvern_layer layer = kvern_layer_default(kv_heads, dim);
    kvern_composition *composition;
    kvern_cache *cache;
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    kvern_composition_release(composition);
    return cache;
}

// ---- Work for one thread: its checks are counted, not asserted, away from cmocka's thread ----

typedef struct worker {
    pthread_t thread;
    kvern_cache *cache; // owned from the start of the work on
    uint64_t seed;
    uint64_t hash; // of all results, in order
    int errors;
} worker;

static void add_to_hash(worker *w, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        w->hash = (w->hash ^ bits) * UINT64_C(0x100000001b3);
    }
}

static void expect_ok(worker *w, kvern_status status)
{
    w->errors += status != KVERN_OK;
}

static void append_and_attend(worker *w, uint64_t sequence, int64_t count)
{
    feed f = feed_create(w->cache, &sequence, &count, HEADS);
    kvern_read *read = NULL;
    expect_ok(w, feed_append(w->cache, KVERN_PHASE_WINDOW, &f, &read));
    if (read)
        expect_ok(w, kvern_read_attend(read, &f.queries));
    add_to_hash(w, f.out, f.out_count);
    kvern_read_release(read);
    feed_destroy(&f);
}

static void continue_in_fork(worker *w)
{
    static const size_t row = 0;
    kvern_cache *fork = NULL;
    expect_ok(w, kvern_cache_fork(w->cache, &row, 1, &fork));
    if (!fork)
        return;
    kvern_cache_destroy(w->cache);
    w->cache = fork;
}

static void *work(void *arg)
{
    worker *w = arg;
    test_random random = test_random_seed(w->seed);
    for (int i = 0; i < (check_is_long() ? 400 : 40); i++) {
        const uint64_t length = (uint64_t)kvern_cache_length(w->cache, 0);
        switch (test_random_below(&random, 8)) {
        case 0:
            expect_ok(w, kvern_cache_trim(w->cache, 0,
                                          (int64_t)test_random_below(&random, length / 2 + 1)));
            break;
        case 1:
            continue_in_fork(w);
            break;
        case 2:
            expect_ok(w, kvern_cache_reserve(w->cache, 0, (int64_t)length + 30, HEADS));
            break;
        default:
            append_and_attend(w, w->seed + (uint64_t)i, (int64_t)test_random_below(&random, 20));
        }
    }
    kvern_cache_destroy(w->cache);
    return NULL;
}

// All workers on forks of one prefix: one after the other, or all at once. The prefix itself goes
// while they work.
static void run_workers(worker *workers, bool at_once, ledger *books, kvern_executor executor)
{
    static const size_t row = 0;
    kvern_context *context = new_context(books, executor);
    kvern_cache *prefix = new_cache(context, 2, 16);
    feed_one(prefix, KVERN_PHASE_WINDOW, 1, PREFIX_TOKENS, HEADS, NULL);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.seed = check_seed() * 1000 + i};
        assert_ok(kvern_cache_fork(prefix, &row, 1, &workers[i].cache));
    }
    for (size_t i = 0; i < THREADS; i++) {
        if (at_once)
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        else
            work(&workers[i]);
    }
    kvern_cache_destroy(prefix);
    kvern_context_release(context);
    for (size_t i = 0; i < THREADS && at_once; i++)
        pthread_join(workers[i].thread, NULL);
}

static void compare_with_serial_run(kvern_executor executor)
{
    static worker serial[THREADS], parallel[THREADS];
    ledger books;
    ledger_init(&books);
    run_workers(serial, false, &books, executor_backwards(1));
    run_workers(parallel, true, &books, executor);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(serial[i].errors, 0);
        assert_int_equal(parallel[i].errors, 0);
        assert_true(serial[i].hash == parallel[i].hash);
    }
    ledger_finish(&books);
}

// ml-explore/mlx-lm#965: with many requests at once, one prompt's content answered another.
static void fault_T1_cross_request_mixing(void **state)
{
    (void)state;
    compare_with_serial_run(executor_backwards(1));
}

static void threads_of_threads_give_serial_results(void **state)
{
    (void)state;
    compare_with_serial_run(executor_threads(3));
}

// One long row, whose spans are reduced by different threads and merged by the last of them.
static void spans_of_one_row_meet(void **state)
{
    (void)state;
    const kvern_executor executors[2] = {executor_backwards(1), executor_threads(5)};
    float out[2][2 * HEADS * 64];
    for (int i = 0; i < 2; i++) {
        ledger books;
        ledger_init(&books);
        kvern_context *context = new_context(&books, executors[i]);
        kvern_cache *cache = new_cache(context, 1, 64);
        feed_one(cache, KVERN_PHASE_WINDOW, 1, 4100, HEADS, NULL);
        feed_one(cache, KVERN_PHASE_WINDOW, 1, 2, HEADS, out[i]);
        kvern_cache_destroy(cache);
        kvern_context_release(context);
        ledger_finish(&books);
    }
    check_same_bytes(out[0], out[1], sizeof out[0], "five threads");
}

// ---- Reads away from their cache ----

#define READS 48
#define READERS 3
#define CHUNK 17

typedef struct handed_read {
    _Atomic(kvern_read *) read; // NULL: not yet
    feed tokens;
} handed_read;

typedef struct readers {
    handed_read handed[READS];
    _Atomic size_t next;
    _Atomic int errors;
} readers;

static void *attend_and_release(void *arg)
{
    readers *all = arg;
    size_t mine;
    while ((mine = atomic_fetch_add(&all->next, 1)) < READS) {
        handed_read *one = &all->handed[mine];
        kvern_read *read;
        while (!(read = atomic_load(&one->read)))
            sched_yield();
        if (kvern_read_attend(read, &one->tokens.queries))
            all->errors++;
        kvern_read_release(read);
    }
    return NULL;
}

// What a row of READS chunks gives when nobody disturbs it.
static float *undisturbed(kvern_context *context, size_t *chunk_floats)
{
    kvern_cache *cache = new_cache(context, 2, 16);
    *chunk_floats = (size_t)CHUNK * HEADS * 16;
    float *out = calloc(READS * *chunk_floats, sizeof *out);
    assert_non_null(out);
    feed_one(cache, KVERN_PHASE_WINDOW, 1, READS * CHUNK, HEADS, out);
    kvern_cache_destroy(cache);
    return out;
}

// The owner goes on appending, trimming and reserving; the cache goes before the last reads.
static void reads_are_attended_while_their_cache_changes(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_context *context = new_context(&books, executor_backwards(2));
    size_t chunk_floats;
    float *wanted = undisturbed(context, &chunk_floats);
    static readers all;
    memset(&all, 0, sizeof all);
    pthread_t threads[READERS];
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, attend_and_release, &all), 0);
    kvern_cache *cache = new_cache(context, 2, 16);
    for (size_t i = 0; i < READS; i++) {
        kvern_read *read;
        feed *f = &all.handed[i].tokens;
        *f = feed_create(cache, &(uint64_t){1}, &(int64_t){CHUNK}, HEADS);
        assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, f, &read));
        atomic_store(&all.handed[i].read, read);
        feed_one(cache, KVERN_PHASE_WINDOW, 2, (int64_t)(i * 7 % 90), HEADS, NULL);
        if (i % 5 == 0)
            assert_ok(kvern_cache_reserve(cache, 0, kvern_cache_length(cache, 0) + 100, HEADS));
        assert_ok(kvern_cache_trim(cache, 0, (int64_t)(i * 7 % 90)));
    }
    kvern_cache_destroy(cache);
    kvern_context_release(context);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(all.errors, 0);
    for (size_t i = 0; i < READS; i++) {
        check_same_bytes(wanted + i * chunk_floats, all.handed[i].tokens.out,
                         chunk_floats * sizeof *wanted, "a read on another thread");
        feed_destroy(&all.handed[i].tokens);
    }
    free(wanted);
    ledger_finish(&books);
}

// ---- A read that goes exactly when its row changes ----

typedef struct releaser {
    _Atomic(kvern_read *) read;
    atomic_bool done;
} releaser;

static void *release_when_told(void *arg)
{
    releaser *r = arg;
    while (!atomic_load(&r->done)) {
        kvern_read *read = atomic_exchange(&r->read, NULL);
        if (read)
            kvern_read_release(read);
        else
            sched_yield();
    }
    return NULL;
}

// A row is trimmed while a read holds its table, into pages that a fork shares; the read goes on
// another thread while the row appends. Whatever the append takes the table for: the fork's pages
// are not the row's to write.
static void a_release_during_an_append_spares_the_fork(void **state)
{
    (void)state;
    static const size_t row = 0;
    static releaser r;
    ledger books;
    ledger_init(&books);
    kvern_context *context = new_context(&books, executor_backwards(1));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_when_told, &r), 0);
    for (int i = 0; i < (check_is_long() ? 100000 : 3000); i++) {
        float wanted[2 * 8], got[2 * 8];
        kvern_read *read;
        kvern_cache *cache = new_cache(context, 1, 8), *fork;
        feed_one(cache, KVERN_PHASE_WINDOW, 1, 128, 1, NULL);
        assert_ok(kvern_cache_fork(cache, &row, 1, &fork));
        feed f = feed_create(cache, &(uint64_t){2}, &(int64_t){1}, 1);
        assert_ok(feed_append(cache, KVERN_PHASE_DECODE, &f, &read));
        assert_ok(kvern_cache_trim(cache, 0, 65));
        assert_ok(kvern_cache_export(fork, 0, 64, 2, wanted, NULL));
        feed_destroy(&f);
        f = feed_create(cache, &(uint64_t){3}, &(int64_t){2}, 1);
        atomic_store(&r.read, read);
        for (volatile int wait = i % 300; wait > 0; wait--)
            ; // the release falls into another moment of the append each time
        assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, NULL));
        assert_ok(kvern_cache_export(fork, 0, 64, 2, got, NULL));
        check_same_bytes(wanted, got, sizeof wanted, "the fork");
        feed_destroy(&f);
        while (atomic_load(&r.read))
            sched_yield();
        kvern_cache_destroy(fork);
        kvern_cache_destroy(cache);
    }
    atomic_store(&r.done, true);
    pthread_join(thread, NULL);
    kvern_context_release(context);
    ledger_finish(&books);
}

// ---- Contexts side by side ----

static void *work_in_own_context(void *arg)
{
    worker *w = arg;
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context = NULL;
    options.threads = 1;
    expect_ok(w, kvern_context_create(&options, &context));
    if (w->errors)
        return NULL;
    w->cache = new_cache(context, 2, 16);
    kvern_context_release(context);
    append_and_attend(w, w->seed, 100);
    append_and_attend(w, w->seed, 1);
    kvern_cache_destroy(w->cache);
    return NULL;
}

static void contexts_live_side_by_side(void **state)
{
    (void)state;
    worker alone = {.seed = 5}, workers[THREADS];
    work_in_own_context(&alone);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.seed = 5};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work_in_own_context, &workers[i]),
                         0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].errors, 0);
        assert_true(workers[i].hash == alone.hash);
    }
}

// ---- Details of errors ----

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void)number;
    signals = signals + 1;
}

// A signal of the process is for the caller's own threads: a thread of the library that took it
// would end a program that waits for it elsewhere.
static void threads_of_the_library_take_no_signals(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = count_signal};
    struct sigaction before;
    sigset_t one, mask, waiting;
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.threads = 4;
    assert_ok(kvern_context_create(&options, &context));
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &mask), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); // time for others to take it
    assert_int_equal(signals, 0);
    assert_int_equal(sigpending(&waiting), 0);
    assert_int_equal(sigismember(&waiting, SIGUSR1), 1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
    assert_int_equal(signals, 1); // and the caller's mask is what it was
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    kvern_context_release(context);
}

static void *fail_elsewhere(void *arg)
{
    bool *right = arg;
    kvern_context *context;
    kvern_context_options options = kvern_context_options_default();
    *right = kvern_error_detail()[0] == '\0'; // nothing has failed on this thread
    options.size = 3;
    *right = *right && kvern_context_create(&options, &context) == KVERN_ERR_ARGUMENT &&
             strstr(kvern_error_detail(), "size is 3");
    return NULL;
}

static void each_thread_has_its_own_detail(void **state)
{
    (void)state;
    bool right = false;
    pthread_t thread;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(NULL, NULL));
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &right), 0);
    pthread_join(thread, NULL);
    assert_true(right);
    assert_string_equal(kvern_error_detail(), "out is NULL");
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_T1_cross_request_mixing),
        cmocka_unit_test(threads_of_threads_give_serial_results),
        cmocka_unit_test(spans_of_one_row_meet),
        cmocka_unit_test(reads_are_attended_while_their_cache_changes),
        cmocka_unit_test(a_release_during_an_append_spares_the_fork),
        cmocka_unit_test(contexts_live_side_by_side),
        cmocka_unit_test(threads_of_the_library_take_no_signals),
        cmocka_unit_test(each_thread_has_its_own_detail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
