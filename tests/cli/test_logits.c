// SPDX-License-Identifier: MIT
// kvern logits: the file's format, its numbers, and that there is a whole file or none.

#include "engine/model/model.h"
#include "tests/support/program.h"
#include "tests/support/small_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define VOCABULARY SMALL_MODEL_VOCABULARY
#define HEADER_BYTES 128
#define TEXT "0123456789"

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){0}, program_path("model.gguf"));
    return 0;
}

static void run_well(const program_call *call)
{
    program_result result = program_run_well(call);
    assert_string_equal(result.out, "");
    program_free(&result);
}

static void test_format(void **state)
{
    (void)state;
    const char *out = program_path("format.npy");
    run_well(&(program_call){
        .arguments = {"logits", program_path("model.gguf"), "-p", TEXT, "--out", out}});
    size_t size;
    char *data = program_read(out, &size);
    static const char HEADER[] =
        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (10, 261), }";
    assert_int_equal(size, HEADER_BYTES + 10 * VOCABULARY * sizeof(float));
    assert_memory_equal(data, HEADER, sizeof HEADER - 1);
    for (size_t i = sizeof HEADER - 1; i < HEADER_BYTES - 1; i++) {
        assert_int_equal(data[i], ' ');
    }
    assert_int_equal(data[HEADER_BYTES - 1], '\n');
    free(data);
}

// The numbers are those of the engine's own forward pass.
static void test_numbers(void **state)
{
    (void)state;
    const char *out = program_path("numbers.npy");
    run_well(&(program_call){.arguments = {"logits", program_path("model.gguf"), "--tokens",
                                           "259,5,260,0", "--out", out}});
    size_t size;
    char *data = program_read(out, &size);
    assert_int_equal(size, HEADER_BYTES + 4 * VOCABULARY * sizeof(float));

    kvern_context *context;
    kvern_composition *composition;
    kvern_state *kv;
    model *model;
    model_workspace *workspace;
    static float logits[4 * VOCABULARY];
    kvern_context_options options = kvern_context_options_default();
    options.threads = 1;
    assert_int_equal(kvern_context_create(&options, &context), KVERN_OK);
    assert_int_equal(model_open(program_path("model.gguf"), context, NULL, NULL, &model, NULL),
                     KVERN_OK);
    assert_int_equal(model_composition(model_get_facts(model), context, NULL, &composition, NULL),
                     KVERN_OK);
    assert_int_equal(kvern_state_create(composition, 1, &kv), KVERN_OK);
    assert_int_equal(model_workspace_create(model, 4, 1, &workspace, NULL), KVERN_OK);
    const int64_t count = 4;
    model_step step = {.phase = KVERN_PHASE_WINDOW,
                       .tokens = (int32_t[]){259, 5, 260, 0},
                       .counts = &count,
                       .logits = logits,
                       .logits_counts = &count};
    assert_int_equal(model_forward(model, workspace, kv, &step, NULL), KVERN_OK);
    assert_memory_equal(data + HEADER_BYTES, logits, sizeof logits);

    model_workspace_destroy(workspace);
    kvern_state_destroy(kv);
    model_close(model);
    kvern_composition_release(composition);
    kvern_context_release(context);
    free(data);
}

