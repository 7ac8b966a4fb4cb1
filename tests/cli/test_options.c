// SPDX-License-Identifier: MIT
// The names that options have elsewhere, the last of a repeated one, penalties and biases, and what
// --quiet leaves out.

#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_OPTIONS 8

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){0}, program_path("random.gguf"));
    small_model_save(&(small_model){.answer = "01234567", .endless = true},
                     program_path("endless.gguf"));
    small_model_save(&(small_model){.answer = "abc"}, program_path("short.gguf"));
    program_write_text("text", "hi");
    return 0;
}

static program_result run_with(const char *model, const char *const *options)
{
    program_call call = {.arguments = {"run", program_path(model)}};
    for (size_t i = 0; i < MOST_OPTIONS && options[i]; i++) {
        call.arguments[2 + i] = options[i];
    }
    return program_run(&call);
}

static void expect_same(const char *model, const char *const *one, const char *const *two)
{
    program_result first = run_with(model, one), second = run_with(model, two);
    if (first.code != 0 || second.code != 0) {
        fail_msg("%s%s", first.err, second.err);
    }
    assert_true(first.out_size > 3);
    assert_string_equal(first.out, second.out);
    // The line that names the storage and the context.
    const char *cache = strstr(first.err, "KV cache"), *other = strstr(second.err, "KV cache");
    assert_non_null(cache);
    assert_non_null(other);
    assert_int_equal(strcspn(cache, "\n"), strcspn(other, "\n"));
    assert_memory_equal(cache, other, strcspn(cache, "\n"));
    program_free(&first);
    program_free(&second);
}

// Both lines mean the same; each changes what the program does without it.
static void test_names(void **state)
{
    (void)state;
    static const char *const SAME[][2][MOST_OPTIONS] = {
        {{"-p", "hi", "-n", "9", "--seed", "7"}, {"-p", "hi", "--n-predict", "9", "-s", "7"}},
        {{"-p", "hi", "-n", "9", "--seed", "7"}, {"-p", "hi", "--predict=9", "-s7"}},
        {{"-p", "hi", "-n", "9", "--temp", "0"}, {"-p", "hi", "-n9", "--temperature", "0"}},
        {{"-p", "hi", "-n", "9", "-s", "7", "--system", "Be brief."},
         {"-p", "hi", "-n", "9", "-s", "7", "-sys", "Be brief."}},
        {{"-p", "hi", "-n", "9", "-s", "7", "--system", "Be brief."},
         {"-p", "hi", "-n", "9", "-s", "7", "--system-prompt", "Be brief."}},
        {{"-p", "hi", "-n", "9", "-s", "7", "--template", "chatml"},
         {"-p", "hi", "-n", "9", "-s", "7", "--chat-template", "chatml"}},
        {{"-p", "hi", "-n", "30", "-s", "7", "--kv-k", "f32"},
         {"-p", "hi", "-n", "30", "-s", "7", "-ctk", "f32"}},
        {{"-p", "hi", "-n", "30", "-s", "7", "--kv-k", "f32"},
         {"-p", "hi", "-n", "30", "-s", "7", "--cache-type-k", "f32"}},
        {{"-p", "hi", "-n", "30", "-s", "7", "--kv-v", "f32"},
         {"-p", "hi", "-n", "30", "-s", "7", "-ctv", "f32"}},
        {{"-p", "hi", "-n", "30", "-s", "7", "--kv-v", "f32"},
         {"-p", "hi", "-n", "30", "-s", "7", "--cache-type-v=f32"}},
        {{"-p", "hi", "-n", "30", "-s", "7", "--repeat-penalty", "2"},
         {"-p", "hi", "-n", "30", "-s", "7", "--repetition-penalty", "2"}},
        {{"-p", "hi", "-s", "7", "--ctx", "60"}, {"-p", "hi", "-s", "7", "-c", "60"}},
        {{"-p", "hi", "-s", "7", "--ctx", "60"}, {"-p", "hi", "-s", "7", "--ctx-size", "60"}},
        {{"-p", "hi", "-n", "9", "-s", "7"}, {"-p", "hi", "-n", "9", "-s", "7", "-t", "0"}},
        {{"-p", "hi", "-n", "9", "-s", "7"}, {"-p", "hi", "-n", "9", "-s", "7", "-c", "0"}},
        {{"-p", "hi", "-s", "7"}, {"-p", "hi", "-s", "7", "-n", "-1"}},
    };
    for (size_t i = 0; i < sizeof SAME / sizeof SAME[0]; i++) {
        expect_same("random.gguf", SAME[i][0], SAME[i][1]);
    }
    const char *file = program_path("text");
    expect_same("random.gguf", (const char *const[MOST_OPTIONS]){"-p", "hi", "-s", "7"},
                (const char *const[MOST_OPTIONS]){"-f", file, "-s", "7"});
}

