// SPDX-License-Identifier: MIT
// Help, version, and every kind of wrong usage: exit codes, and where the text goes.

#include "tests/support/program.h"

#include <kvern/kvern.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const COMMANDS[] = {"run",    "batch", "inspect", "tokenize",
                                       "logits", "fit",   "eval"};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])

static void test_version(void **state)
{
    (void)state;
    static const char *const WORDS[] = {"--version", "-v", "-V", "version"};
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        program_result result = program_run(&(program_call){.arguments = {WORDS[i]}});
        char expected[64];
        snprintf(expected, sizeof expected, "kvern %s\n", kvern_version());
        assert_int_equal(result.code, 0);
        assert_string_equal(result.out, expected);
        assert_string_equal(result.err, "");
        program_free(&result);
    }
}

static void test_help_lists_commands(void **state)
{
    (void)state;
    program_result option = program_run(&(program_call){.arguments = {"--help"}});
    program_result word = program_run(&(program_call){.arguments = {"help"}});
    program_result twice = program_run(&(program_call){.arguments = {"help", "help"}});
    program_result letter = program_run(&(program_call){.arguments = {"-h"}});
    assert_string_equal(twice.out, word.out);
    assert_string_equal(letter.out, word.out);
    program_free(&twice);
    program_free(&letter);
    assert_int_equal(option.code, 0);
    assert_int_equal(word.code, 0);
    assert_string_equal(option.out, word.out);
    assert_string_equal(option.err, "");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        char line[32];
        snprintf(line, sizeof line, "\n  %s ", COMMANDS[i]);
        program_expect_part(option.out, line);
    }
    program_free(&option);
    program_free(&word);
}

static void test_help_of_commands(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        program_result option = program_run(&(program_call){.arguments = {COMMANDS[i], "--help"}});
        program_result word = program_run(&(program_call){.arguments = {"help", COMMANDS[i]}});
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: kvern %s [OPTION...] MODEL", COMMANDS[i]);
        assert_int_equal(option.code, 0);
        assert_int_equal(word.code, 0);
        assert_string_equal(option.out, word.out);
        assert_string_equal(option.err, "");
        program_expect_part(option.out, usage);
        program_free(&option);
        program_free(&word);
    }
}

static void test_help_of_measurements(void **state)
{
    (void)state;
    static const char *const WORDS[] = {"attention", "draft", "model", "overhead", "sharing"};
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        program_result option =
            program_run(&(program_call){.arguments = {"bench", WORDS[i], "--help"}});
        program_result word =
            program_run(&(program_call){.arguments = {"help", "bench", WORDS[i]}});
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: kvern bench %s ", WORDS[i]);
        assert_int_equal(option.code, 0);
        assert_int_equal(word.code, 0);
        assert_string_equal(word.out, option.out);
        assert_string_equal(word.err, "");
        program_expect_part(word.out, usage);
        program_free(&option);
        program_free(&word);
    }
}

static void test_shared_options_read_the_same(void **state)
{
    (void)state;
    program_result run = program_run(&(program_call){.arguments = {"run", "--help"}});
    program_result logits = program_run(&(program_call){.arguments = {"logits", "--help"}});
    static const char *const SHARED[] = {
        "-t, --threads=N",   "-c, --ctx=N",     "--budget=BYTES", "--raw",       "--template=NAME",
        "-p, --prompt=TEXT", "-f, --file=FILE", "--json",         "-q, --quiet", "-h, --help"};
    for (size_t i = 0; i < sizeof SHARED / sizeof SHARED[0]; i++) {
        const char *first = strstr(run.out, SHARED[i]);
        assert_non_null(first);
        const char *end = strchr(first, '\n');
        char line[128];
        snprintf(line, sizeof line, "%.*s", (int)(end - first), first);
        program_expect_part(logits.out, line);
    }
    program_free(&run);
    program_free(&logits);
}

