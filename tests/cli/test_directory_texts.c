// SPDX-License-Identifier: MIT
// Every command that takes a GGUF file takes the same model as a Hugging Face directory with a
// tokenizer, and answers alike.

#include "tests/support/hf_directory.h"
#include "tests/support/program.h"
#include "tests/support/small_model.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ANSWER "caf\xc3\xa9 \xe2\x98\x95!"

static char chain[512], chain_file[512], noise[512], noise_file[512], mute[512];

static int set_up(void **state)
{
    (void)state;
    snprintf(chain, sizeof chain, "%s", program_path("chain"));
    snprintf(chain_file, sizeof chain_file, "%s", program_path("chain.gguf"));
    snprintf(noise, sizeof noise, "%s", program_path("noise"));
    snprintf(noise_file, sizeof noise_file, "%s", program_path("noise.gguf"));
    snprintf(mute, sizeof mute, "%s", program_path("mute"));
    small_model_save(&(small_model){.answer = ANSWER}, chain_file);
    small_model_save(&(small_model){0}, noise_file);
    hf_directory_save(chain_file, chain, true);
    hf_directory_save(noise_file, noise, true);
    hf_directory_save(noise_file, mute, false);
    return 0;
}

static int tear_down(void **state)
{
    hf_directory_remove(chain);
    hf_directory_remove(noise);
    hf_directory_remove(mute);
    return program_tear_down(state);
}

static void expect_same(const program_call *directory, const program_call *file)
{
    program_result one = program_run_well(directory), two = program_run_well(file);
    assert_string_equal(one.out, two.out);
    assert_true(strlen(one.out) > 0);
    program_free(&one);
    program_free(&two);
}

static void a_directory_answers(void **state)
{
    (void)state;
    program_result result =
        program_run_well(&(program_call){.arguments = {"run", chain, "-p", "hi", "--temp", "0"}});
    assert_string_equal(result.out, ANSWER "\n");
    program_free(&result);
    expect_same(
        &(program_call){.arguments = {"run", noise, "-p", "hello 12", "--seed", "7", "-n", "20"}},
        &(program_call){
            .arguments = {"run", noise_file, "-p", "hello 12", "--seed", "7", "-n", "20"}});
    expect_same(
        &(program_call){
            .arguments = {"run", noise, "-p", "x", "--seed", "7", "-n", "20", "--draft", noise}},
        &(program_call){.arguments = {"run", noise_file, "-p", "x", "--seed", "7", "-n", "20"}});
}

static void a_directory_has_tokens_and_numbers(void **state)
{
    (void)state;
    static const char text[] = "hello the <|im_end|> 123 caf\xc3\xa9\n";
    expect_same(&(program_call){.arguments = {"tokenize", chain, "-p", text}},
                &(program_call){.arguments = {"tokenize", chain_file, "-p", text}});
    expect_same(
        &(program_call){.arguments = {"tokenize", chain, "-p", text, "--template", "chatml"}},
        &(program_call){.arguments = {"tokenize", chain_file, "-p", text, "--template", "chatml"}});
    expect_same(&(program_call){.arguments = {"tokenize", chain}, .input = text},
                &(program_call){.arguments = {"tokenize", chain_file}, .input = text});
    const program_call no_control = {.arguments = {"tokenize", chain, "-p", text, "--no-control"}};
    expect_same(&no_control,
                &(program_call){.arguments = {"tokenize", chain_file, "-p", text, "--no-control"}});
    program_result characters = program_run_well(&no_control);
    assert_null(strstr(characters.out, "<|im_end|>"));
    program_free(&characters);
    program_expect_usage(
        &(program_call){.arguments = {"tokenize", chain, "-p", text, "--no-control", "--raw"}},
        "--no-control cannot be used with --raw or --template");
    const char *one = program_path("one.npy");
    program_result result = program_run_well(
        &(program_call){.arguments = {"logits", noise, "-p", "hello", "--out", one}});
    program_free(&result);
    program_expect_failure(
        &(program_call){.arguments = {"tokenize", noise, "-p", "x", "--pre", "qwen2"}},
        "tokenizer.json says how texts are split");
}

static void a_batch_is_answered(void **state)
{
    (void)state;
    const char *in = program_path("batch.jsonl"), *out = program_path("out.jsonl");
    FILE *file = fopen(in, "w");
    assert_non_null(file);
    fputs("{\"id\": 1, \"prompt\": \"hi\"}\n{\"id\": 2, \"messages\": [{\"role\": \"user\", "
          "\"content\": \"a\"}]}\n",
          file);
    fclose(file);
    const program_call call = {
        .arguments = {"batch", chain, "--prompts", in, "--out", out, "--temp", "0"}};
    program_result result = program_run_well(&call);
    program_free(&result);
    program_result again = program_run_well(&call); // the same job: nothing is left to be done
    program_free(&again);
}