static void test_model(void **state)
{
    (void)state;
    const char *model = program_path("short.gguf");
    program_result result = program_run_well(
        &(program_call){.arguments = {"run", "-p", "hi", "--temp", "0", "-m", model}});
    assert_string_equal(result.out, "abc\n");
    program_free(&result);
    result = program_run_well(&(program_call){
        .arguments = {"run", "-m", "other", "--model", model, "-p", "hi", "--temp", "0"}});
    assert_string_equal(result.out, "abc\n");
    program_free(&result);
    program_expect_usage(&(program_call){.arguments = {"run", "-m", "a", "b"}},
                         "unexpected argument 'b' (the model is 'a'; a text is given with -p)");
    program_call drafted = {.arguments = {"run", model, "-p", "hi", "--temp", "0", "-md", model}};
    result = program_run_well(&drafted);
    assert_string_equal(result.out, "abc\n");
    program_expect_part(result.err, "\ndrafts      ");
    program_free(&result);
    drafted.arguments[6] = "--model-draft";
    drafted.arguments[8] = "--draft-max";
    drafted.arguments[9] = "3";
    result = program_run_well(&drafted);
    program_expect_part(result.err, "\ndrafts      ");
    program_free(&result);
}

// An alias of a shell, and what is typed behind it.
static void test_the_last_one_counts(void **state)
{
    (void)state;
    static const char *const PAIRS[][2][MOST_OPTIONS] = {
        {{"-p", "hi", "-n", "9", "-s", "7"}, {"-p", "no", "-p", "hi", "-n", "9", "-s", "7"}},
        {{"-p", "hi", "-n", "9", "-s", "7"}, {"-n", "3", "-p", "hi", "-n", "9", "-s", "7"}},
        {{"-p", "hi", "-n", "9", "-s", "7"}, {"-s", "5", "-p", "hi", "-n", "9", "-s", "7"}},
        {{"-p", "hi", "-n", "9", "--temp", "0"},
         {"--temp", "9", "-p", "hi", "-n", "9", "--temp", "0"}},
        {{"-p", "hi", "-n", "40", "-s", "7"},
         {"--kv=f32", "-p", "hi", "-n", "40", "-s7", "--kv", "bf16"}},
        {{"-p", "hi", "-n", "40", "-s", "7"},
         {"--kv-k=f32", "-p", "hi", "-n", "40", "-s7", "--kv-k", "bf16"}},
    };
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++) {
        expect_same("random.gguf", PAIRS[i][0], PAIRS[i][1]);
    }
    static const char *const STOPS[MOST_OPTIONS] = {"-p",     "hi", "--temp", "0",
                                                    "--stop", "45", "--stop", "23"};
    program_result result = run_with("endless.gguf", STOPS); // these add up
    assert_string_equal(result.out, "01\n");
    program_free(&result);
}

// 01234567 for ever, until what was there is too unlikely: the next token has a logit of 66 or so,
// every other one 0.
static void test_penalties(void **state)
{
    (void)state;
    static const char *const LINES[][2] = {
        {"--presence-penalty=90", "-n20"},
        {"--frequency-penalty=90", "-n20"},
        {"--presence-penalty=40", "--repeat-penalty=2"},
    };
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        const char *options[MOST_OPTIONS] = {"-p", "hi", "--temp",    "0",
                                             "-n", "20", LINES[i][0], LINES[i][1]};
        program_result result = run_with("endless.gguf", options);
        assert_int_equal(result.code, 0);
        assert_memory_equal(result.out, "01234567", 8);
        assert_int_not_equal(result.out[8], '0');
        program_expect_part(result.err, "sampling    greedy --repeat-penalty ");
        program_expect_part(result.err, "--repeat-last-n 64\n");
        program_free(&result);
        options[1] = "--repeat-last-n=7"; // the eighth has gone by then
        options[0] = "--prompt=hi";
        result = run_with("endless.gguf", options);
        assert_string_equal(result.out, "01234567012345670123\n");
        program_free(&result);
        options[1] = "--repeat-last-n=0";
        result = run_with("endless.gguf", options);
        assert_string_equal(result.out, "01234567012345670123\n");
        program_expect_part(result.err, "sampling    greedy\n");
        program_free(&result);
    }
}

static json_t *tokens_of(const char *model, const char *text)
{
    return program_json(
        &(program_call){.arguments = {"tokenize", program_path(model), "-p", text, "--json"}}, 0);
}

