// SPDX-License-Identifier: MIT
#include "cli/options/options.h"

#include "cli/io/number.h"
#include "cli/io/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 1024 // of kvern_context_create

void options_parse(const struct argp *argp, int argc, char **argv, cli_options *options)
{
    error_t result = argp_parse(argp, argc, argv, 0, NULL, options);
    if (result != 0) {
        report_error("%s", result == ENOMEM ? "no memory" : "the arguments could not be read");
        exit(CLI_FAILURE);
    }
}

void options_init(struct argp_state *state, const struct argp *argp)
{
    for (size_t i = 0; argp->children[i].argp; i++) {
        state->child_inputs[i] = state->input;
    }
}

void options_fail(const struct argp_state *state, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    argp_error(state, "%s", text);
    exit(CLI_USAGE); // argp_error does that; it is not declared so
}

void options_once(const struct argp_state *state, int key, const char *name)
{
    cli_options *options = state->input;
    if (options->seen[key]) {
        options_fail(state, "%s is given twice", name);
    }
    options->seen[key] = true;
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

static error_t parse_model(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (options->model) {
            options_fail(state, "'%s' is one argument too many (the model is '%s')", argument,
                         options->model);
        }
        options->model = argument;
        return 0;
    case ARGP_KEY_END:
        if (!options->model) {
            options_fail(state, "the model file is missing");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp options_model_argp = {.parser = parse_model};

static error_t parse_compute(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case 't':
        options_once(state, key, "-t");
        options->threads = options_number(state, "-t", argument, 1, MAX_THREADS);
        return 0;
    case OPTIONS_KEY_BUDGET:
        options_once(state, key, "--budget");
        if (!number_parse_bytes(argument, &options->budget) || options->budget == 0) {
            options_fail(state, "--budget takes a number of bytes such as 512M or 2GiB, not '%s'",
                         argument);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option COMPUTE_OPTIONS[] = {
    {.name = "threads",
     .key = 't',
     .arg = "N",
     .doc = "Work on N threads (default: one per processor). No token and no number of a model "
            "depends on it"},
    {.name = "budget",
     .key = OPTIONS_KEY_BUDGET,
     .arg = "BYTES",
     .doc =
         "Most memory for the KV cache and its scratch; what does not fit is refused. K, M, G, T "
         "are powers of 1024, kB, MB, GB, TB of 1000"},
    {0}};

const struct argp options_compute_argp = {.options = COMPUTE_OPTIONS, .parser = parse_compute};

static error_t parse_context(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    if (key != OPTIONS_KEY_CONTEXT) {
        return ARGP_ERR_UNKNOWN;
    }
    options_once(state, key, "--ctx");
    options->context = (int64_t)options_number(state, "--ctx", argument, 1, INT32_MAX);
    return 0;
}

static const struct argp_option CONTEXT_OPTIONS[] = {
    {.name = "ctx",
     .key = OPTIONS_KEY_CONTEXT,
     .arg = "N",
     .doc =
         "Room for N tokens, prompt and answers together (default: what the model was made for, or "
         "as much of that as the budget holds)"},
    {0}};

const struct argp options_context_argp = {.options = CONTEXT_OPTIONS, .parser = parse_context};

static error_t parse_template(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case OPTIONS_KEY_RAW:
        options_once(state, key, "--raw");
        options->raw = true;
        return 0;
    case OPTIONS_KEY_TEMPLATE:
        options_once(state, key, "--template");
        options->template_name = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->raw && options->template_name) {
            options_fail(state, "--raw and --template exclude each other");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option TEMPLATE_OPTIONS[] = {
    {.name = "raw",
     .key = OPTIONS_KEY_RAW,
     .doc = "Use the text as it is, without a chat template; control tokens may be written in it"},
    {.name = "template",
     .key = OPTIONS_KEY_TEMPLATE,
     .arg = "NAME",
     .doc = "Put the text into this chat template, as one message of the user"},
    {0}};

const struct argp options_template_argp = {.options = TEMPLATE_OPTIONS, .parser = parse_template};

static error_t parse_text(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case 'p':
        options_once(state, key, "-p");
        options->prompt = argument;
        return 0;
    case OPTIONS_KEY_FILE:
        options_once(state, key, "--file");
        options->file = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->prompt && options->file) {
            options_fail(state, "-p and --file exclude each other");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option TEXT_OPTIONS[] = {
    {.name = "prompt", .key = 'p', .arg = "TEXT", .doc = "The text"},
    {.name = "file",
     .key = OPTIONS_KEY_FILE,
     .arg = "FILE",
     .doc = "The text is in this file; - is standard input. In a template the newline at its end "
            "is left out"},
    {0}};

const struct argp options_text_argp = {.options = TEXT_OPTIONS, .parser = parse_text};

static error_t parse_json(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    cli_options *options = state->input;
    if (key != OPTIONS_KEY_JSON) {
        return ARGP_ERR_UNKNOWN;
    }
    options_once(state, key, "--json");
    options->json = true;
    return 0;
}

static const struct argp_option JSON_OPTIONS[] = {
    {.name = "json", .key = OPTIONS_KEY_JSON, .doc = "Print one JSON object, for programs"}, {0}};

const struct argp options_json_argp = {.options = JSON_OPTIONS, .parser = parse_json};