static void test_wrong_commands(void **state)
{
    (void)state;
    program_expect_usage(&(program_call){.arguments = {NULL}}, "kvern: no command given");
    program_expect_usage(&(program_call){.arguments = {"walk"}}, "kvern: unknown command 'walk'");
    program_expect_usage(&(program_call){.arguments = {"--walk", "run"}}, "--walk");
    program_expect_usage(&(program_call){.arguments = {"-t", "2", "run", "m"}},
                         "unknown option '-t'");
    program_expect_usage(&(program_call){.arguments = {"help", "walk"}},
                         "kvern: unknown command 'walk'");
    program_expect_usage(&(program_call){.arguments = {"help", "run", "a"}},
                         "help takes one command, not also 'a'");
    program_expect_usage(&(program_call){.arguments = {"help", "run", "a", "b"}}, "one command");
    program_expect_usage(&(program_call){.arguments = {"help", "bench", "attention", "b"}},
                         "help takes one measurement, not also 'b'");
    program_expect_usage(&(program_call){.arguments = {"help", "bench", "walk"}},
                         "unknown measurement 'walk'");
}

static void test_what_was_meant(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"rnu", "run"},           {"inspcet", "inspect"}, {"ru", "run"},
        {"tokenise", "tokenize"}, {"batsch", "batch"},    {"logit", "logits"},
        {"evaluate", NULL},       {"walk", NULL},         {"", NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        program_result result = program_run(&(program_call){.arguments = {CASES[i][0]}});
        char meant[64];
        snprintf(meant, sizeof meant, "did you mean '%s'?", CASES[i][1] ? CASES[i][1] : "");
        assert_int_equal(result.code, 2);
        if (CASES[i][1]) {
            program_expect_part(result.err, meant);
        } else {
            assert_null(strstr(result.err, "did you mean"));
        }
        program_free(&result);
    }
}

// Words of other programs are answered with ours.
static void test_words_of_other_programs(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"list", "'kvern pull --list'"},     {"ls", "'kvern pull --list'"},
        {"show", "'kvern inspect MODEL'"},   {"chat", "'kvern run MODEL'"},
        {"server", "'kvern serve MODEL'"},   {"download", "'kvern pull NAME'"},
        {"perplexity", "'kvern eval MODEL'"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        program_expect_usage(&(program_call){.arguments = {CASES[i][0], "m"}}, CASES[i][1]);
        program_expect_usage(&(program_call){.arguments = {"help", CASES[i][0]}}, CASES[i][1]);
    }
}

// No option is taken for another one: what is not known is refused, with what was meant.
static void test_unknown_options(void **state)
{
    (void)state;
    static const struct {
        const char *words[2], *message;
    } CASES[] = {
        {{"--temprature", "1"}, "unknown option '--temprature', did you mean '--temperature'?"},
        {{"--quiett"}, "unknown option '--quiett', did you mean '--quiet'?"},
        {{"--tpo-k=4"}, "unknown option '--tpo-k', did you mean '--top-k'?"},
        {{"--rep", "2"}, "'--rep' is short for several: --repeat-penalty "},
        {{"--zebra"}, "unknown option '--zebra'\n"},
        {{"--=3"}, "unknown option '--'"},
        {{"-b", "512"}, "unknown option '-b'\n"},
        {{"-max", "5"}, "unknown option '-max', did you mean '--max-tokens'?"},
        {{"-ngl", "99"}, "unknown option '-ngl' (the value of -n is written apart: -n gl)"},
        {{"-fa"}, "unknown option '-fa' (the value of -f is written apart: -f a)"},
        {{"-n=5"}, "(the value of -n is written apart: -n 5)"},
        {{"-q5"}, "unknown option '-q5'\n"},
        {{"-temprature", "1"}, "did you mean '--temperature'?"},
        {{"-5"}, "unknown option '-5'\n"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        program_call call = {.arguments = {"run", "m", "-p", "--zebra is a value", "--stop", "-x"}};
        call.arguments[6] = CASES[i].words[0];
        call.arguments[7] = CASES[i].words[1];
        program_expect_usage(&call, CASES[i].message);
    }
    // Behind two dashes there are no options; the beginning of one name is that name.
    program_expect_usage(&(program_call){.arguments = {"run", "m", "--", "-b"}},
                         "unexpected argument '-b'");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "--tempe", "x", "-p", "x"}},
                         "--temp takes a number");
    program_expect_usage(&(program_call){.arguments = {"bench", "attention", "--store", "q4"}},
                         "did you mean '--storage'?");
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const char *command = COMMANDS[i];
        program_expect_usage(&(program_call){.arguments = {command}}, "no model file given");
        program_expect_usage(&(program_call){.arguments = {command, "a", "b"}}, "'b'");
        program_expect_usage(&(program_call){.arguments = {command, "m", "--walk"}}, "--walk");
    }
    program_expect_usage(&(program_call){.arguments = {"inspect", "m", "-n", "3"}}, "'-n'");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "-p"}}, "'p'");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "Why?"}},
                         "the model is 'm'; a text is given with -p");
    program_expect_usage(&(program_call){.arguments = {"run"}}, "'kvern pull --list'");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "-p", "x", "-n", "five"}},
                         "-n takes a whole number from 0 to 2147483647, or -1 for no limit");
}