static void test_biases(void **state)
{
    (void)state;
    json_t *list = tokens_of("endless.gguf", "7");
    const json_t *token = json_array_get(json_object_get(list, "tokens"), 0);
    char never[40];
    snprintf(never, sizeof never, "--logit-bias=%lld-inf",
             (long long)json_integer_value(json_object_get(token, "id")));
    json_decref(list);
    const char *options[MOST_OPTIONS] = {"-p", "hi", "--temp", "0", "-n", "20", never};
    program_result result = run_with("endless.gguf", options);
    assert_int_equal(result.code, 0);
    assert_memory_equal(result.out, "0123456", 7);
    assert_null(strchr(result.out, '7'));
    program_free(&result);
    options[6] = "--logit-bias=99999+1";
    result = run_with("endless.gguf", options);
    assert_int_equal(result.code, 1);
    program_expect_part(result.err, "token 99999 has a bias");
    program_free(&result);
}

static void test_ignore_eos(void **state)
{
    (void)state;
    static const char *const ENDS[MOST_OPTIONS] = {"-p", "hi", "--temp", "0", "-n", "12"};
    static const char *const GOES_ON[MOST_OPTIONS] = {"-p", "hi", "--temp",      "0",
                                                      "-n", "12", "--ignore-eos"};
    program_result result = run_with("short.gguf", ENDS);
    assert_string_equal(result.out, "abc\n");
    program_expect_part(result.err, "(end of turn)");
    program_free(&result);
    result = run_with("short.gguf", GOES_ON);
    assert_memory_equal(result.out, "abc", 3);
    program_expect_part(result.err, "generation  12 tokens");
    program_expect_part(result.err, "(token limit)");
    program_free(&result);
}

static void test_quiet(void **state)
{
    (void)state;
    static const char *const QUIET[MOST_OPTIONS] = {"-p", "hi", "--temp", "0", "-q"};
    program_result result = run_with("short.gguf", QUIET);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.out, "abc\n");
    assert_string_equal(result.err, "");
    program_free(&result);
    program_expect_failure(&(program_call){.arguments = {"run", "none", "-p", "hi", "--quiet"}},
                           "none");
}

// A name stands for a file of the folder of models, unless there is a file of that name.
static void test_models_by_name(void **state)
{
    (void)state;
    setenv("KVERN_MODELS", program_folder(), 1);
    program_result result = program_run_well(
        &(program_call){.arguments = {"run", "short", "-p", "hi", "--temp", "0", "-md", "short"}});
    assert_string_equal(result.out, "abc\n");
    program_expect_part(result.err, "\ndrafts      ");
    program_free(&result);
    program_expect_failure(&(program_call){.arguments = {"run", "other", "-p", "hi"}},
                           "other: No such file, and no model that was fetched has this name "
                           "('kvern pull --list'");
    program_expect_failure(&(program_call){.arguments = {"run", "./short", "-p", "hi"}},
                           "./short: No such file");
    unsetenv("KVERN_MODELS");
}

// What is there already is not fetched again, and can be used by its name then.
static void test_pull(void **state)
{
    (void)state;
    program_result result = program_run_well(&(program_call){.arguments = {"pull", "--list"}});
    assert_memory_equal(result.out, "smollm2 ", 8);
    program_expect_part(result.out, "\ngemma3-270m ");
    program_free(&result);
    program_expect_usage(&(program_call){.arguments = {"pull"}}, "no model given");
    result = program_run(&(program_call){.arguments = {"pull", "nothing"}});
    assert_int_equal(result.code, 2);
    program_expect_part(result.err, "unknown model 'nothing'");
    program_free(&result);
    const char *file = program_write_text("SmolLM2-135M-Instruct.Q4_1.gguf", "");
    assert_int_equal(truncate(file, 98362432), 0);
    setenv("KVERN_MODELS", program_folder(), 1);
    result = program_run_well(&(program_call){.arguments = {"pull", "smollm2"}});
    char expected[200];
    snprintf(expected, sizeof expected, "%s\n", file);
    assert_string_equal(result.out, expected);
    assert_string_equal(result.err, "");
    program_free(&result);
    char link[100] = "";
    assert_true(readlink(program_path("smollm2.gguf"), link, sizeof link - 1) > 0);
    assert_string_equal(link, "SmolLM2-135M-Instruct.Q4_1.gguf");
    unsetenv("KVERN_MODELS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_the_last_one_counts),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_ignore_eos),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_models_by_name),
        cmocka_unit_test(test_pull),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
