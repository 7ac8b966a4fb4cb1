// SPDX-License-Identifier: MIT
// kvern run --draft, kvern batch --draft, and kvern bench draft: the same text, what is told about
// it, and what is refused.

#include "tests/support/program.h"
#include "tests/support/small_model.h"
#include "tests/support/tiny_llama.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){.answer = "01234567", .endless = true},
                     program_path("endless.gguf"));
    small_model_save(&(small_model){.context = 2048}, program_path("random.gguf"));
    tiny_llama other = tiny_llama_default(GGUF_TYPE_F32);
    tiny_llama_save(&other, program_path("other.gguf"));
    program_write_text("broken.gguf", "not a model");
    return 0;
}

// The text with drafts of a kind equals the text without; what stderr says about them holds `fact`.
static void expect_same_text(const program_call *plain, const char *source, const char *fact)
{
    program_call drafted = *plain;
    size_t count = 0;
    while (drafted.arguments[count]) {
        count++;
    }
    drafted.arguments[count] = "--draft";
    drafted.arguments[count + 1] = source;
    program_result without = program_run_well(plain), with = program_run_well(&drafted);
    assert_true(without.out_size >= 5);
    assert_int_equal(with.out_size, without.out_size);
    assert_memory_equal(with.out, without.out, without.out_size);
    assert_null(strstr(without.err, "drafts"));
    program_expect_part(with.err, "drafts      ");
    program_expect_part(with.err, fact);
    program_free(&without);
    program_free(&with);
}

static void test_same_text(void **state)
{
    (void)state;
    const char *endless = program_path("endless.gguf"), *random = program_path("random.gguf");
    expect_same_text(
        &(program_call){.arguments = {"run", endless, "-p", "hi", "--temp", "0", "-n", "100"}},
        "ngram", " tokens per step (ngram)");
    expect_same_text(&(program_call){.arguments = {"run", endless, "-p", "hi", "--temp", "0",
                                                   "--stop", "5670", "-n", "100"}},
                     random, "(");
    for (size_t i = 0; i < 2; i++) {
        expect_same_text(&(program_call){.arguments = {"run", random, "-p", "hihihi", "--temp",
                                                       i ? "0" : "2", "--seed", "3", "-n", "100"}},
                         i ? random : "ngram", " accepted in ");
    }
}

static json_t *run_json(const program_call *call)
{
    program_result result = program_run_well(call);
    json_t *object = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    program_free(&result);
    return object;
}

static json_int_t number(const json_t *object, const char *name)
{
    assert_true(json_is_integer(json_object_get(object, name)));
    return json_integer_value(json_object_get(object, name));
}

static void test_json(void **state)
{
    (void)state;
    program_call call = {.arguments = {"run", program_path("endless.gguf"), "-p", "hi", "--temp",
                                       "0", "-n", "100", "--json"}};
    json_t *plain = run_json(&call);
    assert_true(json_is_null(json_object_get(plain, "drafts")));
    call.arguments[9] = "--draft=ngram";
    json_t *drafted = run_json(&call);
    const json_t *drafts = json_object_get(drafted, "drafts");
    assert_string_equal(json_string_value(json_object_get(drafts, "source")), "ngram");
    assert_in_range(number(drafts, "accepted"), 40, number(drafts, "drafted"));
    assert_in_range(number(drafts, "rounds"), 1, number(drafts, "steps"));
    assert_in_range(number(drafts, "steps"), 1, 60); // for 99 tokens
    assert_true(json_equal(json_object_get(plain, "text"), json_object_get(drafted, "text")));
    assert_int_equal(number(plain, "kv_bytes"), number(drafted, "kv_bytes"));
    assert_int_equal(number(plain, "kv_positions"), number(drafted, "kv_positions"));
    json_decref(drafted);
    call.arguments[10] = "--draft-tokens=1";
    drafted = run_json(&call);
    const json_t *single = json_object_get(drafted, "drafts");
    assert_int_equal(number(single, "drafted"), number(single, "rounds"));
    assert_true(json_equal(json_object_get(plain, "text"), json_object_get(drafted, "text")));
    json_decref(plain);
    json_decref(drafted);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *model = program_path("random.gguf");
    program_expect_failure(
        &(program_call){.arguments = {"run", model, "-p", "hi", "--draft", "absent.gguf"}},
        "absent.gguf");
    program_expect_failure(&(program_call){.arguments = {"run", model, "-p", "hi", "--draft",
                                                         program_path("broken.gguf")}},
                           "broken.gguf");
    // Known before the model, which cannot be loaded either, is looked at.
    program_expect_failure(&(program_call){.arguments = {"run", program_path("broken.gguf"), "-p",
                                                         "hi", "--draft", "absent.gguf"}},
                           "absent.gguf");
    program_expect_failure(&(program_call){.arguments = {"run", model, "-p", "hi", "--draft",
                                                         program_path("other.gguf")}},
                           "other.gguf: the draft model has a vocabulary of 100 tokens and the "
                           "model one of 261");
    // The KV cache takes all of the budget.
    program_expect_failure(&(program_call){.arguments = {"run", model, "-p", "hi", "--budget",
                                                         "100K", "--draft", model}},
                           "budget");
    program_expect_failure(
        &(program_call){.arguments = {"run", model, "-p", "hi", "--budget", "64K", "--ctx", "64",
                                      "-t", "2", "--draft", model}},
        "of the budget, too few for a draft model");
    static const char *const WRONG[][2] = {{"--draft-tokens=0", "--draft-tokens takes"},
                                           {"--draft-tokens=33", "--draft-tokens takes"},
                                           {"--draft-tokens=8", "--draft-tokens needs --draft"}};
    for (size_t i = 0; i < 3; i++) {
        program_call call = {.arguments = {"run", model, "-p", "hi", WRONG[i][0]}};
        program_expect_usage(&call, WRONG[i][1]);
    }
}

