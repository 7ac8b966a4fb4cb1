// SPDX-License-Identifier: MIT
// kvern bench: finds what is to be measured.

#include "cli/bench.h"
#include "cli/options.h"
#include "cli/report.h"

#include <string.h>

static error_t parse_bench(int key, char *argument, struct argp_state *state)
{
    int *index = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (strcmp(argument, "attention") != 0 && strcmp(argument, "model") != 0)
            options_fail(state, "'%s' is neither attention nor model", argument);
        *index = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        options_fail(state, "what to measure is missing: attention or model");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp BENCH_ARGP = {
    .parser = parse_bench,
    .args_doc = "attention [OPTION...]\nmodel MODEL [OPTION...]",
    .doc = "Measures the speed of this machine."
           "\v`kvern bench attention` times reads of the KV cache and sets them against what the "
           "machine can do at most, measured in the same run. `kvern bench model` times a model's "
           "prompt and generation. Both take --help.",
};

static int run_bench(int argc, char **argv)
{
    int index = 0;
    if (argp_parse(&BENCH_ARGP, argc, argv, ARGP_IN_ORDER, NULL, &index) != 0 || index == 0)
        return CLI_USAGE;
    const bool attention = strcmp(argv[index], "attention") == 0;
    char title[] = "kvern bench attention", model_title[] = "kvern bench model";
    argv[index] = attention ? title : model_title;
    return attention ? bench_attention(argc - index, argv + index)
                     : bench_model(argc - index, argv + index);
}

const command command_bench = {
    .name = "bench",
    .title = "kvern bench",
    .summary = "measure the speed of attention reads or of a model",
    .run = run_bench,
};
