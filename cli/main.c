// SPDX-License-Identifier: MIT
// The kvern program: finds the subcommand and runs it.

#include "cli/commands/command.h"
#include "cli/io/report.h"
#include "cli/options/options.h"

#include <kvern/kvern.h>

#include <argp.h>
#include <stdio.h>
#include <string.h>

static const command *const COMMANDS[] = {&command_run,  &command_batch,    &command_inspect,
                                          &command_fit,  &command_tokenize, &command_logits,
                                          &command_eval, &command_bench};
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
    fputs("\n`kvern COMMAND --help' and `kvern help COMMAND' say more about a command, `kvern help "
          "bench attention' about a measurement. The exit "
          "code is 0 for success, 1 for failure, 2 for wrong usage.",
          stream);
    fclose(stream);
    return list;
}

typedef struct program_choice {
    const command *chosen;
    int index; // of its name in argv
} program_choice;

static const command *need_command(const struct argp_state *state, const char *name)
{
    const command *found = find_command(name);
    if (!found) {
        options_fail(state, "'%s' is no command", name);
    }
    return found;
}

// `kvern help` is `kvern --help`, `kvern help COMMAND WORD` is `kvern COMMAND WORD --help`: what
// stands behind "help" moves to its place.
static void parse_help(struct argp_state *state, program_choice *choice)
{
    static char flag[] = "--help";
    char **words = state->argv + state->next;
    const int count = state->argc - state->next;
    if (count == 0) {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP); // ends the program
    }
    choice->chosen = need_command(state, words[0]);
    if (count > 2) {
        options_fail(state, "help takes one command, and one word of it");
    }
    memmove(words - 1, words, (size_t)count * sizeof *words);
    words[count - 1] = flag;
}

// Stops at the first argument: what follows belongs to the command.
static error_t parse_program(int key, char *argument, struct argp_state *state)
{
    program_choice *choice = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        choice->index = state->next - 1;
        if (strcmp(argument, "help") == 0) {
            parse_help(state, choice);
        } else {
            choice->chosen = need_command(state, argument);
        }
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

int main(int argc, char **argv)
{
    report_start();
    argp_err_exit_status = CLI_USAGE;
    argp_program_version_hook = print_version;
    char program[] = "kvern";
    if (argc > 0) {
        argv[0] = program; // messages do not depend on how the program was found
    }
    program_choice choice = {0};
    if (argp_parse(&PROGRAM_ARGP, argc, argv, ARGP_IN_ORDER, NULL, &choice) != 0 ||
        !choice.chosen) {
        return CLI_USAGE;
    }
    argv[choice.index] = (char *)choice.chosen->title;
    return choice.chosen->run(argc - choice.index, argv + choice.index);
}
