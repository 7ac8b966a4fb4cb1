// SPDX-License-Identifier: MIT
// kvern bench: finds what is to be measured.

#include "bench/program/bench.h"
#include "cli/io/report.h"
#include "cli/options/options.h"

#include <string.h>

typedef struct measurement {
    const char *name;
    char *title;
    int (*run)(int argc, char **argv);
} measurement;

static const measurement MEASUREMENTS[] = {
    {"attention", (char[]){"kvern bench attention"}, bench_attention},
    {"draft", (char[]){"kvern bench draft"}, bench_draft},
    {"model", (char[]){"kvern bench model"}, bench_model},
    {"overhead", (char[]){"kvern bench overhead"}, bench_overhead},
    {"sharing", (char[]){"kvern bench sharing"}, bench_sharing},
};
#define MEASUREMENT_COUNT (sizeof MEASUREMENTS / sizeof MEASUREMENTS[0])

typedef struct bench_choice {
    const measurement *chosen;
    int index; // of its name in argv
} bench_choice;

static error_t parse_bench(int key, char *argument, struct argp_state *state)
{
    bench_choice *choice = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < MEASUREMENT_COUNT; i++)
            if (strcmp(argument, MEASUREMENTS[i].name) == 0)
                choice->chosen = &MEASUREMENTS[i];
        if (!choice->chosen)
            options_fail(state, "'%s' is none of attention, draft, model, overhead, sharing",
                         argument);
        choice->index = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        options_fail(state,
                     "what to measure is missing: attention, draft, model, overhead or sharing");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp BENCH_ARGP = {
    .parser = parse_bench,
    .args_doc = "attention [OPTION...]\ndraft MODEL [OPTION...]\nmodel MODEL [OPTION...]\noverhead "
                "MODEL [OPTION...]\nsharing [OPTION...]",
    .doc = "Measures the speed of this machine."
           "\v`kvern bench attention` times reads of the KV cache and sets them against what the "
           "machine can do at most, measured in the same run. `kvern bench model` times a model's "
           "prompt and generation, `kvern bench draft` generation with drafts, `kvern bench "
           "overhead` everything around them, `kvern bench sharing` what rows gain that share a "
           "prefix. All take --help.",
};

static int run_bench(int argc, char **argv)
{
    bench_choice choice = {0};
    if (argp_parse(&BENCH_ARGP, argc, argv, ARGP_IN_ORDER, NULL, &choice) != 0 || !choice.chosen)
        return CLI_USAGE;
    argv[choice.index] = choice.chosen->title;
    return choice.chosen->run(argc - choice.index, argv + choice.index);
}

const command command_bench = {
    .name = "bench",
    .title = "kvern bench",
    .summary = "measure the speed of attention reads or of a model",
    .run = run_bench,
};
