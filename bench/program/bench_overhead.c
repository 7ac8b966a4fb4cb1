// SPDX-License-Identifier: MIT
// kvern bench overhead: what loading and the calls around the arithmetic cost.

#include "bench/measure/clock.h"
#include "bench/measure/overhead.h"
#include "bench/program/bench.h"
#include "bench/program/bench_options.h"
#include "cli/io/json.h"
#include "cli/io/report.h"
#include "cli/session/model_loading.h"
#include "engine/generation/generate.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_POSITIONS = OPTIONS_KEY_COMMAND, KEY_PROMPT };

#define MOST_ITEMS 32

// Times that the model is loaded: a load takes a thousand times what the other samples take.
#define MOST_LOADS 5

typedef struct overhead_options {
    bench_options bench;
    uint64_t positions, prompt;
} overhead_options;

static error_t parse_overhead(int key, char *argument, struct argp_state *state)
{
    overhead_options *options = state->input;
    switch (key) {
    case KEY_POSITIONS:
        options->positions = options_number(state, "--positions", argument, 1, 1 << 20);
        return 0;
    case KEY_PROMPT:
        options->prompt = options_number(state, "--prompt", argument, 1, SCHEDULE_CHUNK);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option OVERHEAD_OPTIONS[] = {
    {.name = "positions",
     .key = KEY_POSITIONS,
     .arg = "N",
     .doc = "Positions of the row that is forked, trimmed and so on; default: 1024"},
    {.name = "prompt",
     .key = KEY_PROMPT,
     .arg = "N",
     .doc = "Tokens of the prompt before the first token; default: 16"},
    {0}};

static const struct argp_child OVERHEAD_CHILDREN[] = {{.argp = &options_model_argp},
                                                      {.argp = &bench_repeat_once_argp},
                                                      {.argp = &options_json_argp},
                                                      {0}};

static const struct argp OVERHEAD_ARGP = {
    .options = OVERHEAD_OPTIONS,
    .parser = parse_overhead,
    .args_doc = "MODEL",
    .doc = "Times what is not arithmetic, for the layers of a model: appends, steps, forks, trims, "
           "rows that join and leave, rounds and reservations, in nanoseconds, beside copies of "
           "plain arrays; and loading the model, and the logits behind a short "
           "prompt."
           "\vThe numbers are medians of --runs samples (default: 11; 5 at most for loading) and "
           "their quartiles. -t takes one number; the default is 1.",
    .children = OVERHEAD_CHILDREN,
};

typedef struct row {
    const char *name, *what;
    double median, low, high; // nanoseconds
} row;

static row row_of(const char *name, const char *what, double *samples, size_t count)
{
    return (row){name, what, clock_quantile(samples, count, 0.5),
                 clock_quantile(samples, count, 0.25), clock_quantile(samples, count, 0.75)};
}

typedef struct overhead_table {
    const overhead_options *options;
    size_t runs;
    double *samples; // `runs` of them
    row rows[MOST_ITEMS + 2];
    size_t count;
} overhead_table;

// Seconds of a forward pass over the prompt, with everything that it needs made first.
static kvern_status time_prompt(const overhead_options *options, const loaded_model *loaded,
                                double *seconds, engine_error *error)
{
    const size_t vocabulary = model_get_facts(loaded->model)->vocabulary;
    const int64_t counts[1] = {(int64_t)options->prompt};
    int32_t tokens[SCHEDULE_CHUNK];
    kvern_state *state = NULL;
    model_workspace *workspace = NULL;
    for (size_t i = 0; i < options->prompt; i++)
        tokens[i] = (int32_t)((i * 7919 + 13) % vocabulary);
    const double start = clock_seconds();
    float *logits = malloc(vocabulary * sizeof(float));
    kvern_status status =
        logits ? kvern_state_create(loaded->composition, 1, &state) : KVERN_ERR_MEMORY;
    if (status)
        status = engine_fail_kvern(error, status, "making the KV cache");
    if (!status)
        status = model_workspace_create(loaded->model, SCHEDULE_CHUNK, 1, &workspace, error);
    const model_step step = {
        .phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = counts, .logits = logits};
    if (!status)
        status = model_forward(loaded->model, workspace, state, &step, error);
    *seconds = clock_seconds() - start;
    model_workspace_destroy(workspace);
    kvern_state_destroy(state);
    free(logits);
    return status;
}

// Loads the model several times; it stays loaded after the last one.
static kvern_status time_loads(overhead_table *table, loaded_model *loaded, engine_error *error)
{
    double load[MOST_LOADS], prompt[MOST_LOADS];
    const size_t loads = table->runs < MOST_LOADS ? table->runs : MOST_LOADS;
    cli_options common = table->options->bench.common;
    common.threads = table->options->bench.threads.value[0];
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < loads && !status; i++) {
        unload_model(loaded);
        const double start = clock_seconds();
        status = load_model(&common, loaded, error);
        load[i] = 1e9 * (clock_seconds() - start);
        if (!status)
            status = time_prompt(table->options, loaded, &prompt[i], error);
        prompt[i] *= 1e9;
    }
    if (status)
        return status;
    table->rows[table->count++] = row_of("load", "load the model", load, loads);
    table->rows[table->count++] =
        row_of("prompt", "logits behind a short prompt, of an empty state", prompt, loads);
    return KVERN_OK;
}

static kvern_status time_items(overhead_table *table, const loaded_model *loaded)
{
    overhead_run *run;
    kvern_status status = overhead_open(loaded->composition, model_get_facts(loaded->model)->heads,
                                        (int64_t)table->options->positions, &run);
    double unused;
    for (size_t i = 0; i < OVERHEAD_COUNT && !status; i++) {
        const overhead_item *item = &OVERHEAD_ITEMS[i];
        status = item->sample(run, &unused); // warms up
        for (size_t s = 0; s < table->runs && !status; s++)
            status = item->sample(run, &table->samples[s]);
        if (!status)
            table->rows[table->count++] =
                row_of(item->name, item->what, table->samples, table->runs);
    }
    overhead_close(run);
    return status;
}

static int print_table(const overhead_table *table)
{
    json_t *list = json_array();
    for (size_t i = 0; i < table->count; i++) {
        const row *r = &table->rows[i];
        if (table->options->bench.common.json)
            json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", r->name,
                                                  "what", r->what, "ns", r->median, "ns_low",
                                                  r->low, "ns_high", r->high));
        else
            printf("%12.0f ns  %11.0f-%-11.0f  %-14s %s\n", r->median, r->low, r->high, r->name,
                   r->what);
    }
    if (table->options->bench.common.json)
        return json_print(json_pack("{s:I, s:I, s:I, s:o}", "threads",
                                    (json_int_t)table->options->bench.threads.value[0], "positions",
                                    (json_int_t)table->options->positions, "prompt",
                                    (json_int_t)table->options->prompt, "items", list));
    json_decref(list);
    return CLI_SUCCESS;
}

static int measure(overhead_table *table)
{
    loaded_model loaded = {0};
    engine_error error;
    kvern_status status = time_loads(table, &loaded, &error);
    if (!status && time_items(table, &loaded))
        status = engine_fail_kvern(&error, KVERN_ERR_MEMORY, "measuring");
    unload_model(&loaded);
    return status ? report_engine_error(&error) : print_table(table);
}

int bench_overhead(int argc, char **argv)
{
    overhead_options options = {
        .bench = {.threads = {1, {1}}, .runs = 11}, .positions = 1024, .prompt = 16};
    options_parse(&OVERHEAD_ARGP, argc, argv, &options.bench.common);
    overhead_table table = {.options = &options};
    table.runs = options.bench.runs;
    table.samples = malloc(table.runs * sizeof(double));
    if (!table.samples)
        return report_error("no memory");
    const int code = measure(&table);
    free(table.samples);
    return code;
}
