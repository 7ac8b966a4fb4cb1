// SPDX-License-Identifier: MIT
// Several threads on one context, each with its own states over all storages, whose rows are forks
// of one prefix: rows join, leave, change places and pass through rounds while other threads do the
// same with rows that share their pages. The results are the bits of a serial run. ThreadSanitizer
// runs this program.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/mixed_state.h"
#include "tests/support/random.h"

#include <kvern/kvern.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define MOST_ROWS 6
#define PREFIX_ROWS 2

// Its checks are counted, not asserted, away from cmocka's thread.
typedef struct worker {
    pthread_t thread;
    kvern_state *state; // owned from the start of the work on
    test_random random;
    uint64_t next_sequence;
    uint64_t hash; // of all results, in order
    int errors;
} worker;

static uint64_t below(worker *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

static void add_to_hash(worker *w, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        w->hash = (w->hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static void expect_ok(worker *w, kvern_status status)
{
    w->errors += status != KVERN_OK;
}

// ---- Steps and rounds ----

static void append_layer(worker *w, size_t layer, const uint64_t *sequences, const int64_t *counts)
{
    feed f = feed_create(kvern_state_cache(w->state, layer), sequences, counts, MIXED_QUERY_HEADS);
    kvern_read *read = NULL;
    expect_ok(w, feed_step_append(w->state, layer, &f, &read));
    if (read)
        expect_ok(w, kvern_read_attend(read, &f.queries));
    add_to_hash(w, f.out, f.out_count * sizeof(float));
    kvern_read_release(read);
    feed_destroy(&f);
}

static void step(worker *w, uint64_t most)
{
    uint64_t sequences[MOST_ROWS];
    int64_t counts[MOST_ROWS];
    for (size_t r = 0; r < kvern_state_rows(w->state); r++) {
        sequences[r] = w->next_sequence++;
        counts[r] = (int64_t)below(w, most + 1);
    }
    const kvern_status status = kvern_step_begin(w->state, KVERN_PHASE_WINDOW, counts);
    if (kvern_round_open(w->state) && status == KVERN_ERR_RANGE) // the round has no room for it
        return;
    expect_ok(w, status);
    if (status)
        return;
    for (size_t l = 0; l < MIXED_LAYERS; l++)
        append_layer(w, l, sequences, counts);
    expect_ok(w, kvern_step_end(w->state));
}

static void run_round(worker *w)
{
    int64_t counts[MOST_ROWS], keep[MOST_ROWS];
    const size_t rows = kvern_state_rows(w->state);
    for (size_t r = 0; r < rows; r++) {
        const int64_t most = kvern_state_max_append(w->state, r);
        counts[r] = most < MIXED_LEAST_SLACK ? most : MIXED_LEAST_SLACK;
    }
    const kvern_status status = kvern_round_begin(w->state, counts);
    expect_ok(w, status);
    if (status)
        return;
    step(w, 4);
    step(w, 4);
    for (size_t r = 0; r < rows; r++)
        keep[r] = (int64_t)below(w, (uint64_t)kvern_round_appended(w->state, r) + 1);
    expect_ok(w, kvern_round_rollback(w->state, keep));
}

// ---- Rows ----

static void take_in(worker *w)
{
    kvern_state *taken = NULL;
    if (kvern_state_rows(w->state) == MOST_ROWS)
        return;
    expect_ok(w, kvern_state_extract(w->state, below(w, kvern_state_rows(w->state)), &taken));
    expect_ok(w, kvern_state_join(w->state, &taken, 1));
    kvern_state_destroy(taken);
}

// The last row comes first; one row in the middle may go.
static void change_places(worker *w)
{
    size_t rows[MOST_ROWS], count = 0;
    const size_t held = kvern_state_rows(w->state);
    const size_t dropped = held > 2 && below(w, 2) ? 1 : held;
    rows[count++] = held - 1;
    for (size_t r = 0; r + 1 < held; r++) {
        if (r != dropped)
            rows[count++] = r;
    }
    expect_ok(w, kvern_state_keep(w->state, rows, count));
}

static void continue_in_fork(worker *w)
{
    size_t rows[MOST_ROWS];
    kvern_state *fork = NULL;
    const size_t count = kvern_state_rows(w->state);
    for (size_t r = 0; r < count; r++)
        rows[r] = r;
    expect_ok(w, kvern_state_fork(w->state, rows, count, &fork));
    if (!fork)
        return;
    kvern_state_destroy(w->state);
    w->state = fork;
}

static void trim(worker *w)
{
    const size_t r = below(w, kvern_state_rows(w->state));
    const uint64_t most = (uint64_t)kvern_state_trimmable(w->state, r);
    expect_ok(w, kvern_state_trim(w->state, r, (int64_t)below(w, most / 2 + 1)));
}

static void operate(worker *w)
{
    switch (below(w, 9)) {
    case 0:
        take_in(w);
        break;
    case 1:
        change_places(w);
        break;
    case 2:
        continue_in_fork(w);
        break;
    case 3:
        trim(w);
        break;
    case 4:
    case 5:
        run_round(w);
        break;
    default:
        step(w, 12);
    }
    for (size_t r = 0; r < kvern_state_rows(w->state); r++) {
        const int64_t length = kvern_state_length(w->state, r);
        add_to_hash(w, &length, sizeof length);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < (check_is_long() ? 400 : 30); i++)
        operate(w);
    kvern_state_destroy(w->state);
    return NULL;
}

// ---- All at once, or one after the other ----

// The prefix itself goes while they work.
static void run_workers(worker *workers, bool at_once, size_t threads)
{
    static const uint64_t sequences[PREFIX_ROWS] = {1, 2};
    static const int64_t lengths[PREFIX_ROWS] = {150, 69};
    static const size_t both[PREFIX_ROWS] = {0, 1};
    mixed_world world;
    mixed_open(&world, threads);
    kvern_state *prefix = mixed_state(&world, PREFIX_ROWS);
    mixed_step(prefix, KVERN_PHASE_WINDOW, sequences, lengths, NULL);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.random = test_random_seed(check_seed() * 1000 + i),
                              .next_sequence = 1000000 * (i + 1)};
        assert_ok(kvern_state_fork(prefix, both, PREFIX_ROWS, &workers[i].state));
    }
    for (size_t i = 0; i < THREADS; i++) {
        if (at_once)
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        else
            work(&workers[i]);
    }
    kvern_state_destroy(prefix);
    for (size_t i = 0; i < THREADS && at_once; i++)
        pthread_join(workers[i].thread, NULL);
    mixed_close(&world);
}

static void compare_with_serial_run(size_t threads)
{
    static worker serial[THREADS], parallel[THREADS];
    run_workers(serial, false, 1);
    run_workers(parallel, true, threads);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(serial[i].errors, 0);
        assert_int_equal(parallel[i].errors, 0);
        assert_true(serial[i].hash == parallel[i].hash);
    }
}

static void fault_T1_states_over_one_prefix(void **state)
{
    (void)state;
    compare_with_serial_run(1);
}

static void threads_of_threads_give_serial_results(void **state)
{
    (void)state;
    compare_with_serial_run(3);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_T1_states_over_one_prefix),
        cmocka_unit_test(threads_of_threads_give_serial_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
