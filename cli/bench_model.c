// SPDX-License-Identifier: MIT
// kvern bench model: prompt and generation speed at given lengths of context.

#include "bench/measure/clock.h"
#include "cli/bench.h"
#include "cli/json.h"
#include "cli/load.h"
#include "cli/number_list.h"
#include "cli/progress.h"
#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_CONTEXTS = OPTIONS_KEY_COMMAND, KEY_THREADS, KEY_RUNS, KEY_PROMPT, KEY_GENERATE };

// Prompt tokens of one forward pass, as `kvern run` cuts them.
#define CHUNK 512

#define MOST_RUNS 100

typedef struct model_options {
    cli_options common;
    number_list contexts, threads;
    uint64_t runs, prompt, generate;
} model_options;

static const struct argp MODEL_ARGP;

static error_t parse_model(int key, char *argument, struct argp_state *state)
{
    model_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options_init(state, &MODEL_ARGP);
        return 0;
    case KEY_CONTEXTS:
        options_list(state, "--ctx", argument, 0, 1 << 20, &options->contexts);
        return 0;
    case KEY_THREADS:
        options_list(state, "--threads", argument, 1, 1024, &options->threads);
        return 0;
    case KEY_RUNS:
        options->runs = options_number(state, "--runs", argument, 1, MOST_RUNS);
        return 0;
    case KEY_PROMPT:
        options->prompt = options_number(state, "--prompt", argument, 1, 1 << 20);
        return 0;
    case KEY_GENERATE:
        options->generate = options_number(state, "--generate", argument, 1, 1 << 16);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option MODEL_OPTIONS[] = {
    {.name = "ctx",
     .key = KEY_CONTEXTS,
     .arg = "LIST",
     .doc = "Lengths of context; default: 0,2048"},
    {.name = "threads", .key = KEY_THREADS, .arg = "LIST", .doc = "Default: 1,2"},
    {.name = "runs", .key = KEY_RUNS, .arg = "N", .doc = "Rounds over all cells; default: 3"},
    {.name = "prompt",
     .key = KEY_PROMPT,
     .arg = "N",
     .doc = "Prompt tokens where the context is 0; default: 512"},
    {.name = "generate", .key = KEY_GENERATE, .arg = "N", .doc = "Tokens generated; default: 32"},
    {0}};

static const struct argp_child MODEL_CHILDREN[] = {
    {&options_model_argp, 0, NULL, 0}, {&options_json_argp, 0, NULL, 0}, {0}};

static const struct argp MODEL_ARGP = {
    .options = MODEL_OPTIONS,
    .parser = parse_model,
    .args_doc = "MODEL",
    .doc = "Times a model. At a context of C tokens, the prompt speed is the average over a prompt "
           "of C "
           "tokens (of --prompt tokens for C = 0), and the generation speed that of tokens decoded "
           "after C tokens."
           "\vCells are measured in rounds, one after the other; the numbers are medians.",
    .children = MODEL_CHILDREN,
};

typedef struct model_cell {
    size_t context, threads;
    double prompt[MOST_RUNS], generation[MOST_RUNS]; // tokens per second
} model_cell;

typedef struct model_run {
    const model_options *options;
    loaded_model loaded;
    kvern_state *state;
    model_workspace *workspace;
    float *logits;
    int32_t *tokens;
} model_run;

static int32_t token_at(const model_run *run, size_t i)
{
    return (int32_t)((i * 7919 + 13) % model_get_facts(run->loaded.model)->vocabulary);
}

static kvern_status forward(model_run *run, kvern_phase phase, size_t from, size_t count,
                            bool logits, engine_error *error)
{
    const int64_t counts[1] = {(int64_t)count}, none[1] = {0};
    for (size_t i = 0; i < count; i++)
        run->tokens[i] = token_at(run, from + i);
    const model_step step = {.phase = phase,
                             .tokens = run->tokens,
                             .counts = counts,
                             .logits = logits ? run->logits : NULL,
                             .logits_counts = logits ? NULL : none};
    return model_forward(run->loaded.model, run->workspace, run->state, &step, error);
}

static kvern_status prefill(model_run *run, size_t count, engine_error *error)
{
    kvern_status status = KVERN_OK;
    for (size_t at = 0; at < count && !status; at += CHUNK) {
        const size_t chunk = count - at < CHUNK ? count - at : CHUNK;
        status = forward(run, KVERN_PHASE_WINDOW, at, chunk, at + chunk == count, error);
    }
    return status;
}

// One round of one cell; the model is loaded with the cell's threads.
static kvern_status time_cell(model_run *run, model_cell *cell, size_t round, engine_error *error)
{
    const size_t prompt = cell->context ? cell->context : run->options->prompt;
    const size_t generate = run->options->generate;
    if (kvern_state_reset(run->state, 0))
        return engine_fail_kvern(error, KVERN_ERR_BUSY, "resetting");
    double start = clock_seconds();
    kvern_status status = prefill(run, prompt, error);
    cell->prompt[round] = (double)prompt / (clock_seconds() - start);
    if (!status && cell->context == 0 &&
        (kvern_state_reset(run->state, 0) ||
         forward(run, KVERN_PHASE_WINDOW, 0, 1, true, error) != KVERN_OK))
        status = KVERN_ERR_ARGUMENT;
    start = clock_seconds();
    for (size_t i = 0; i < generate && !status; i++)
        status = forward(run, KVERN_PHASE_DECODE, prompt + i, 1, true, error);
    cell->generation[round] = (double)generate / (clock_seconds() - start);
    return status;
}

static size_t largest_context(const model_options *options)
{
    size_t largest = options->prompt;
    for (size_t i = 0; i < options->contexts.count; i++)
        largest = options->contexts.value[i] > largest ? options->contexts.value[i] : largest;
    return largest + options->generate;
}

static kvern_status open_run(model_run *run, size_t threads, engine_error *error)
{
    cli_options common = run->options->common;
    common.threads = threads;
    common.context = (int64_t)largest_context(run->options);
    kvern_status status = load_model(&common, &run->loaded, error);
    if (!status && kvern_state_create(run->loaded.composition, 1, &run->state))
        status = engine_fail_kvern(error, KVERN_ERR_MEMORY, "making the KV cache");
    if (!status)
        status = model_workspace_create(run->loaded.model, CHUNK, 1, &run->workspace, error);
    if (status)
        return status;
    run->logits = malloc(model_get_facts(run->loaded.model)->vocabulary * sizeof(float));
    run->tokens = malloc(CHUNK * sizeof(int32_t));
    return run->logits && run->tokens ? KVERN_OK
                                      : engine_fail(error, KVERN_ERR_MEMORY, "no memory");
}

static void close_run(model_run *run)
{
    free(run->logits);
    free(run->tokens);
    model_workspace_destroy(run->workspace);
    kvern_state_destroy(run->state);
    unload_model(&run->loaded);
}

// All contexts at one thread count, in rounds.
static kvern_status measure_threads(const model_options *options, size_t threads, model_cell *cells,
                                    engine_error *error)
{
    model_run run = {.options = options};
    kvern_status status = open_run(&run, threads, error);
    progress bar = progress_start("measuring", "cells");
    const size_t count = options->contexts.count;
    for (size_t i = 0; i < count * options->runs && !status; i++) {
        model_cell *cell = &cells[i % count];
        progress_update(&bar, i, count * options->runs);
        cell->context = options->contexts.value[i % count];
        cell->threads = threads;
        status = time_cell(&run, cell, i / count, error);
    }
    progress_end(&bar);
    close_run(&run);
    return status;
}

static int print_cells(const model_options *options, model_cell *cells, size_t count)
{
    json_t *list = options->common.json ? json_array() : NULL;
    if (!list)
        printf("%8s %8s %18s %22s\n", "context", "threads", "prompt tokens/s",
               "generation tokens/s");
    for (size_t i = 0; i < count; i++) {
        model_cell *c = &cells[i];
        const double prompt = clock_quantile(c->prompt, options->runs, 0.5);
        const double generation = clock_quantile(c->generation, options->runs, 0.5);
        if (!list)
            printf("%8zu %8zu %18.1f %22.1f\n", c->context, c->threads, prompt, generation);
        else
            json_array_append_new(list, json_pack("{s:I, s:I, s:f, s:f}", "ctx",
                                                  (json_int_t)c->context, "threads",
                                                  (json_int_t)c->threads, "prompt_tokens_per_s",
                                                  prompt, "generation_tokens_per_s", generation));
    }
    return list ? json_print(json_pack("{s:o}", "cells", list)) : CLI_SUCCESS;
}

int bench_model(int argc, char **argv)
{
    model_options options = {.contexts = {2, {0, 2048}},
                             .threads = {2, {1, 2}},
                             .runs = 3,
                             .prompt = 512,
                             .generate = 32};
    options_parse(&MODEL_ARGP, argc, argv, &options.common);
    const size_t count = options.contexts.count * options.threads.count;
    model_cell *cells = calloc(count, sizeof *cells);
    if (!cells)
        return report_error("no memory");
    engine_error error;
    kvern_status status = KVERN_OK;
    for (size_t t = 0; t < options.threads.count && !status; t++)
        status = measure_threads(&options, options.threads.value[t],
                                 cells + t * options.contexts.count, &error);
    const int code = status ? report_engine_error(&error) : print_cells(&options, cells, count);
    free(cells);
    return code;
}
