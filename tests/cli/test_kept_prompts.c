// SPDX-License-Identifier: MIT
// kvern run and batch with --cache: what one process computed another one does not compute again,
// answers are the same, and what is not an entry of the directory is set aside.

#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_PROMPT                                                                                \
    "a long prompt that is the same in every process, so that what it takes to compute it is "     \
    "worth being kept"

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){0}, program_path("random.gguf"));
    small_model_save(&(small_model){.context = 512}, program_path("other.gguf"));
    return 0;
}

// A directory that is not there yet.
static const char *fresh(const char *name)
{
    const char *path = program_path(name);
    program_remove(path);
    return path;
}

static json_t *run(const char *model, const char *directory, const char *prompt, const char *option,
                   const char *value)
{
    return program_json(&(program_call){.arguments = {"run", program_path(model), "-p", prompt,
                                                      "--temp", "0", "-n", "8", "--json", "-t", "1",
                                                      "--cache", directory, option, value}},
                        0);
}

static void expect_reused(json_t *result, bool some, const char *reason)
{
    const json_int_t reused = json_integer_at(result, "reused_tokens");
    assert_true(some ? reused > 16 : reused == 0);
    if (reason) {
        assert_string_equal(json_string_at(result, "reuse_reason"), reason);
    }
    json_decref(result);
}

// The second process computes the last token of the prompt alone, and says the same.
static void test_a_prompt_of_another_process(void **state)
{
    (void)state;
    const char *directory = fresh("prefixes");
    json_t *cold = run("random.gguf", directory, LONG_PROMPT, NULL, NULL);
    json_t *warm = run("random.gguf", directory, LONG_PROMPT, NULL, NULL);
    assert_string_equal(json_string_at(cold, "text"), json_string_at(warm, "text"));
    assert_int_equal(json_integer_at(warm, "prompt_tokens"), 1);
    assert_int_equal(json_integer_at(warm, "reused_tokens") + 1,
                     json_integer_at(cold, "prompt_tokens"));
    struct stat facts;
    assert_int_equal(stat(directory, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0700);
    expect_reused(cold, false, "nothing is kept of this model yet");
    expect_reused(warm, true, "all but the last token, which is always computed");
    json_t *more = run("random.gguf", directory, LONG_PROMPT ", and more", NULL, NULL);
    expect_reused(more, true, "nothing that is kept begins the same for longer");
    program_remove(directory);
}

// Another model or another storage has nothing to begin with.
static void test_what_must_not_be_mixed(void **state)
{
    (void)state;
    const char *directory = fresh("prefixes");
    expect_reused(run("random.gguf", directory, LONG_PROMPT, NULL, NULL), false, NULL);
    expect_reused(run("other.gguf", directory, LONG_PROMPT, NULL, NULL), false,
                  "nothing is kept of this model yet");
    expect_reused(run("random.gguf", directory, LONG_PROMPT, "--kv", "f32"), false,
                  "what is kept of this model stores its KV cache otherwise");
    expect_reused(run("random.gguf", directory, LONG_PROMPT, "--kv", "f32"), true, NULL);
    program_remove(directory);
}

// The path of the entry that is not `other`; free().
static char *only_entry(const char *directory, const char *other)
{
    char path[4096] = "";
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));) {
        char found[4096];
        snprintf(found, sizeof found, "%s/%s", directory, entry->d_name);
        if (strlen(entry->d_name) > 20 && !strstr(entry->d_name, "tmp") &&
            !(other && strcmp(found, other) == 0)) {
            strcpy(path, found);
        }
    }
    closedir(listing);
    assert_true(path[0]);
    return strdup(path);
}

// A file that is none of its own is moved aside, named, and nothing else happens.
static void test_foreign_files_are_set_aside(void **state)
{
    (void)state;
    const char *directory = fresh("prefixes");
    expect_reused(run("random.gguf", directory, LONG_PROMPT, NULL, NULL), false, NULL);
    char *path = only_entry(directory, NULL);
    assert_int_equal(truncate(path, 1000), 0);
    free(path);
    program_result result = program_run_well(
        &(program_call){.arguments = {"run", program_path("random.gguf"), "-p", LONG_PROMPT,
                                      "--temp", "0", "-n", "8", "-t", "1", "--cache", directory}});
    program_expect_part(result.err, "was moved aside");
    program_expect_part(result.err, "reused      0 tokens");
    program_free(&result);
    expect_reused(run("random.gguf", directory, LONG_PROMPT, NULL, NULL), true, NULL);
    program_remove(directory);
}

