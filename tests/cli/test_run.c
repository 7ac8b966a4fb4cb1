// SPDX-License-Identifier: MIT
// kvern run with a prompt: what is answered, where it goes, and when it ends.

#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// Two characters of two and three bytes, each byte a token of its own.
#define ANSWER "caf\xc3\xa9 \xe2\x98\x95!"

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){.answer = ANSWER}, program_path("chain.gguf"));
    small_model_save(&(small_model){.answer = "01234567", .endless = true},
                     program_path("endless.gguf"));
    small_model_save(&(small_model){0}, program_path("random.gguf"));
    small_model_save(&(small_model){.answer = "abc", .chat = ""}, program_path("plain.gguf"));
    small_model_save(&(small_model){.answer = "a\033[31mb\177c\302\233d"},
                     program_path("control.gguf"));
    return 0;
}

static void expect_output(const program_call *call, const char *expected)
{
    program_result result = program_run_well(call);
    assert_string_equal(result.out, expected);
    program_free(&result);
}

static void test_answer(void **state)
{
    (void)state;
    const char *path = program_path("chain.gguf");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0"}},
                  ANSWER "\n");
    expect_output(&(program_call){.arguments = {"run", "--temp", "0", "--prompt=hi", path}},
                  ANSWER "\n");
    expect_output(&(program_call){.arguments = {"run", path, "--temp", "0"}, .input = "hi\n"},
                  ANSWER "\n");
    expect_output(
        &(program_call){.arguments = {"run", path, "--temp", "0", "--file", "-"}, .input = "hi"},
        ANSWER "\n");
}

// "<|im_end|>" ends the answer, whatever type the file gives it and whatever its end token is; and
// so does what a template of its own ends a turn with.
static void test_ends_of_turns(void **state)
{
    (void)state;
    const char *path = program_path("marks.gguf");
    const program_call call = {.arguments = {"run", path, "-p", "hi", "--temp", "0"}};
    for (int type = 1; type <= 4; type++) {
        if (type != 2) {
            small_model_save(&(small_model){.answer = ANSWER, .mark_type = type, .other_end = true},
                             path);
            expect_output(&call, ANSWER "\n");
        }
    }
    // A model whose turns end with "<|im_start|>".
    small_model_save(&(small_model){.answer = ANSWER,
                                    .other_end = true,
                                    .chat = "{% for m in messages %}{{ m.content }}<|im_start|>"
                                            "{% endfor %}{{ '\\n' }}",
                                    .turn_end = SMALL_MODEL_IM_START},
                     path);
    expect_output(&call, ANSWER "\n");
}

static void test_prompt_file(void **state)
{
    (void)state;
    const char *text = program_write_text("prompt.txt", "hi\n");
    const char *path = program_path("chain.gguf");
    expect_output(&(program_call){.arguments = {"run", path, "--temp", "0", "--file", text}},
                  ANSWER "\n");
    // As it is, with its newline, which is what the answer follows.
    expect_output(
        &(program_call){.arguments = {"run", path, "--temp", "0", "--raw", "--file", text}},
        ANSWER "\n");
}

static size_t prompt_tokens(const program_call *call)
{
    json_t *answer = program_json(call, 0);
    const size_t count = (size_t)json_integer_value(json_object_get(answer, "prompt_tokens"));
    json_decref(answer);
    return count;
}

// The newline that ends a file is no part of a message, and part of a text that is continued: with
// --raw, and for a model without a template.
static void test_last_newline(void **state)
{
    (void)state;
    const char *text = program_write_text("newline.txt", "ab\n");
    const char *plain = program_path("plain.gguf"), *chat = program_path("chain.gguf");
    assert_int_equal(
        prompt_tokens(&(program_call){.arguments = {"run", chat, "--json", "-f", text}}),
        prompt_tokens(&(program_call){.arguments = {"run", chat, "--json", "-p", "ab"}}));
    assert_int_equal(
        prompt_tokens(&(program_call){.arguments = {"run", chat, "--json", "-f", text, "--raw"}}),
        3);
    assert_int_equal(
        prompt_tokens(&(program_call){.arguments = {"run", plain, "--json", "-f", text}}), 3);
    assert_int_equal(
        prompt_tokens(&(program_call){.arguments = {"run", plain, "--json"}, .input = "ab\n"}), 3);
}

// What is no terminal gets every byte.
static void test_control_characters(void **state)
{
    (void)state;
    expect_output(&(program_call){.arguments = {"run", program_path("control.gguf"), "-p", "hi",
                                                "--temp", "0"}},
                  "a\033[31mb\177c\302\233d\n");
}

static void test_raw(void **state)
{
    (void)state;
    const char *path = program_path("chain.gguf");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "c", "--temp", "0", "--raw"}},
                  "af\xc3\xa9 \xe2\x98\x95!\n");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "z", "--temp", "0", "--raw"}},
                  "");
}

// Ends within a character: the part that is there is shown as one replacement character.
static void test_token_limit(void **state)
{
    (void)state;
    const char *path = program_path("chain.gguf");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "-n", "3"}},
                  "caf\n");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "-n", "4"}},
                  "caf\xef\xbf\xbd\n");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "-n", "5"}},
                  "caf\xc3\xa9\n");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "-n", "0"}},
                  "");
}

static void test_stop_strings(void **state)
{
    (void)state;
    const char *path = program_path("endless.gguf");
    expect_output(
        &(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "--stop", "701"}},
        "0123456\n");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "--stop",
                                                "701", "--stop", "45"}},
                  "0123\n");
    expect_output(&(program_call){.arguments = {"run", path, "-p", "hi", "--temp", "0", "--stop",
                                                "01", "-n", "20"}},
                  "");
}

