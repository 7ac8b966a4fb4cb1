// SPDX-License-Identifier: MIT
#include "cli/options/options.h"

#include "cli/io/number.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"
#include "cli/options/help.h"
#include "cli/options/model_name.h"
#include "cli/options/option_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024 // of kvern_context_create

// ---- The frame of all commands ----

#define MOST_GROUPS 24

enum { KEY_USAGE = OPTIONS_KEY_COMMAND - 1 };

static const struct argp *parsed; // the command whose arguments are being parsed

static error_t parse_frame(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    switch (key) {
    case ARGP_KEY_INIT:
        for (size_t i = 0; state->root_argp->children[i].argp; i++) {
            state->child_inputs[i] = state->input;
        }
        return 0;
    case 'h':
    case KEY_USAGE:
        help_print(stdout, state->name, parsed);
        exit(CLI_SUCCESS);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option FRAME_OPTIONS[] = {
    {.name = "help", .key = 'h', .doc = ""}, {.name = "usage", .key = KEY_USAGE, .doc = ""}, {0}};

static void fail_usage(const char *title, const char *text)
{
    fprintf(stderr, "%s: %s\nTry '%s --help' for more information.\n", title, text, title);
    exit(CLI_USAGE);
}

static const char *find_model(const char *name, char path[PATH_MAX])
{
    const char *found = model_name_resolve(name, path);
    if (model_name_missing(found)) {
        report_error("%s: No such file, and no model that was fetched has this name ('kvern pull "
                     "--list' shows those that can be)",
                     found);
        exit(CLI_FAILURE);
    }
    return found;
}

void options_parse(const struct argp *command, int argc, char **argv, cli_options *options)
{
    const struct argp own = {.options = command->options, .parser = command->parser};
    struct argp_child groups[MOST_GROUPS] = {{.argp = &own}};
    for (size_t i = 0; command->children && command->children[i].argp; i++) {
        groups[1 + i] = (struct argp_child){.argp = command->children[i].argp};
    }
    const struct argp frame = {.options = FRAME_OPTIONS, .parser = parse_frame, .children = groups};
    parsed = command;
    char text[OPTION_NAMES_TEXT];
    if (!option_names_known(&(struct argp){.options = FRAME_OPTIONS, .children = groups}, argc,
                            argv, text)) {
        fail_usage(argv[0], text);
    }
    // Long names may begin with one dash: -sys, -md and -ctk are what people type.
    error_t result = argp_parse(&frame, argc, argv, ARGP_LONG_ONLY | ARGP_NO_HELP, NULL, options);
    if (result != 0) {
        report_error("%s", result == ENOMEM ? "no memory" : "the arguments could not be read");
        exit(CLI_FAILURE);
    }
    if (options->quiet) {
        progress_disable();
    }
    static char model[PATH_MAX], draft[PATH_MAX];
    if (options->model) {
        options->model = find_model(options->model, model);
    }
    if (options->draft.source && strcmp(options->draft.source, DRAFT_NGRAM) != 0) {
        options->draft.source = find_model(options->draft.source, draft);
    }
}

void options_fail(const struct argp_state *state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", state->name);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nTry '%s --help' for more information.\n", state->name);
    exit(CLI_USAGE);
}

uint64_t options_number(const struct argp_state *state, const char *name, const char *text,
                        uint64_t lowest, uint64_t highest)
{
    uint64_t value;
    if (!number_parse(text, highest, &value) || value < lowest) {
        options_fail(state, "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'",
                     name, lowest, highest, text);
    }
    return value;
}

int64_t options_number_or_all(const struct argp_state *state, const char *name, const char *text,
                              const char *all)
{
    uint64_t value;
    if (strcmp(text, "-1") == 0) {
        return -1;
    }
    if (!number_parse(text, INT32_MAX, &value)) {
        options_fail(state, "%s takes a whole number from 0 to %d, or -1 for %s, not '%s'", name,
                     INT32_MAX, all, text);
    }
    return (int64_t)value;
}

float options_real(const struct argp_state *state, const char *name, const char *text,
                   double lowest, double highest)
{
    float value;
    if (!number_parse_real(text, lowest, highest, &value)) {
        options_fail(state, "%s takes a number from %g to %g, not '%s'", name, lowest, highest,
                     text);
    }
    return value;
}

// ---- Groups ----

// Whether the command takes -p.
static bool takes_text(const struct argp_state *state)
{
    for (const struct argp_child *c = state->root_argp->children; c->argp; c++) {
        if (c->argp == &options_text_argp) {
            return true;
        }
    }
    return false;
}

static error_t parse_model(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case 'm':
        options->model = argument;
        return 0;
    case OPTIONS_KEY_PRE:
        options->pre = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (options->model) {
            options_fail(state, "unexpected argument '%s' (the model is '%s'%s)", argument,
                         options->model, takes_text(state) ? "; a text is given with -p" : "");
        }
        options->model = argument;
        return 0;
    case ARGP_KEY_END:
        if (!options->model) {
            options_fail(state, "no model file given (MODEL is a path, or one of the names that "
                                "'kvern pull --list' shows)");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option MODEL_OPTIONS[] = {
    {.name = "model", .key = 'm', .arg = "MODEL", .flags = OPTION_HIDDEN},
    {.name = "pre",
     .key = OPTIONS_KEY_PRE,
     .arg = "NAME",
     .doc = "Split texts into words as this pre-tokenizer does (gpt-2, llama-bpe, qwen2, ...), for "
            "a file that does not say how"},
    {0}};

const struct argp options_model_argp = {.options = MODEL_OPTIONS, .parser = parse_model};

static error_t parse_threads(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    if (key != 't') {
        return ARGP_ERR_UNKNOWN;
    }
    options->threads = options_number(state, "-t", argument, 0, MAX_THREADS);
    return 0;
}

static const struct argp_option THREADS_OPTIONS[] = {
    {.name = "threads",
     .key = 't',
     .arg = "N",
     .doc = "Work on N threads; 0 (default) is one per processor. The output does not depend on "
            "it"},
    {0}};

const struct argp options_threads_argp = {
    .options = THREADS_OPTIONS, .parser = parse_threads, .doc = "Machine and output"};

static error_t parse_budget(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    if (key != OPTIONS_KEY_BUDGET) {
        return ARGP_ERR_UNKNOWN;
    }
    if (!number_parse_bytes(argument, &options->budget) || options->budget == 0) {
        options_fail(state, "--budget takes a number of bytes such as 512M or 2GiB, not '%s'",
                     argument);
    }
    return 0;
}

static const struct argp_option BUDGET_OPTIONS[] = {
    {.name = "budget",
     .key = OPTIONS_KEY_BUDGET,
     .arg = "BYTES",
     .doc = "Use at most this much memory for the KV cache and its scratch; whatever does not fit "
            "is refused. K, M, G, T are powers of 1024; kB, MB, GB, TB of 1000"},
    {0}};

const struct argp options_budget_argp = {
    .options = BUDGET_OPTIONS, .parser = parse_budget, .doc = "KV cache"};

static error_t parse_context(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    if (key != 'c') {
        return ARGP_ERR_UNKNOWN;
    }
    options->context = (int64_t)options_number(state, "--ctx", argument, 0, INT32_MAX);
    return 0;
}

static const struct argp_option CONTEXT_OPTIONS[] = {
    {.name = "ctx",
     .key = 'c',
     .arg = "N",
     .doc = "Make room for N tokens, prompt and answers together; 0 (default) is what the model "
            "was made for, or as much of that as the budget holds"},
    {.name = "ctx-size", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {0}};

const struct argp options_context_argp = {
    .options = CONTEXT_OPTIONS, .parser = parse_context, .doc = "KV cache"};

static error_t parse_template(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case OPTIONS_KEY_RAW:
        options->raw = true;
        return 0;
    case OPTIONS_KEY_TEMPLATE:
        options->template_name = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->raw && options->template_name) {
            options_fail(state, "--raw and --template cannot be used together");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option TEMPLATE_OPTIONS[] = {
    {.name = "raw",
     .key = OPTIONS_KEY_RAW,
     .doc = "Use the text as it is, without a chat template; control tokens in it are recognised"},
    {.name = "template",
     .key = OPTIONS_KEY_TEMPLATE,
     .arg = "NAME",
     .doc = "Put the text into this chat template, as one message of the user"},
    {.name = "chat-template", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {0}};

const struct argp options_template_argp = {
    .options = TEMPLATE_OPTIONS, .parser = parse_template, .doc = "Prompt"};

static error_t parse_text(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case 'p':
        options->prompt = argument;
        return 0;
    case 'f':
        options->file = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->prompt && options->file) {
            options_fail(state, "-p and -f cannot be used together");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option TEXT_OPTIONS[] = {
    {.name = "prompt", .key = 'p', .arg = "TEXT", .doc = "The text"},
    {.name = "file",
     .key = 'f',
     .arg = "FILE",
     .doc = "Read the text from this file; - is standard input. A newline at its end is not part "
            "of a message"},
    {0}};

const struct argp options_text_argp = {
    .options = TEXT_OPTIONS, .parser = parse_text, .doc = "Prompt"};

static error_t parse_json(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    cli_options *options = state->input;
    if (key != OPTIONS_KEY_JSON) {
        return ARGP_ERR_UNKNOWN;
    }
    options->json = true;
    return 0;
}

static const struct argp_option JSON_OPTIONS[] = {
    {.name = "json", .key = OPTIONS_KEY_JSON, .doc = "Print one JSON object, for programs"}, {0}};

const struct argp options_json_argp = {
    .options = JSON_OPTIONS, .parser = parse_json, .doc = "Machine and output"};

static error_t parse_quiet(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    cli_options *options = state->input;
    if (key != 'q') {
        return ARGP_ERR_UNKNOWN;
    }
    options->quiet = true;
    return 0;
}

static const struct argp_option QUIET_OPTIONS[] = {
    {.name = "quiet", .key = 'q', .doc = "Show no progress and no statistics; errors are shown"},
    {0}};

const struct argp options_quiet_argp = {
    .options = QUIET_OPTIONS, .parser = parse_quiet, .doc = "Machine and output"};