// The longest entry is damaged where only its pages are: the next longest serves.
static void test_a_shorter_entry_serves(void **state)
{
    (void)state;
    const char *directory = fresh("prefixes");
    expect_reused(run("random.gguf", directory, LONG_PROMPT, NULL, NULL), false, NULL);
    char *before = only_entry(directory, NULL);
    expect_reused(run("random.gguf", directory, LONG_PROMPT ", or longer", NULL, NULL), true, NULL);
    char *longer = only_entry(directory, before);
    FILE *file = fopen(longer, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long middle = ftell(file) / 2;
    assert_int_equal(fseek(file, middle, SEEK_SET), 0);
    const int byte = getc(file);
    assert_int_equal(fseek(file, middle, SEEK_SET), 0);
    assert_int_equal(putc(byte ^ 4, file), byte ^ 4);
    assert_int_equal(fclose(file), 0);
    expect_reused(run("random.gguf", directory, LONG_PROMPT ", or longer still", NULL, NULL), true,
                  "nothing that is kept begins the same for longer");
    free(before);
    free(longer);
    program_remove(directory);
}

static void test_batch_goes_on_with_it(void **state)
{
    (void)state;
    const char *directory = fresh("prefixes"), *out = program_path("out.jsonl");
    const char *prompts =
        program_write_text("prompts.jsonl", "{\"id\": 1, \"prompt\": \"" LONG_PROMPT "\"}\n");
    for (int i = 0; i < 2; i++) {
        unlink(out);
        json_t *result = program_json(
            &(program_call){.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                          prompts, "--out", out, "-n", "8", "--temp", "0", "--json",
                                          "--cache", directory}},
            0);
        assert_int_equal(json_integer_at(result, "stored_tokens") > 16, i);
        json_decref(result);
    }
    program_remove(directory);
}

// Who may write and does not is told that another one does.
static void test_another_process_writes(void **state)
{
    (void)state;
    const char *directory = fresh("prefixes");
    expect_reused(run("random.gguf", directory, LONG_PROMPT, NULL, NULL), false, NULL);
    const int lock = open(program_path("prefixes/writer.lock"), O_RDWR);
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    program_result result = program_run_well(
        &(program_call){.arguments = {"run", program_path("random.gguf"), "-p", LONG_PROMPT,
                                      "--temp", "0", "-n", "8", "-t", "1", "--cache", directory}});
    program_expect_part(result.err, "another process writes there: what this one computes");
    assert_null(strstr(result.err, "may not write"));
    program_free(&result);
    close(lock);
    program_remove(directory);
}

static void test_usage(void **state)
{
    (void)state;
    program_expect_usage(
        &(program_call){.arguments = {"run", "m", "-p", "x", "--cache", "d", "--no-cache"}},
        "--cache and --no-cache cannot be used together");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "-p", "x", "--cache", ""}},
                         "--cache takes the name of a directory, not ''");
    program_expect_usage(
        &(program_call){.arguments = {"run", "m", "-p", "x", "--cache-size", "1G"}},
        "--cache-size needs --cache");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "-p", "x", "--cache", "d",
                                                       "--cache-size", "much"}},
                         "--cache-size takes a number of bytes");
    program_expect_failure(
        &(program_call){.arguments = {"run", program_path("random.gguf"), "-p", "x", "--cache",
                                      program_path("random.gguf")}},
        "random.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_of_another_process),
        cmocka_unit_test(test_what_must_not_be_mixed),
        cmocka_unit_test(test_foreign_files_are_set_aside),
        cmocka_unit_test(test_a_shorter_entry_serves),
        cmocka_unit_test(test_batch_goes_on_with_it),
        cmocka_unit_test(test_another_process_writes),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