static void expect_same_file(const char *path, const char *other)
{
    size_t size, other_size;
    char *data = program_read(path, &size), *other_data = program_read(other, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(data, other_data, size);
    free(data);
    free(other_data);
}

static void test_same_bits(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    const char *first = program_path("first.npy"), *second = program_path("second.npy");
    // 100 tokens: more than a page, more than a chunk
    static const char text[] = TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT;
    run_well(&(program_call){.arguments = {"logits", path, "-p", text, "--out", first}});
    static const char *const CHUNKS[] = {"1", "3", "64", "100", "2000000000"};
    for (size_t i = 0; i < sizeof CHUNKS / sizeof CHUNKS[0]; i++) {
        run_well(&(program_call){
            .arguments = {"logits", path, "-p", text, "--out", second, "--chunk", CHUNKS[i]}});
        expect_same_file(first, second);
    }
    run_well(&(program_call){.arguments = {"logits", path, "-p", text, "--out", second, "-t", "2"},
                             .all_processors = true});
    expect_same_file(first, second);
    run_well(&(program_call){.arguments = {"logits", path, "-p", text, "--out", second},
                             .cpu = "plain"});
    expect_same_file(first, second);
}

static void test_inputs(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    const char *first = program_path("first.npy"), *second = program_path("second.npy");
    run_well(&(program_call){.arguments = {"logits", path, "-p", "ab", "--out", first}});
    run_well(&(program_call){.arguments = {"logits", path, "--out", second}, .input = "ab"});
    expect_same_file(first, second);
    run_well(&(program_call){.arguments = {"logits", path, "--tokens", "97,98", "--out", second}});
    expect_same_file(first, second);
}

static void test_json(void **state)
{
    (void)state;
    const char *out = program_path("json.npy");
    program_result result = program_run(&(program_call){
        .arguments = {"logits", program_path("model.gguf"), "-p", "ab", "--out", out, "--json"}});
    assert_int_equal(result.code, 0);
    json_t *facts = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(facts);
    assert_string_equal(json_string_value(json_object_get(facts, "file")), out);
    assert_int_equal(json_integer_value(json_object_get(facts, "positions")), 2);
    assert_int_equal(json_integer_value(json_object_get(facts, "vocabulary")), VOCABULARY);
    json_decref(facts);
    program_free(&result);
}

// Files of the test's folder whose names begin with `prefix`.
static int count_files(const char *prefix)
{
    DIR *folder = opendir(program_folder());
    assert_non_null(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    closedir(folder);
    return count;
}

static void test_devices_are_written_to(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    program_expect_failure(
        &(program_call){.arguments = {"logits", path, "-p", "ab", "--out", "/dev/full"}},
        "/dev/full: No space left on device");
    struct stat info;
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    run_well(&(program_call){.arguments = {"logits", path, "-p", "ab", "--out", "/dev/null"}});
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void test_places_that_cannot_be_written(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    program_expect_failure(&(program_call){.arguments = {"logits", path, "-p", "ab", "--out",
                                                         program_path("no/o.npy")}},
                           "no/o.npy: No such file or directory");
    program_expect_failure(
        &(program_call){.arguments = {"logits", path, "-p", "ab", "--out", program_folder()}},
        "Is a directory");
}

// A file that exists keeps its link and loses its content only to a whole new one.
static void test_replacement(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    const char *target = program_path("target.npy"), *link = program_path("link.npy");
    program_write_text("target.npy", "old");
    assert_int_equal(symlink(target, link), 0);
    program_expect_failure(
        &(program_call){.arguments = {"logits", path, "--tokens", "1,261", "--out", link}},
        "token 261");
    size_t size;
    char *data = program_read(target, &size);
    assert_string_equal(data, "old");
    free(data);
    run_well(&(program_call){.arguments = {"logits", path, "-p", "ab", "--out", link}});
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(link, &info), 0);
    assert_int_equal(info.st_size, HEADER_BYTES + 2 * VOCABULARY * sizeof(float));
    assert_int_equal(count_files("target.npy"), 1);
}

static void test_permissions(void **state)
{
    (void)state;
    const char *out = program_path("mode.npy");
    mode_t before = umask(027);
    run_well(&(program_call){
        .arguments = {"logits", program_path("model.gguf"), "-p", "ab", "--out", out}});
    umask(before);
    struct stat info;
    assert_int_equal(stat(out, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

// A computation that takes long is ended by a signal while its file grows: nothing remains.
static void test_signal_leaves_nothing(void **state)
{
    (void)state;
    const char *path = program_path("long.gguf"), *out = program_path("signal.npy");
    const char *text = program_path("long.txt");
    small_model_save(&(small_model){.context = 1000000}, path);
    FILE *file = fopen(text, "w");
    assert_non_null(file);
    for (int i = 0; i < 50000; i++) {
        putc('a', file);
    }
    assert_int_equal(fclose(file), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(getenv("KVERN_PROGRAM"), "kvern", "logits", path, "--file", text, "--out", out, "-t",
              "1", "--chunk", "1", (char *)NULL);
        _exit(98);
    }
    for (int i = 0; i < 6000 && count_files("signal.npy") == 0; i++) {
        usleep(10000);
    }
    int files = count_files("signal.npy");
    kill(child, SIGTERM);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(files, 1);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_equal(count_files("signal.npy"), 0);
}

// A limit of file sizes is a failure like a full disk, not the end by a signal.
static void test_file_size_limit(void **state)
{
    (void)state;
    const char *out = program_path("limit.npy"), *model = program_path("model.gguf");
    const char *errors = program_path("limit.txt");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int fd = open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, STDERR_FILENO);
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000});
        execl(getenv("KVERN_PROGRAM"), "kvern", "logits", model, "-p", "abc", "--out", out, "-t",
              "1", (char *)NULL);
        _exit(98);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    char *text = program_read(errors, NULL);
    program_expect_part(text, "limit.npy: File too large");
    free(text);
    assert_int_equal(count_files("limit.npy"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_devices_are_written_to),
        cmocka_unit_test(test_places_that_cannot_be_written),
        cmocka_unit_test(test_replacement),
        cmocka_unit_test(test_permissions),
        cmocka_unit_test(test_signal_leaves_nothing),
        cmocka_unit_test(test_file_size_limit),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
