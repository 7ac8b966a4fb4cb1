// SPDX-License-Identifier: MIT
// Failures: bad model files, contexts and budgets that do not fit, output that cannot be written.

#include "tests/support/program.h"
#include "tests/support/small_model.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// The first `size` bytes of a good model.
static void save_cut_model(const char *name, size_t size)
{
    size_t whole;
    char *data = program_read(program_path("model.gguf"), &whole);
    assert_true(size < whole);
    program_write(name, data, size);
    free(data);
}

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){.answer = "abc"}, program_path("model.gguf"));
    small_model_save(&(small_model){.architecture = "abacus\x1b[31m"}, program_path("abacus.gguf"));
    small_model_save(&(small_model){.chat = ""}, program_path("base.gguf"));
    small_model_save(&(small_model){.chat = "{% strange %}"}, program_path("strange.gguf"));
    program_write_text("empty.gguf", "");
    program_write_text("text.gguf", "This is no model, it is a text.\n");
    save_cut_model("cut-header.gguf", 12);
    save_cut_model("cut-data.gguf", 100000);
    return 0;
}

// The same model file given to every command.
static void expect_bad_model(const char *name, const char *message)
{
    const char *path = program_path(name), *out = program_path("out.npy");
    program_expect_failure(&(program_call){.arguments = {"run", path, "-p", "x"}}, message);
    program_expect_failure(&(program_call){.arguments = {"inspect", path}}, message);
    program_expect_failure(&(program_call){.arguments = {"inspect", path, "--json"}}, message);
    program_expect_failure(&(program_call){.arguments = {"tokenize", path, "-p", "x"}}, message);
    program_expect_failure(&(program_call){.arguments = {"logits", path, "-p", "x", "--out", out}},
                           message);
    assert_int_not_equal(access(out, F_OK), 0);
}

static void test_bad_model_files(void **state)
{
    (void)state;
    expect_bad_model("missing.gguf", "missing.gguf: No such file");
    expect_bad_model("", "directory");
    expect_bad_model("empty.gguf", "empty.gguf: the file is empty");
    expect_bad_model("text.gguf", "text.gguf: not a GGUF file");
    expect_bad_model("cut-header.gguf", "cut-header.gguf: ");
    expect_bad_model("cut-data.gguf", "cut-data.gguf: ");
}

// The message quotes the name without the control character in it; inspect shows what it can.
static void test_unknown_architecture(void **state)
{
    (void)state;
    const char *path = program_path("abacus.gguf"), *out = program_path("out.npy");
    program_expect_failure(&(program_call){.arguments = {"run", path, "-p", "x"}}, "abacus?[31m");
    program_expect_failure(&(program_call){.arguments = {"logits", path, "-p", "x", "--out", out}},
                           "abacus?[31m");
    program_expect_failure(&(program_call){.arguments = {"inspect", path}}, "abacus?[31m");
    program_result result = program_run(&(program_call){.arguments = {"inspect", path}});
    program_expect_part(result.out, "abacus\\x1b[31m");
    program_expect_part(result.out, "F32");
    program_free(&result);
}

static void test_templates(void **state)
{
    (void)state;
    const char *base = program_path("base.gguf"), *strange = program_path("strange.gguf");
    program_expect_failure(
        &(program_call){.arguments = {"run", base, "-p", "x", "--system", "be brief"}},
        "no chat template");
    program_expect_failure(&(program_call){.arguments = {"run", strange, "-p", "x"}}, "--template");
    program_call named = {
        .arguments = {"run", strange, "-p", "x", "-n", "1", "--template", "nobody"}};
    program_expect_failure(&named, "chatml");
    named.arguments[7] = "chatml";
    program_result result = program_run(&named);
    assert_int_equal(result.code, 0);
    program_free(&result);
}

// A model whose file has no template continues the text, as with --raw.
static void test_completion(void **state)
{
    (void)state;
    const char *base = program_path("base.gguf");
    program_result plain = program_run(
        &(program_call){.arguments = {"run", base, "-p", "x", "-n", "5", "--temp", "0"}});
    program_result raw = program_run(
        &(program_call){.arguments = {"run", base, "-p", "x", "-n", "5", "--temp", "0", "--raw"}});
    assert_int_equal(plain.code, 0);
    assert_true(plain.out_size > 0);
    assert_int_equal(plain.out_size, raw.out_size);
    assert_memory_equal(plain.out, raw.out, raw.out_size);
    program_free(&plain);
    program_free(&raw);
}

static void test_context_and_budget(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    program_expect_failure(&(program_call){.arguments = {"run", path, "-p", "x", "--ctx", "257"}},
                           "256");
    program_expect_failure(
        &(program_call){.arguments = {"run", path, "-p", "0123456789", "--raw", "--ctx", "9"}},
        "10 tokens");
    program_expect_failure(
        &(program_call){.arguments = {"logits", path, "-p", "0123456789", "--ctx", "9", "--out",
                                      program_path("out.npy")}},
        "10 tokens");
    // 2 layers x 2 heads x (8 + 8) values x 2 bytes: 128 bytes per token, 32768 for 256.
    program_call tight = {.arguments = {"run", path, "-p", "x", "--ctx", "256", "--budget", "30K"}};
    program_expect_failure(&tight, "a context of 256 tokens needs ");
    program_expect_failure(&tight, " bytes (32768 of KV cache), and the budget is 30720 bytes; ");
    tight.arguments[7] = "100"; // not even a beginning
    program_expect_failure(&tight, "budget of 100 bytes");
}

