// SPDX-License-Identifier: MIT
// --store: what one process computed another one fetches, with the same answer; a server that is
// not there costs a warning; and kvern prefill.

#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/remote_bed.h"
#include "tests/support/small_model.h"

#include <stdio.h>
#include <string.h>

#define PROMPT                                                                                     \
    "what is said first, at some length, so that it pays to have it sent by a server, and then "   \
    "once more at some length, with a word or two behind it which nobody has said before, or has"
#define LONGER PROMPT " said now and then"

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_start(NULL);
    small_model_save(&(small_model){.context = 512}, program_path("model.gguf"));
    return 0;
}

static int tear_down(void **state)
{
    remote_kill();
    folder_remove();
    return program_tear_down(state);
}

#define RUN(prompt, ...)                                                                           \
    (program_call)                                                                                 \
    {                                                                                              \
        .arguments = {                                                                             \
            "run",                                                                                 \
            program_path("model.gguf"),                                                            \
            "-p",                                                                                  \
            prompt,                                                                                \
            "--temp",                                                                              \
            "0",                                                                                   \
            "-n",                                                                                  \
            "8",                                                                                   \
            "-t",                                                                                  \
            "1",                                                                                   \
            "--json",                                                                              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static void expect_same_text(const json_t *a, const json_t *b)
{
    assert_string_equal(json_string_at(a, "text"), json_string_at(b, "text"));
}

static void a_prompt_is_fetched_by_another_process(void **state)
{
    (void)state;
    freeReplyObject(remote_ask("FLUSHALL"));
    json_t *alone = program_json(&RUN(LONGER), 0);
    json_t *first = program_json(&RUN(PROMPT, "--store", remote_url()), 0);
    json_t *second = program_json(&RUN(LONGER, "--store", remote_url()), 0);
    assert_int_equal(0, json_integer_at(first, "reused_tokens"));
    assert_true(json_is_null(json_object_get(first, "reused_from")));
    assert_true(json_integer_at(second, "reused_tokens") >= 64);
    assert_string_equal("shared store", json_string_at(second, "reused_from"));
    assert_true(strlen(json_string_at(second, "reuse_reason")) > 0);
    expect_same_text(alone, second);
    json_decref(alone);
    json_decref(first);
    json_decref(second);
}

static void prefill_publishes(void **state)
{
    (void)state;
    freeReplyObject(remote_ask("FLUSHALL"));
    const program_call call = {.arguments = {"prefill", program_path("model.gguf"), "-p", PROMPT,
                                             "-t", "1", "--store", remote_url()}};
    program_result result = program_run_well(&call);
    program_expect_part(result.err, "published");
    assert_null(strstr(result.err, "generation"));
    assert_null(strstr(result.err, "sampling"));
    assert_int_equal(0, result.out_size);
    program_free(&result);
    assert_int_equal(1, remote_keys('e'));
    json_t *after = program_json(&RUN(LONGER, "--store", remote_url()), 0);
    assert_true(json_integer_at(after, "reused_tokens") >= 64);
    json_decref(after);
}

static void batches_fetch_too(void **state)
{
    (void)state;
    freeReplyObject(remote_ask("FLUSHALL"));
    json_decref(program_json(&RUN(PROMPT, "--raw", "--store", remote_url()), 0));
    program_write_text("prompts", "{\"id\": 1, \"prompt\": \"" LONGER "\", \"raw\": true}\n");
    json_t *sums = program_json(
        &(program_call){.arguments = {"batch", program_path("model.gguf"), "--prompts",
                                      program_path("prompts"), "--out", program_path("answers"),
                                      "-n", "4", "--temp", "0", "-t", "1", "--json", "--raw",
                                      "--store", remote_url()}},
        0);
    const json_t *shared = json_object_get(sums, "shared_store");
    assert_int_equal(1, json_integer_at(sums, "answered"));
    assert_int_equal(1, json_integer_at(shared, "loans"));
    assert_true(json_integer_at(shared, "tokens_lent") >= 64);
    assert_true(json_is_true(json_object_get(shared, "reachable")));
    json_decref(sums);
}

static void a_server_that_is_not_there_costs_a_warning(void **state)
{
    (void)state;
    char nowhere[300];
    snprintf(nowhere, sizeof nowhere, "unix:%s", program_path("nowhere"));
    json_t *alone = program_json(&RUN(PROMPT), 0);
    program_result result = program_run(&RUN(PROMPT, "--store", nowhere));
    json_error_t error;
    assert_int_equal(0, result.code);
    json_t *without = json_loads(result.out, 0, &error);
    assert_non_null(without);
    expect_same_text(alone, without);
    program_expect_part(result.err, "left alone for now");
    program_free(&result);
    json_decref(without);
    json_decref(alone);
    result = program_run(&(program_call){.arguments = {"prefill", program_path("model.gguf"), "-p",
                                                       PROMPT, "-t", "1", "--store", nowhere}});
    assert_int_equal(1, result.code);
    program_expect_part(result.err, "the shared store does not answer, so the prompt is not");
    assert_null(strstr(result.err, "tokens/s")); // nothing was computed
    program_free(&result);
}

static void wrong_words_are_refused(void **state)
{
    (void)state;
    program_expect_usage(&RUN(PROMPT, "--store-size", "1G"), "--store-size needs --store");
    program_expect_usage(&RUN(PROMPT, "--store", "redis://h", "--store-hours", "0"),
                         "--store-hours takes a number from 1 to 8760");
    program_expect_usage(&RUN(PROMPT, "--store", "redis://h", "--store-seconds", "3601"),
                         "--store-seconds takes a number from 1 to 3600");
    program_expect_usage(&RUN(PROMPT, "--store-seconds", "9"), "--store-seconds needs --store");
    program_expect_usage(&RUN(PROMPT, "--store", "redis://h", "--no-cache"),
                         "--store and --no-cache cannot be used together");
    program_expect_usage(
        &(program_call){.arguments = {"prefill", program_path("model.gguf"), "-p", PROMPT}},
        "where is the prompt to be kept");
    program_expect_failure(&RUN(PROMPT, "--store", "http://h"),
                           "it does not begin with redis://, rediss:// or unix:");
    program_expect_failure(&RUN(PROMPT, "--store", "redis://h?db=1"), "'?' and '#'");
    program_expect_failure(&RUN(PROMPT, "--store", "redis://h", "--store-ca", "/nowhere"),
                           "a server without");
    program_expect_usage(&RUN(PROMPT, "--store-ca", "/nowhere"), "--store-ca needs --store");
    program_expect_usage(&RUN(PROMPT, "--store", "rediss://h", "--store-cert", "/nowhere"),
                         "--store-cert and --store-key go together");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_fetched_by_another_process),
        cmocka_unit_test(prefill_publishes),
        cmocka_unit_test(batches_fetch_too),
        cmocka_unit_test(a_server_that_is_not_there_costs_a_warning),
        cmocka_unit_test(wrong_words_are_refused),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, set_up, tear_down) : 0;
}
