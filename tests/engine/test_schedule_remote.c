// SPDX-License-Identifier: MIT
// Schedulers that share a server: what one computed the other one fetches, every answer is the one
// that its request gives alone, bit for bit, and a server that is silent, gone or forgets costs a
// request its time, and nobody else anything.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/family_case.h"
#include "tests/support/folder.h"
#include "tests/support/remote_bed.h"
#include "tests/support/schedule_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONTEXT 512
#define PROMPT 200

typedef struct machine {
    engine_fixture engine;
    kvern_remote_store *store;
    kvern_store *memory; // NULL: none
    kvern_store_field field;
    schedule_options options;
    schedule *schedule;
} machine;

static void *data;
static engine_fixture alone;

static void open_machine(machine *m, size_t bytes, const char *url, uint32_t fetch_ms,
                         uint64_t budget)
{
    engine_fixture_options options = engine_fixture_default(data, bytes);
    kvern_remote_store_options remote = remote_options();
    options.context.threads = 1;
    options.context.budget_bytes = budget;
    *m = (machine){.field = {"model", "m", 1}};
    m->engine = engine_fixture_open(&options);
    remote.fetch_ms = fetch_ms;
    remote.answer_ms = fetch_ms;
    assert_ok(kvern_remote_store_open(m->engine.context, url, &remote, &m->store));
    m->options = (schedule_options){.context_length = CONTEXT,
                                    .chunk = 16,
                                    .most_rows = 3,
                                    .most_kept = 1,
                                    .remote = m->store,
                                    .store_key = {&m->field, 1}};
    assert_ok(
        schedule_create(m->engine.model, m->engine.composition, &m->options, &m->schedule, NULL));
}

static void close_machine(machine *m)
{
    schedule_destroy(m->schedule);
    kvern_remote_store_close(m->store);
    kvern_store_destroy(m->memory);
    assert_int_equal(schedule_bed_memory(&m->engine).page_bytes, 0);
    engine_fixture_close(&m->engine);
}

static size_t make_model(bool recurrent)
{
    size_t bytes;
    if (recurrent) {
        family_case model = family_case_open(KVERN_TESTS_DIR "/golden/families/qwen3next.json");
        data = family_case_gguf(&model, &bytes);
        family_case_close(&model);
    } else {
        data = schedule_bed_file(true, 0, 2, &bytes);
    }
    const engine_fixture_options options = engine_fixture_default(data, bytes);
    alone = engine_fixture_open(&options);
    return bytes;
}

static void free_model(void)
{
    engine_fixture_close(&alone);
    free(data);
}

static void prepare(const machine *m, asked *a, size_t count, int64_t max_tokens)
{
    *a = (asked){.vocabulary = model_get_facts(m->engine.model)->vocabulary,
                 .max_tokens = max_tokens,
                 .count = count};
    a->sampling = sampler_default_options();
    a->sampling.temperature = 0;
    for (size_t i = 0; i < count; i++) {
        a->prompt[i] = (int32_t)(5 + i % 40);
    }
}

static void serve(machine *m, asked *a, size_t count)
{
    prepare(m, a, count, 4);
    asked_submit(a, m->schedule);
    while (schedule_step(m->schedule)) {
    }
    assert_int_equal(a->ends, 1);
    assert_int_equal(a->result.status, KVERN_OK);
    asked_expect_alone(a, &alone, CONTEXT, m->options.chunk);
}

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_start(NULL);
    remote_forget_reports();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remote_kill();
    folder_remove();
    return 0;
}

// ---- Sharing ----

static void one_computes_and_another_goes_on(void **state)
{
    (void)state;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        static asked first, longer;
        machine m, other;
        const size_t bytes = make_model(recurrent);
        open_machine(&m, bytes, remote_url(), 20000, 0);
        serve(&m, &first, PROMPT);
        assert_int_equal(first.result.stored_tokens, 0);
        assert_false(first.result.from_remote);
        kvern_remote_store_flush(m.store);
        open_machine(&other, bytes, remote_url(), 20000, 0);
        serve(&other, &longer, PROMPT + 40);
        assert_int_equal(longer.result.stored_tokens, PROMPT);
        assert_true(longer.result.from_remote);
        assert_int_equal(remote_stats(other.store).lookups.tokens_lent, PROMPT);
        asked_free(&first);
        asked_free(&longer);
        close_machine(&other);
        close_machine(&m);
        freeReplyObject(remote_ask("FLUSHALL"));
        free_model();
    }
}

