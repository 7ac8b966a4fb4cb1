// SPDX-License-Identifier: MIT
// The kvern program: finds the subcommand and runs it.

#include "cli/commands/command.h"
#include "cli/io/nearest.h"
#include "cli/io/report.h"
#include "cli/options/help.h"

#include <kvern/kvern.h>

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const command *const COMMANDS[] = {&command_run,     &command_batch, &command_serve,
                                          &command_inspect, &command_fit,   &command_tokenize,
                                          &command_logits,  &command_eval,  &command_cache,
                                          &command_pull,    &command_bench, &command_prefill};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])

static const char DESCRIPTION[] = "Runs language models from GGUF files and Hugging Face "
                                  "directories on the CPU, on the KV cache of the Kvern library.\n";
static const char FOOTNOTE[] =
    "\n'kvern COMMAND --help' or 'kvern help COMMAND' says more about a command, 'kvern help bench "
    "attention' about a measurement. The exit code is 0 for success, 1 for failure, 2 for wrong "
    "usage.\n\n"
    "  kvern run MODEL                            talk to a model\n"
    "  kvern run MODEL -p \"Why is the sky blue?\"  ask one question\n";

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(COMMANDS[i]->name, name) == 0) {
            return COMMANDS[i];
        }
    }
    return NULL;
}

static int print_version(void)
{
    printf("kvern %s\n", kvern_version());
    return CLI_SUCCESS;
}

static int print_help(void)
{
    fputs("Usage: kvern COMMAND [ARGUMENT...]\n\n", stdout);
    help_fill(stdout, DESCRIPTION, sizeof DESCRIPTION - 1);
    fputs("\nCommands:\n", stdout);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        printf("  %-10s %s\n", COMMANDS[i]->name, COMMANDS[i]->summary);
    }
    fputs("\nOptions:\n  -h, --help     Show this help, as 'kvern help' does\n"
          "  -v, --version  Show the version, as 'kvern version' does\n",
          stdout);
    help_fill(stdout, FOOTNOTE, sizeof FOOTNOTE - 1);
    return CLI_SUCCESS;
}

// Words of other programs, and what does the same here.
static const struct {
    const char *word, *hint;
} HINTS[] = {
    {"chat", "'kvern run MODEL' holds a conversation"},
    {"generate", "'kvern run MODEL -p TEXT' answers a prompt"},
    {"complete", "'kvern run MODEL -p TEXT' answers a prompt"},
    {"list", "'kvern pull --list' shows the models that can be fetched"},
    {"ls", "'kvern pull --list' shows the models that can be fetched"},
    {"models", "'kvern pull --list' shows the models that can be fetched"},
    {"get", "'kvern pull NAME' fetches a model"},
    {"download", "'kvern pull NAME' fetches a model"},
    {"show", "'kvern inspect MODEL' shows what a file holds"},
    {"info", "'kvern inspect MODEL' shows what a file holds"},
    {"perplexity", "'kvern eval MODEL' measures perplexity"},
    {"server", "'kvern serve MODEL' answers requests over HTTP"},
    {"quantize", "models are not converted; '--kv q4' stores the KV cache in fewer bits"},
    {"rm", "models that were fetched are files in a folder, which 'kvern pull --help' names"},
};

static int fail_usage(const char *what, const char *word)
{
    const char *names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        names[i] = COMMANDS[i]->name;
    }
    const char *meant = word[0] == '-' ? NULL : nearest_name(word, names, COMMAND_COUNT);
    if (meant) {
        report_error("%s '%s', did you mean '%s'?", what, word, meant);
    } else if (word[0]) {
        report_error("%s '%s'", what, word);
    } else {
        report_error("%s", what);
    }
    fputs("Try 'kvern --help' for more information.\n", stderr);
    return CLI_USAGE;
}

static int fail_unknown(const char *word)
{
    for (size_t i = 0; i < sizeof HINTS / sizeof HINTS[0]; i++) {
        if (strcmp(HINTS[i].word, word) == 0) {
            report_error("unknown command '%s': %s", word, HINTS[i].hint);
            fputs("Try 'kvern --help' for more information.\n", stderr);
            return CLI_USAGE;
        }
    }
    return fail_usage("unknown command", word);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static int run_command(const command *chosen, int argc, char **argv)
{
    argv[0] = (char *)chosen->title; // messages do not depend on how the program was found
    return chosen->run(argc, argv);
}

// `kvern help COMMAND WORD...` is `kvern COMMAND WORD... --help`. `words` is what stands behind
// "help"; the place of that word is free.
static int help_command(int count, char **words)
{
    static char flag[] = "--help";
    if (count == 0 || is_one_of(words[0], "help", "version", "--help")) {
        return print_help();
    }
    const command *chosen = find_command(words[0]);
    if (!chosen) {
        return fail_unknown(words[0]);
    }
    const bool measurements = chosen == &command_bench;
    if (count > (measurements ? 2 : 1)) {
        return fail_usage(measurements ? "help takes one measurement, not also"
                                       : "help takes one command, not also",
                          words[count - 1]);
    }
    memmove(words - 1, words, (size_t)count * sizeof *words);
    words[count - 1] = flag;
    return run_command(chosen, count + 1, words - 1);
}

int main(int argc, char **argv)
{
    report_start();
    argp_err_exit_status = CLI_USAGE;
    if (argc < 2) {
        return fail_usage("no command given", "");
    }
    const char *word = argv[1];
    if (is_one_of(word, "-h", "--help", "-?")) {
        return print_help();
    }
    if (is_one_of(word, "-v", "--version", "version") || strcmp(word, "-V") == 0) {
        return print_version();
    }
    if (strcmp(word, "help") == 0) {
        return help_command(argc - 2, argv + 2);
    }
    const command *chosen = find_command(word);
    if (!chosen) {
        return word[0] == '-' ? fail_usage("unknown option", word) : fail_unknown(word);
    }
    return run_command(chosen, argc - 1, argv + 1);
}