static void test_full_context(void **state)
{
    (void)state;
    program_call call = {.arguments = {"run", program_path("endless.gguf"), "-p", "\n", "--raw",
                                       "--temp", "0", "--ctx", "11"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.out, "0123456701\n");
    program_expect_part(result.err, "context full");
    program_free(&result);
}

static void test_facts(void **state)
{
    (void)state;
    program_call call = {.arguments = {"run", program_path("chain.gguf"), "-p", "c", "--raw",
                                       "--temp", "0", "--ctx", "100"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    program_expect_part(result.err, "prompt      1 token in ");
    program_expect_part(result.err, "generation  9 tokens in ");
    program_expect_part(result.err, "(end of turn)");
    program_expect_part(result.err, " tokens/s");
    // A page of 64 positions at 128 bytes.
    program_expect_part(result.err, "KV cache    8192 bytes (8.2 kB) of bf16, 10 of 100 positions");
    assert_null(strchr(result.err, '\r')); // no progress bar without a terminal
    assert_null(strchr(result.err, '\033'));
    program_free(&result);
}

static void test_json(void **state)
{
    (void)state;
    program_call call = {.arguments = {"run", program_path("chain.gguf"), "-p", "c", "--raw",
                                       "--temp", "0", "-n", "3", "--json"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    json_t *answer = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(answer);
    assert_string_equal(json_string_value(json_object_get(answer, "text")), "af\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(answer, "finish")), "token limit");
    assert_int_equal(json_integer_value(json_object_get(answer, "prompt_tokens")), 1);
    assert_int_equal(json_integer_value(json_object_get(answer, "generated_tokens")), 3);
    assert_int_equal(json_integer_value(json_object_get(answer, "kv_bytes")), 8192);
    assert_int_equal(json_integer_value(json_object_get(answer, "context")), 256);
    assert_true(json_is_null(json_object_get(answer, "template")));
    assert_true(json_is_real(json_object_get(answer, "prompt_tokens_per_s")));
    assert_true(json_is_real(json_object_get(answer, "generation_tokens_per_s")));
    json_decref(answer);
    program_free(&result);
}

// Numbers are as long as it takes to read them back, no longer.
static void test_json_numbers(void **state)
{
    (void)state;
    const char *model = program_path("chain.gguf");
    program_call call = {.arguments = {"run", model, "-p", "c", "-n", "1", "--json"}};
    program_result result = program_run_well(&call);
    program_expect_part(result.out, "\"temperature\":0.7,");
    program_free(&result);
    call.arguments[7] = "--temp";
    call.arguments[8] = "1";
    result = program_run_well(&call);
    program_expect_part(result.out, "\"temperature\":1.0,");
    program_free(&result);
    result = program_run_well(&(program_call){.arguments = {"inspect", model, "--json"}});
    program_expect_part(result.out, "\"norm_epsilon\":1e-5,");
    program_expect_part(result.out, "\"base\":10000.0,");
    program_free(&result);
}

// What two runs of the random model print; the first option list against the second.
static int same_output(const program_call *one, const program_call *two)
{
    program_result first = program_run(one), second = program_run(two);
    assert_int_equal(first.code, 0);
    assert_int_equal(second.code, 0);
    assert_true(first.out_size > 20);
    int same =
        first.out_size == second.out_size && memcmp(first.out, second.out, first.out_size) == 0;
    program_free(&first);
    program_free(&second);
    return same;
}

static void test_seed(void **state)
{
    (void)state;
    const char *path = program_path("random.gguf");
    program_call one = {.arguments = {"run", path, "-p", "hi", "-n", "40", "--temp", "2", "--top-k",
                                      "0", "--top-p", "1", "--min-p", "0", "--seed", "7"}};
    program_call same = one, other = one;
    other.arguments[15] = "8";
    assert_true(same_output(&one, &same));
    assert_false(same_output(&one, &other));
    program_call greedy = one, top_one = one;
    greedy.arguments[7] = "0";
    top_one.arguments[9] = "1";
    assert_false(same_output(&one, &greedy));
    assert_true(same_output(&greedy, &top_one));
}

static void test_same_text_whatever_computes_it(void **state)
{
    (void)state;
    const char *path = program_path("random.gguf");
    program_call one = {
        .arguments = {"run", path, "-p", "hi", "-n", "60", "--seed", "7", "-t", "1"}};
    program_call two = one, plain = one;
    two.arguments[9] = "2";
    two.all_processors = true;
    plain.cpu = "plain";
    assert_true(same_output(&one, &two));
    assert_true(same_output(&one, &plain));
}

static void test_system_message(void **state)
{
    (void)state;
    const char *path = program_path("random.gguf");
    program_call without = {.arguments = {"run", path, "-p", "hi", "-n", "40", "--seed", "7"}};
    program_call with = without, as_default = without;
    with.arguments[8] = "--system";
    with.arguments[9] = "Answer in verse.";
    as_default.arguments[8] = "--template";
    as_default.arguments[9] = "chatml";
    assert_false(same_output(&without, &with));
    assert_true(same_output(&without, &as_default));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_ends_of_turns),
        cmocka_unit_test(test_prompt_file),
        cmocka_unit_test(test_last_newline),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_token_limit),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_same_text_whatever_computes_it),
        cmocka_unit_test(test_system_message),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
