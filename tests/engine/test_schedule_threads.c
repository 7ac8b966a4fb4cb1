// SPDX-License-Identifier: MIT
// Schedulers on threads of their own that share a model, its context and its threads, while another
// thread cancels requests: each answer is that of its request alone, up to where it was cancelled.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/tiny_llama.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define SCHEDULERS 3
#define REQUESTS 8
#define ROWS 3
#define CHUNK 16
#define CONTEXT 128

typedef struct worker {
    const engine_fixture *engine;
    asked requests[REQUESTS];
    schedule *schedule;
    pthread_t thread;
} worker;

static void *serve(void *user)
{
    worker *w = user;
    while (schedule_step(w->schedule)) {
    }
    return NULL;
}

static worker workers[SCHEDULERS];
static atomic_size_t served; // schedulers that are done

// Sets the flag of one request after the other, with time for some tokens in between.
static void *cancel_some(void *user)
{
    (void)user;
    test_random random = test_random_seed(2);
    for (size_t i = 0; i < 6 && atomic_load(&served) < SCHEDULERS; i++) {
        worker *w = &workers[test_random_below(&random, SCHEDULERS)];
        atomic_store(&w->requests[test_random_below(&random, REQUESTS)].cancel, true);
        for (int j = 0; j < 200; j++) {
            sched_yield();
        }
    }
    return NULL;
}

static void open_worker(worker *w, const engine_fixture *engine, uint64_t seed)
{
    test_random random = test_random_seed(seed);
    const schedule_options options = {.context_length = CONTEXT, .chunk = CHUNK, .most_rows = ROWS};
    engine_error error;
    *w = (worker){.engine = engine};
    if (schedule_create(engine->model, engine->composition, &options, &w->schedule, &error) !=
        KVERN_OK) {
        fail_msg("%s", error.text);
    }
    for (size_t i = 0; i < REQUESTS; i++) {
        asked_fill(&w->requests[i], engine->model, 20 + 5 * i, i % 2 ? 20 : 0, &random);
        asked_submit(&w->requests[i], w->schedule);
    }
}

static void close_worker(worker *w, const engine_fixture *alone)
{
    schedule_destroy(w->schedule);
    for (size_t i = 0; i < REQUESTS; i++) {
        asked_expect_alone(&w->requests[i], alone, CONTEXT, CHUNK);
        assert_int_equal(w->requests[i].result.status, KVERN_OK);
        asked_free(&w->requests[i]);
    }
}

static void schedulers_share_a_model(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    model.vocabulary = 260;
    model.byte_tokenizer = true;
    model.separate_output = true;
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.kv = KVERN_BF16;
    engine_fixture alone = engine_fixture_open(&options);
    options.context.executor = executor_threads(2);
    engine_fixture engine = engine_fixture_open(&options);
    for (size_t i = 0; i < SCHEDULERS; i++) {
        open_worker(&workers[i], &engine, check_seed() + i);
    }
    pthread_t canceller;
    for (size_t i = 0; i < SCHEDULERS; i++) {
        assert_int_equal(pthread_create(&workers[i].thread, NULL, serve, &workers[i]), 0);
    }
    assert_int_equal(pthread_create(&canceller, NULL, cancel_some, NULL), 0);
    for (size_t i = 0; i < SCHEDULERS; i++) {
        pthread_join(workers[i].thread, NULL);
        atomic_fetch_add(&served, 1);
    }
    pthread_join(canceller, NULL);
    for (size_t i = 0; i < SCHEDULERS; i++) {
        close_worker(&workers[i], &alone);
    }
    engine_fixture_close(&engine);
    engine_fixture_close(&alone);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedulers_share_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