// Both caches fit a budget together.
static void test_budget(void **state)
{
    (void)state;
    const char *model = program_path("random.gguf");
    expect_same_text(&(program_call){.arguments = {"run", model, "-p", "hihihi", "--seed", "4",
                                                   "-n", "60", "--ctx", "200", "--budget", "8M"}},
                     model, " accepted in ");
}

static const char *write_prompts(void)
{
    char text[1024] = "";
    for (int i = 0; i < 6; i++) {
        sprintf(text + strlen(text), "{\"id\": %d, \"prompt\": \"the same beginning, %d\"}\n", i,
                i);
    }
    return program_write_text("prompts.jsonl", text);
}

// What kvern run refuses, with the same messages, and before anything is written.
static void test_batch_refusals(void **state)
{
    (void)state;
    const char *model = program_path("random.gguf"), *prompts = write_prompts();
    const struct {
        const char *model, *draft, *message;
    } cases[] = {
        {model, "absent.gguf", "absent.gguf"},
        {model, program_path("broken.gguf"), "broken.gguf"},
        {program_path("broken.gguf"), "absent.gguf", "absent.gguf"}, // looked at first
        {model, program_path("other.gguf"),
         "other.gguf: the draft model has a vocabulary of 100 tokens and the model one of 261"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        program_expect_failure(
            &(program_call){.arguments = {"batch", cases[i].model, "--prompts", prompts, "--out",
                                          program_path("refused.jsonl"), "--draft",
                                          cases[i].draft}},
            cases[i].message);
        FILE *made = fopen(program_path("refused.jsonl"), "rb");
        assert_null(made);
    }
}

static json_t *run_batch(const char *source, const char *parallel, const char *budget)
{
    const char *out = program_path("answers.jsonl");
    remove(out);
    return run_json(&(program_call){
        .arguments = {"batch", program_path("random.gguf"), "--prompts", write_prompts(), "--out",
                      out, "--json", "--temp", "0", "-n", "50", "-t", "1", "--parallel", parallel,
                      "--draft", source, "--budget", budget}});
}

static void test_batch_facts(void **state)
{
    (void)state;
    const char *model = program_path("random.gguf");
    json_t *alone = run_batch(model, "1", "64M"); // one token at least is guessed for each
    assert_int_equal(number(alone, "answered"), 6);
    assert_in_range(number(alone, "drafted"), 6 * 10, 6 * 50);
    // Those behind the end of an answer do not count.
    assert_in_range(number(alone, "accepted"), number(alone, "drafted") - 6,
                    number(alone, "drafted"));
    json_decref(alone);
    json_t *many = run_batch(model, "6", "64M"); // it does not pay, and is tried once in a while
    assert_int_equal(number(many, "answered"), 6);
    assert_in_range(number(many, "drafted"), 1, 6 * 3);
    assert_true(number(many, "shared_tokens") > 0);
    json_decref(many);
    json_t *scarce = run_batch(model, "1", "48K"); // enough for the rows of the model alone
    assert_int_equal(number(scarce, "answered"), 6);
    assert_int_equal(number(scarce, "drafted"), 0);
    json_decref(scarce);
}

static void test_bench(void **state)
{
    (void)state;
    const char *model = program_path("random.gguf");
    program_call call = {
        .arguments = {"bench", "draft", model, "--runs", "2", "--generate", "20", "-t", "1"}};
    program_result table = program_run_well(&call);
    program_expect_part(table.out, "repeats itself");
    program_expect_part(table.out, "does not");
    program_expect_part(table.out, "KV cache: bf16; drafts: ngram");
    program_free(&table);

    call.arguments[9] = "--json";
    call.arguments[10] = "-p";
    call.arguments[11] = "abcabcabcabc";
    call.arguments[12] = "--draft";
    call.arguments[13] = model;
    json_t *object = run_json(&call);
    const json_t *texts = json_object_get(object, "texts");
    assert_int_equal(json_array_size(texts), 1);
    const json_t *text = json_array_get(texts, 0);
    assert_int_equal(number(text, "prompt_tokens"), 12);
    assert_true(number(text, "drafted") > 0);
    assert_int_equal(number(text, "accepted"), number(text, "drafted")); // for itself
    assert_true(json_real_value(json_object_get(text, "plain_tokens_per_s")) > 0);
    assert_true(json_real_value(json_object_get(text, "draft_tokens_per_s")) > 0);
    json_decref(object);
    call.arguments[8] = "1,2";
    program_expect_usage(&call, "-t takes a whole number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_text),      cmocka_unit_test(test_json),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_budget),
        cmocka_unit_test(test_batch_refusals), cmocka_unit_test(test_batch_facts),
        cmocka_unit_test(test_bench),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