// The context that a refusal advises; 0: none fits; -1: all of it fits.
static long advised_context(const program_call *call)
{
    program_result result = program_run(call);
    const char *advice = strstr(result.err, "--ctx ");
    long tokens = result.code == 0 ? -1 : advice ? strtol(advice + 6, NULL, 10) : 0;
    program_free(&result);
    return tokens;
}

// The context that a run without --ctx has.
static void expect_context(const char *budget, long tokens)
{
    program_call call = {.arguments = {"run", program_path("model.gguf"), "-p", "x", "--raw",
                                       "--json", "--budget", budget}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    json_t *answer = json_loads(result.out, 0, NULL);
    assert_non_null(answer);
    assert_int_equal(json_integer_value(json_object_get(answer, "context")), tokens);
    json_decref(answer);
    program_free(&result);
}

// The advised context fits, a page more does not, and without --ctx it is what a run gets.
static void test_advice_about_the_budget(void **state)
{
    (void)state;
    bool advised = false;
    long tokens = 0;
    // The budget has to hold a part of the context, whatever the library needs besides.
    for (unsigned bytes = 16384; tokens >= 0; bytes += 4096) {
        char budget[24], context[24] = "256";
        snprintf(budget, sizeof budget, "%u", bytes);
        program_call call = {.arguments = {"run", program_path("model.gguf"), "-p", "x", "--raw",
                                           "--ctx", context, "--budget", budget}};
        tokens = advised_context(&call);
        if (tokens <= 0) {
            continue;
        }
        advised = true;
        expect_context(budget, tokens);
        snprintf(context, sizeof context, "%ld", tokens);
        assert_int_equal(advised_context(&call), -1);
        snprintf(context, sizeof context, "%ld", tokens + 1);
        assert_int_equal(advised_context(&call), tokens);
    }
    assert_true(advised);
}

// The number of bytes that a refusal names is enough, and not one too many.
static void test_needed_bytes(void **state)
{
    (void)state;
    char budget[24] = "1K";
    program_call call = {.arguments = {"run", program_path("model.gguf"), "-p", "x", "--raw",
                                       "--ctx", "200", "--budget", "20K"}};
    program_result result = program_run(&call);
    const char *needs = strstr(result.err, "needs ");
    assert_non_null(needs);
    unsigned long bytes = strtoul(needs + 6, NULL, 10);
    program_free(&result);
    call.arguments[8] = budget;
    snprintf(budget, sizeof budget, "%lu", bytes);
    assert_int_equal(advised_context(&call), -1);
    snprintf(budget, sizeof budget, "%lu", bytes - 1);
    program_expect_failure(&call, "a context of 200 tokens needs");
}

static void test_texts(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    const char *gone = program_path("gone.txt");
    program_expect_failure(&(program_call){.arguments = {"run", path, "--file", gone}},
                           "gone.txt: No such file");
    program_expect_failure(&(program_call){.arguments = {"tokenize", path, "--file", "/"}}, "/: ");
    program_expect_failure(&(program_call){.arguments = {"run", path, "--raw", "-p", ""}}, "empty");
    program_expect_failure(&(program_call){.arguments = {"run", path, "--raw"}}, "empty");
    const char *out = program_path("out.npy");
    program_expect_failure(&(program_call){.arguments = {"logits", path, "-p", "", "--out", out}},
                           "empty");
    program_expect_failure(
        &(program_call){.arguments = {"logits", path, "--tokens", "5,261", "--out", out}},
        "token 261 is outside");
    assert_int_not_equal(access(out, F_OK), 0);
}

static void expect_lost_output(const program_call *call)
{
    static const struct {
        program_output output;
        const char *reason;
    } CASES[] = {{PROGRAM_FULL, "No space left on device"},
                 {PROGRAM_CLOSED, "Bad file descriptor"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        program_call lost = *call;
        lost.output = CASES[i].output;
        program_expect_failure(&lost, CASES[i].reason);
    }
    // A reader that has seen enough is no fault: the program ends of SIGPIPE, as others do.
    program_call closed = *call;
    closed.output = PROGRAM_BROKEN_PIPE;
    program_result result = program_run(&closed);
    assert_int_equal(result.code, 128 + SIGPIPE);
    assert_string_equal(result.err, "");
    program_free(&result);
}

// Where the caller has SIGPIPE ignored, the output is lost as any other.
static void test_ignored_pipe(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    program_expect_failure(&(program_call){.arguments = {"--help"}, .output = PROGRAM_BROKEN_PIPE},
                           "Broken pipe");
    signal(SIGPIPE, SIG_DFL);
}

static void test_lost_output(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    expect_lost_output(&(program_call){.arguments = {"--help"}});
    expect_lost_output(&(program_call){.arguments = {"--version"}});
    expect_lost_output(&(program_call){.arguments = {"run", "--help"}});
    expect_lost_output(&(program_call){.arguments = {"inspect", path}});
    expect_lost_output(&(program_call){.arguments = {"inspect", path, "--json"}});
    expect_lost_output(&(program_call){.arguments = {"tokenize", path, "-p", "x"}});
    expect_lost_output(&(program_call){.arguments = {"tokenize", path, "-p", "x", "--json"}});
    expect_lost_output(&(program_call){.arguments = {"run", path, "-p", "x"}});
    expect_lost_output(&(program_call){.arguments = {"run", path, "-p", "x", "--json"}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_model_files),    cmocka_unit_test(test_unknown_architecture),
        cmocka_unit_test(test_templates),          cmocka_unit_test(test_completion),
        cmocka_unit_test(test_context_and_budget), cmocka_unit_test(test_advice_about_the_budget),
        cmocka_unit_test(test_needed_bytes),       cmocka_unit_test(test_texts),
        cmocka_unit_test(test_lost_output),        cmocka_unit_test(test_ignored_pipe),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
