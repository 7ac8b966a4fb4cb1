// SPDX-License-Identifier: MIT
// The kvern program: finds the subcommand and runs it.

#include "cli/command.h"
#include "cli/options.h"
#include "cli/report.h"

#include <kvern/kvern.h>

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const command *const COMMANDS[] = {&command_run, &command_inspect, &command_tokenize,
                                          &command_logits};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(COMMANDS[i]->name, name) == 0) {
            return COMMANDS[i];
        }
    }
    return NULL;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kvern %s\n", kvern_version());
}

// The list of commands stands after the options in `kvern --help`; argp frees it.
static char *help_filter(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)text;
    }
    char *list = NULL;
    size_t size;
    FILE *stream = open_memstream(&list, &size);
    if (!stream) {
        return NULL;
    }
    fputs("Commands:\n", stream);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(stream, "  %-10s %s\n", COMMANDS[i]->name, COMMANDS[i]->summary);
    }
    fputs("\n`kvern COMMAND --help' and `kvern help COMMAND' say more about a command. The exit "
          "code is 0 for success, 1 for failure, 2 for wrong usage.",
          stream);
    fclose(stream);
    return list;
}

// Stops at the first argument: what follows belongs to the command.
static error_t parse_program(int key, char *argument, struct argp_state *state)
{
    int *command_index = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (!find_command(argument) && strcmp(argument, "help") != 0) {
            options_fail(state, "'%s' is no command", argument);
        }
        *command_index = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        options_fail(state, "the command is missing");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp PROGRAM_ARGP = {
    .parser = parse_program,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = "Runs language models from GGUF files on the CPU, on the KV cache of the Kvern library.",
    .help_filter = help_filter,
};

static int run_command(const command *chosen, int argc, char **argv)
{
    argv[0] = (char *)chosen->title;
    return chosen->run(argc, argv);
}

// `kvern help` is `kvern --help`, `kvern help COMMAND` is `kvern COMMAND --help`.
static int run_help(int argc, char **argv)
{
    char flag[] = "--help", program[] = "kvern";
    if (argc < 2) {
        char *arguments[] = {program, flag, NULL};
        int unused;
        argp_parse(&PROGRAM_ARGP, 2, arguments, 0, NULL, &unused);
    }
    const command *chosen = find_command(argv[1]);
    if (!chosen) {
        report_error("'%s' is no command", argv[1]);
        return CLI_USAGE;
    }
    if (argc > 2) {
        report_error("help takes one command");
        return CLI_USAGE;
    }
    char *arguments[] = {program, flag, NULL};
    return run_command(chosen, 2, arguments);
}

int main(int argc, char **argv)
{
    report_start();
    argp_err_exit_status = CLI_USAGE;
    argp_program_version_hook = print_version;
    char program[] = "kvern";
    if (argc > 0) {
        argv[0] = program;
    }
    int index = 0;
    if (argp_parse(&PROGRAM_ARGP, argc, argv, ARGP_IN_ORDER, NULL, &index) != 0 || index == 0) {
        return CLI_USAGE;
    }
    if (strcmp(argv[index], "help") == 0) {
        return run_help(argc - index, argv + index);
    }
    return run_command(find_command(argv[index]), argc - index, argv + index);
}