// A prompt is there for others as soon as it is computed, while its answer goes on.
static void a_prompt_is_shared_before_its_answer_ends(void **state)
{
    (void)state;
    static asked first, other_one;
    machine m, other;
    size_t bytes;
    data = schedule_bed_file(false, 0, 2, &bytes); // without windows: rows serve all beginnings
    const engine_fixture_options options = engine_fixture_default(data, bytes);
    alone = engine_fixture_open(&options);
    open_machine(&m, bytes, remote_url(), 20000, 0);
    prepare(&m, &first, PROMPT, 60);
    asked_submit(&first, m.schedule);
    while (first.taken == 0) {
        assert_true(schedule_step(m.schedule));
    }
    kvern_remote_store_flush(m.store);
    assert_int_equal(remote_stats(m.store).publications, 1);
    open_machine(&other, bytes, remote_url(), 20000, 0);
    serve(&other, &other_one, PROMPT + 40);
    assert_int_equal(first.ends, 0);
    assert_int_equal(other_one.result.stored_tokens, PROMPT);
    assert_true(other_one.result.from_remote);
    while (schedule_step(m.schedule)) {
    }
    asked_expect_alone(&first, &alone, CONTEXT, m.options.chunk);
    kvern_remote_store_flush(m.store);
    assert_int_equal(remote_stats(m.store).publications, 2);
    // What was fetched but for a few tokens is not published again before its end.
    kvern_remote_store_flush(other.store);
    assert_int_equal(remote_stats(other.store).publications, 1);
    asked_free(&first);
    asked_free(&other_one);
    close_machine(&other);
    close_machine(&m);
    free_model();
}

// What is near has as much: nothing is fetched.
static void what_is_near_is_not_fetched(void **state)
{
    (void)state;
    static asked first, again;
    machine m;
    const size_t bytes = make_model(false);
    open_machine(&m, bytes, remote_url(), 20000, 0);
    assert_ok(kvern_store_create(m.engine.context, NULL, &m.memory));
    schedule_destroy(m.schedule);
    m.options.store = m.memory;
    assert_ok(schedule_create(m.engine.model, m.engine.composition, &m.options, &m.schedule, NULL));
    serve(&m, &first, PROMPT);
    kvern_remote_store_flush(m.store);
    serve(&m, &again, PROMPT);
    assert_int_equal(again.result.stored_tokens, PROMPT - 1);
    assert_false(again.result.from_remote);
    assert_int_equal(remote_stats(m.store).lookups.loans, 0);
    asked_free(&first);
    asked_free(&again);
    close_machine(&m);
    free_model();
}

// Waves of requests that begin alike on two machines, also under a budget of three rows, while the
// server forgets.
static void random_requests_are_those_alone(void **state)
{
    (void)state;
    enum { COUNT = 6, WAVES = 3 };
    asked *requests = calloc(COUNT, sizeof *requests);
    assert_non_null(requests);
    for (int tight = 0; tight < 2; tight++) {
        const size_t bytes = make_model(false);
        test_random random = test_random_seed(check_seed() + (uint64_t)tight);
        machine m[2];
        uint64_t lent = 0;
        const uint64_t row = asked_row_bytes(alone.composition, CONTEXT, 8, 0);
        for (size_t i = 0; i < 2; i++) {
            open_machine(&m[i], bytes, remote_url(), 20000, tight ? 8000000 + 3 * row : 0);
        }
        for (size_t w = 0; w < 2 * WAVES; w++) {
            memset(requests, 0, COUNT * sizeof *requests);
            asked_serve(requests, COUNT, m[w % 2].engine.model, m[w % 2].schedule, &random);
            for (size_t i = 0; i < COUNT; i++) {
                asked_expect_alone(&requests[i], &alone, CONTEXT, 16);
                asked_free(&requests[i]);
            }
            kvern_remote_store_flush(m[w % 2].store);
            if (w == WAVES) {
                freeReplyObject(remote_ask("FLUSHALL"));
            }
        }
        for (size_t i = 0; i < 2; i++) {
            lent += remote_stats(m[i].store).lookups.tokens_lent;
            assert_int_equal(remote_stats(m[i].store).fetching, 0);
            close_machine(&m[i]);
        }
        assert_true(lent > 0);
        freeReplyObject(remote_ask("FLUSHALL"));
        free_model();
    }
    free(requests);
}