static void evaluation_and_facts(void **state)
{
    (void)state;
    char text[512] = "";
    for (size_t i = 0; i < 40; i++) {
        strcat(text, "hello 1 ");
    }
    const char *path = program_path("text.txt");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    program_result one = program_run_well(
        &(program_call){.arguments = {"eval", noise, "--text", path, "--ctx", "64", "--json"}});
    program_result two = program_run_well(&(program_call){
        .arguments = {"eval", noise_file, "--text", path, "--ctx", "64", "--json"}});
    json_t *directory = json_loads(one.out, 0, NULL), *whole = json_loads(two.out, 0, NULL);
    const json_t *rows = json_object_get(directory, "rows");
    const json_t *perplexity = json_object_get(json_array_get(rows, 0), "ppl");
    assert_true(json_is_real(perplexity));
    assert_true(json_equal(
        perplexity, json_object_get(json_array_get(json_object_get(whole, "rows"), 0), "ppl")));
    json_decref(directory);
    json_decref(whole);
    program_free(&one);
    program_free(&two);
    one = program_run_well(&(program_call){.arguments = {"inspect", chain}});
    program_expect_part(one.out, "BPE");
    program_expect_part(one.out, "of tokenizer_config.json:");
    program_expect_part(one.out, "chatml");
    program_free(&one);
    one = program_run_well(&(program_call){.arguments = {"fit", chain, "--ctx", "64"}});
    program_free(&one);
    one = program_run_well(
        &(program_call){.arguments = {"bench", "model", mute, "--ctx", "0", "-t", "1", "--runs",
                                      "1", "--prompt", "8", "--generate", "2"}});
    program_free(&one);
}

static void models_are_found_by_name(void **state)
{
    (void)state;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", chain);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(setenv("KVERN_MODELS", folder, 1), 0);
    program_result result =
        program_run_well(&(program_call){.arguments = {"run", "noise", "-p", "a", "-n", "2"}});
    program_free(&result);
    unsetenv("KVERN_MODELS");
}

// Writes the tokenizer of a directory anew, with one token more than the model has.
static void add_token(const char *folder, bool special)
{
    char path[640];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    if (special) {
        json_array_append_new(json_object_get(root, "added_tokens"),
                              json_pack("{s:i, s:s, s:b}", "id", SMALL_MODEL_VOCABULARY, "content",
                                        "<image>", "special", 1));
    } else {
        json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "zz",
                            json_integer(SMALL_MODEL_VOCABULARY + 1));
    }
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

// A token for images may lack a row of the embedding; a prompt that has it is refused, and so is a
// model whose ordinary texts could have one.
static void tokens_beyond_the_embedding(void **state)
{
    (void)state;
    add_token(noise, true);
    program_result result =
        program_run_well(&(program_call){.arguments = {"run", noise, "-p", "a", "-n", "2"}});
    program_free(&result);
    program_expect_failure(
        &(program_call){.arguments = {"run", noise, "--raw", "-p", "a<image>", "-n", "2"}},
        "vocabulary");
    add_token(noise, false);
    program_expect_failure(&(program_call){.arguments = {"run", noise, "-p", "a", "-n", "2"}},
                           "but the embedding has");
}

static void a_lack_of_a_tokenizer_is_told(void **state)
{
    (void)state;
    program_expect_failure(&(program_call){.arguments = {"run", mute, "-p", "x"}},
                           "has no tokenizer");
    program_expect_failure(&(program_call){.arguments = {"tokenize", mute, "-p", "x"}},
                           "no tokenizer.json");
    program_expect_failure(&(program_call){.arguments = {"eval", mute, "--text", chain_file}},
                           "has no tokenizer");
    program_result result =
        program_run_well(&(program_call){.arguments = {"inspect", mute, "--json"}});
    program_expect_part(result.out, "\"tokenizer\":null");
    program_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_answers),
        cmocka_unit_test(a_directory_has_tokens_and_numbers),
        cmocka_unit_test(a_batch_is_answered),
        cmocka_unit_test(evaluation_and_facts),
        cmocka_unit_test(models_are_found_by_name),
        cmocka_unit_test(a_lack_of_a_tokenizer_is_told),
        cmocka_unit_test(tokens_beyond_the_embedding),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