// Option, an argument that is no good for it.
static void test_wrong_numbers(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"-n", "-3"},
        {"-n", "abc"},
        {"-n", "1.5"},
        {"-n", ""},
        {"-n", "3x"},
        {"-n", " 3"},
        {"-n", "+3"},
        {"-n", "2147483648"},
        {"-t", "x"},
        {"-t", "-1"},
        {"-t", "1025"},
        {"--ctx", "-1"},
        {"--ctx", "1e3"},
        {"--temp", "abc"},
        {"--temp", "-0.1"},
        {"--temp", "nan"},
        {"--temp", "inf"},
        {"--temp", "1e999"},
        {"--temp", "0x1"},
        {"--temp", ""},
        {"--temp", "1 "},
        {"--top-k", "-1"},
        {"--top-p", "1.1"},
        {"--top-p", "-0.1"},
        {"--min-p", "2"},
        {"--seed", "-2"},
        {"--seed", "x"},
        {"--budget", "0"},
        {"--budget", "1X"},
        {"--budget", "-1G"},
        {"--repeat-penalty", "0"},
        {"--repeat-penalty", "-1"},
        {"--repeat-penalty", "nan"},
        {"--repeat-last-n", "-2"},
        {"--presence-penalty", "x"},
        {"--frequency-penalty", "1e9"},
        {"--logit-bias", "5"},
        {"--logit-bias", "x+1"},
        {"--logit-bias", "5+"},
        {"--logit-bias", "5+nan"},
        {"--logit-bias", "5+inf"},
        {"--logit-bias", "+1"},
        {"--logit-bias", "99999999999999999999+1"},
        {"--budget", "G"},
        {"--budget", "1GiBs"},
        {"--budget", "1.5G"},
        {"--budget", "20000000T"},
        {"--budget", ""},
        {"--budget", "1iB"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char quoted[40];
        snprintf(quoted, sizeof quoted, "not '%s'", CASES[i][1]);
        program_call call = {.arguments = {"run", "m", "-p", "x", CASES[i][0], CASES[i][1]}};
        program_expect_usage(&call, CASES[i][0]);
        program_expect_usage(&call, quoted);
    }
    program_expect_usage(
        &(program_call){.arguments = {"logits", "m", "--out", "o", "-p", "x", "--chunk", "0"}},
        "--chunk");
}

static void test_options_that_exclude_each_other(void **state)
{
    (void)state;
    program_expect_usage(
        &(program_call){.arguments = {"run", "m", "-p", "x", "--raw", "--template", "chatml"}},
        "--raw and --template cannot");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "-p", "x", "--file", "f"}},
                         "-p and -f cannot");
    program_expect_usage(
        &(program_call){.arguments = {"run", "m", "-p", "x", "--raw", "--system", "s"}},
        "--system");
    program_expect_usage(&(program_call){.arguments = {"run", "m", "-p", "x", "--stop", ""}},
                         "--stop");
    program_expect_usage(&(program_call){.arguments = {"logits", "m", "-p", "x"}}, "--out");
    program_expect_usage(
        &(program_call){.arguments = {"logits", "m", "-p", "x", "--tokens", "1", "--out", "o"}},
        "--tokens cannot be used");
    static const char *const LISTS[] = {"",  ",",  "1,",  ",1",        "1,,2",
                                        "a", "-1", "1;2", "2147483648"};
    for (size_t i = 0; i < sizeof LISTS / sizeof LISTS[0]; i++) {
        program_expect_usage(
            &(program_call){.arguments = {"logits", "m", "--out", "o", "--tokens", LISTS[i]}},
            "--tokens takes");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_help_lists_commands),
        cmocka_unit_test(test_help_of_commands),
        cmocka_unit_test(test_help_of_measurements),
        cmocka_unit_test(test_shared_options_read_the_same),
        cmocka_unit_test(test_wrong_commands),
        cmocka_unit_test(test_what_was_meant),
        cmocka_unit_test(test_words_of_other_programs),
        cmocka_unit_test(test_unknown_options),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_wrong_numbers),
        cmocka_unit_test(test_options_that_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