// ---- Servers that do not serve ----

// A server that takes connections, and never says a word.
static int listen_silently(char *url, size_t bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", folder_path("silent"));
    assert_int_equal(0, bind(s, (struct sockaddr *)&address, sizeof address));
    assert_int_equal(0, listen(s, 16));
    snprintf(url, bytes, "unix:%s", address.sun_path);
    return s;
}

// While one waits for a silent server, those that run go on, and one behind it is admitted.
static void a_fetch_stalls_nobody_else(void **state)
{
    (void)state;
    static asked waits, goes, late;
    char url[300];
    machine m;
    const size_t bytes = make_model(false);
    const int silent = listen_silently(url, sizeof url);
    open_machine(&m, bytes, url, 1500, 0);
    prepare(&m, &waits, PROMPT, 4);
    prepare(&m, &goes, 1, 60); // has nothing to be fetched, and is told so at once
    asked_submit(&waits, m.schedule);
    asked_submit(&goes, m.schedule);
    bool passed = false;
    while (schedule_step(m.schedule)) {
        passed = passed || (goes.ends == 1 && waits.taken == 0);
    }
    assert_true(passed);
    assert_int_equal(waits.ends, 1);
    assert_int_equal(goes.ends, 1);
    asked_expect_alone(&waits, &alone, CONTEXT, m.options.chunk);
    asked_expect_alone(&goes, &alone, CONTEXT, m.options.chunk);
    assert_true(waits.result.queue_seconds >= 1);
    assert_string_equal(waits.result.why, kvern_store_why_text(KVERN_STORE_OFFLINE));
    // From now on nobody waits.
    serve(&m, &late, PROMPT + 1);
    assert_true(late.result.queue_seconds < 1);
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_DOWN]);
    asked_free(&waits);
    asked_free(&goes);
    asked_free(&late);
    close_machine(&m);
    close(silent);
    free_model();
}

// A request that waits can be cancelled.
static void a_waiting_request_can_be_cancelled(void **state)
{
    (void)state;
    static asked waits;
    char url[300];
    machine m;
    const size_t bytes = make_model(false);
    const int silent = listen_silently(url, sizeof url);
    open_machine(&m, bytes, url, 20000, 0);
    prepare(&m, &waits, PROMPT, 4);
    asked_submit(&waits, m.schedule);
    for (int i = 0; i < 5; i++) {
        assert_true(schedule_step(m.schedule));
    }
    assert_int_equal(waits.taken, 0);
    assert_true(schedule_cancel(m.schedule, waits.id));
    while (schedule_step(m.schedule)) {
    }
    assert_int_equal(waits.ends, 1);
    assert_int_equal(waits.result.reason, GENERATE_CANCELLED);
    asked_free(&waits);
    close_machine(&m);
    close(silent);
    free_model();
}

static void a_server_that_is_killed_costs_no_request(void **state)
{
    (void)state;
    static asked a[4];
    machine m;
    const size_t bytes = make_model(false);
    open_machine(&m, bytes, remote_url(), 20000, 0);
    serve(&m, &a[0], PROMPT);
    kvern_remote_store_flush(m.store);
    serve(&m, &a[1], PROMPT + 30);
    assert_true(a[1].result.from_remote);
    kvern_remote_store_flush(m.store);
    remote_kill();
    serve(&m, &a[2], PROMPT + 40);
    assert_int_equal(a[2].result.stored_tokens, 0);
    remote_start(NULL);
    for (int i = 0; i < 1000 && !remote_stats(m.store).is_reachable; i++) {
        usleep(10000);
    }
    serve(&m, &a[3], PROMPT + 50);
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_DOWN]);
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_UP]);
    for (size_t i = 0; i < 4; i++) {
        asked_free(&a[i]);
    }
    close_machine(&m);
    free_model();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_computes_and_another_goes_on),
        TEST(a_prompt_is_shared_before_its_answer_ends),
        TEST(what_is_near_is_not_fetched),
        TEST(random_requests_are_those_alone),
        TEST(a_fetch_stalls_nobody_else),
        TEST(a_waiting_request_can_be_cancelled),
        TEST(a_server_that_is_killed_costs_no_request),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
