// SPDX-License-Identifier: MIT
// kvern bench model: prompt and generation speed at given lengths of context.

#include "bench/measure/clock.h"
#include "bench/measure/roofline.h"
#include "bench/program/bench.h"
#include "bench/program/bench_options.h"
#include "cli/io/json.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"
#include "cli/options/storage_options.h"
#include "cli/session/model_loading.h"
#include "engine/generation/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_CONTEXTS = OPTIONS_KEY_COMMAND, KEY_PROMPT, KEY_GENERATE, KEY_BATCH };

// Of a peer's logits from ours. Rounded activations and a KV cache of few bits stay far below it;
// another text or another position does not.
#define MOST_DIFFERENCE 0.5

typedef struct model_options {
    bench_options bench;
    number_list contexts;
    uint64_t prompt, generate, batch;
} model_options;

#define MOST_BATCH 256

// Memory that the bandwidth is read from: more than any cache that few cores share.
#define COLD_BYTES ((size_t)512 << 20)

static error_t parse_model(int key, char *argument, struct argp_state *state)
{
    model_options *options = state->input;
    switch (key) {
    case KEY_CONTEXTS:
        options_list(state, "--ctx", argument, 0, 1 << 20, &options->contexts);
        return 0;
    case KEY_PROMPT:
        options->prompt = options_number(state, "--prompt", argument, 1, 1 << 20);
        return 0;
    case KEY_GENERATE:
        options->generate = options_number(state, "--generate", argument, 1, 1 << 16);
        return 0;
    case KEY_BATCH:
        options->batch = options_number(state, "--batch", argument, 1, MOST_BATCH);
        return 0;
    case ARGP_KEY_END:
        if (options->batch > 1 && options->bench.peer)
            options_fail(state, "a peer is measured with --batch 1");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option MODEL_OPTIONS[] = {
    {.name = "ctx",
     .key = KEY_CONTEXTS,
     .arg = "LIST",
     .doc = "Lengths of context, each with room for --generate tokens behind it; default: 0,2048"},
    {.name = "prompt",
     .key = KEY_PROMPT,
     .arg = "N",
     .doc = "Tokens of the prompt where the context is 0; default: 512"},
    {.name = "generate", .key = KEY_GENERATE, .arg = "N", .doc = "Tokens generated; default: 32"},
    {.name = "batch",
     .key = KEY_BATCH,
     .arg = "N",
     .doc = "Sequences that are computed together; default: 1. Speeds are those of all of them"},
    {0}};

static const struct argp_child MODEL_CHILDREN[] = {{.argp = &options_model_argp},
                                                   {.argp = &bench_repeat_argp},
                                                   {.argp = &bench_peer_argp},
                                                   {.argp = &options_codec_argp},
                                                   {.argp = &options_storage_argp},
                                                   {.argp = &options_json_argp},
                                                   {0}};

static const struct argp MODEL_ARGP = {
    .options = MODEL_OPTIONS,
    .parser = parse_model,
    .args_doc = "MODEL",
    .doc = "Times a model. At a context of C tokens, the prompt speed is the average over a prompt "
           "of C tokens (of --prompt tokens for C = 0), and the generation speed that of tokens "
           "decoded after C tokens."
           "\vCells are measured in --runs rounds (default: 3), one after the other, ours and "
           "then the peer's; the numbers are medians.",
    .children = MODEL_CHILDREN,
};

// Tokens per second in every round.
typedef struct model_speeds {
    double *prompt, *generation;
} model_speeds;

typedef struct model_cell {
    size_t context, threads;
    model_speeds own, peers[BENCH_MOST_NAMES];
    double *bandwidth; // what memory gives on the same threads, bytes per second, in every round
    double bytes_per_token; // that a generated token reads: tensors, and what its row has stored
    // Of the peers' logits from ours; NaN: a peer has none.
    double difference[BENCH_MOST_NAMES];
    char refusals[BENCH_MOST_NAMES][PEER_TEXT_BYTES]; // why a peer cannot be measured; "": it was
} model_cell;

typedef struct model_run {
    const model_options *options;
    size_t runs;
    peer_process *peers; // one per storage
    size_t peer_count;
    model_cell *cells; // all contexts of the first number of threads, then of the next
    size_t cell_count;
    double *samples; // of all cells
    roofline_buffer buffer;
    char storage[STORAGE_TEXT]; // what the KV cache is stored in
    // While the cells of one number of threads are measured:
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

// The same tokens for the rows from `first` to `end` - 1; the logits that are wanted are those of
// the last one in each row.
static kvern_status forward(model_run *run, kvern_phase phase, size_t first, size_t end,
                            size_t from, size_t count, bool logits, engine_error *error)
{
    int64_t counts[MOST_BATCH] = {0};
    const int64_t none[MOST_BATCH] = {0};
    size_t tokens = 0;
    for (size_t row = first; row < end; row++) {
        counts[row] = (int64_t)count;
        for (size_t i = 0; i < count; i++)
            run->tokens[tokens++] = token_at(run, from + i);
    }
    const model_step step = {.phase = phase,
                             .tokens = run->tokens,
                             .counts = counts,
                             .logits = logits ? run->logits : NULL,
                             .logits_counts = logits ? NULL : none};
    return model_forward(run->loaded.model, run->workspace, run->state, &step, error);
}

// Tokens of the next chunk of a prompt, which ends where a row is converted (--kv-start).
static size_t chunk_at(const model_run *run, size_t row, size_t rest)
{
    const uint64_t most = (uint64_t)kvern_state_max_append(run->state, row);
    const size_t chunk = rest < SCHEDULE_CHUNK ? rest : SCHEDULE_CHUNK;
    return chunk < most ? chunk : (size_t)most;
}

// Empties all rows and forwards a prompt in each.
static kvern_status prefill(model_run *run, size_t count, engine_error *error)
{
    kvern_status status = KVERN_OK;
    for (size_t row = 0; row < run->options->batch && !status; row++) {
        if (kvern_state_reset(run->state, row))
            return engine_fail_kvern(error, KVERN_ERR_BUSY, "resetting");
        for (size_t at = 0, chunk; at < count && !status; at += chunk) {
            chunk = chunk_at(run, row, count - at);
            status = forward(run, KVERN_PHASE_WINDOW, row, row + 1, at, chunk, at + chunk == count,
                             error);
        }
    }
    return status;
}

// One round of one cell, ours.
static kvern_status time_own(model_run *run, model_cell *cell, size_t round, engine_error *error)
{
    const size_t prompt = cell->context ? cell->context : run->options->prompt;
    const size_t generate = run->options->generate, batch = run->options->batch;
    double start = clock_seconds();
    kvern_status status = prefill(run, prompt, error);
    cell->own.prompt[round] = (double)(batch * prompt) / (clock_seconds() - start);
    const size_t at = cell->context ? cell->context : 1; // generation begins behind one token
    if (!status && cell->context == 0)
        status = prefill(run, at, error);
    start = clock_seconds();
    for (size_t i = 0; i < generate && !status; i++)
        status = forward(run, KVERN_PHASE_DECODE, 0, batch, at + i, 1, true, error);
    cell->own.generation[round] = (double)(batch * generate) / (clock_seconds() - start);
    return status;
}

// Bytes of the row that a token behind `positions` others reads: layers with a window read no more.
static double cache_bytes(const kvern_composition *composition, double positions)
{
    double bytes = 0;
    for (size_t i = 0; i < kvern_composition_layers(composition); i++) {
        const double window = (double)kvern_composition_layer(composition, i)->window;
        const double seen = window > 0 && window < positions ? window : positions;
        bytes += seen * (double)kvern_composition_layer_bytes_per_token(composition, i);
    }
    return bytes;
}

// What the generation of a cell is compared with.
static void measure_limit(model_run *run, model_cell *cell, size_t round)
{
    const kvern_executor executor = kvern_context_executor(run->loaded.context);
    const uint32_t features = kvern_context_cpu_features(run->loaded.context);
    cell->bandwidth[round] = roofline_measure(&run->buffer, &executor, features).bytes_per_s;
    const double behind = (double)cell->context + (double)run->options->generate / 2;
    cell->bytes_per_token = (double)model_get_facts(run->loaded.model)->tensor_bytes +
                            cache_bytes(run->loaded.composition, behind);
}

// The norm of the difference of two rows of logits over the norm of ours, their means left out: a
// softmax does not see them.
static double logits_difference(const float *ours, const float *theirs, size_t count)
{
    double mean[2] = {0, 0}, sums[2] = {0, 0};
    for (size_t i = 0; i < count; i++) {
        mean[0] += ours[i] / (double)count;
        mean[1] += theirs[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        const double own = ours[i] - mean[0], apart = own - (theirs[i] - mean[1]);
        sums[0] += apart * apart;
        sums[1] += own * own;
    }
    return sqrt(sums[0] / sums[1]);
}

// Whether peer `p`, which has just been timed, ended with the logits that we ended with.
static kvern_status compare_logits(model_run *run, model_cell *cell, size_t p, engine_error *error)
{
    const bench_options *o = &run->options->bench;
    const size_t count = model_get_facts(run->loaded.model)->vocabulary;
    float *theirs = malloc(count * sizeof *theirs);
    if (!theirs)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory");
    const peer_answer answer = peer_logits(&run->peers[p], theirs, count);
    cell->difference[p] = answer ? NAN : logits_difference(run->logits, theirs, count);
    free(theirs);
    if (answer == PEER_GONE)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "the peer %s stopped answering", o->peer);
    if (answer == PEER_NO || cell->difference[p] <= MOST_DIFFERENCE)
        return KVERN_OK;
    return engine_fail(error, KVERN_ERR_ARGUMENT,
                       "the peer's logits with %s are %.3g away from ours: it does not compute the "
                       "same thing",
                       o->peer_storages.name[p], cell->difference[p]);
}

static kvern_status time_peers(model_run *run, model_cell *cell, size_t round, engine_error *error)
{
    const model_options *o = run->options;
    const size_t prompt = cell->context ? cell->context : o->prompt;
    for (size_t p = 0; p < run->peer_count; p++) {
        double seconds[2];
        if (!run->peers[p].opened) {
            const char *reason = run->peers[p].refusal;
            snprintf(cell->refusals[p], sizeof cell->refusals[p], "%s", *reason ? reason : "?");
            continue;
        }
        clock_rest();
        if (!peer_time(&run->peers[p], cell->context, prompt, o->generate, &seconds[0],
                       &seconds[1]))
            return engine_fail(error, KVERN_ERR_ARGUMENT, "the peer %s stopped answering",
                               o->bench.peer);
        cell->peers[p].prompt[round] = (double)prompt / seconds[0];
        cell->peers[p].generation[round] = (double)o->generate / seconds[1];
        const kvern_status status = compare_logits(run, cell, p, error);
        if (status)
            return status;
    }
    return KVERN_OK;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Positions of the cell that has the most.
static size_t largest_context(const model_options *options)
{
    size_t largest = 0;
    for (size_t i = 0; i < options->contexts.count; i++) {
        const size_t context = options->contexts.value[i];
        const size_t behind = (context ? context : 1) + options->generate;
        largest = larger(largest, larger(behind, context ? context : options->prompt));
    }
    return largest;
}

static kvern_status open_peers(model_run *run, size_t threads, engine_error *error)
{
    const bench_options *o = &run->options->bench;
    const size_t context = largest_context(run->options);
    for (size_t p = 0; p < run->peer_count; p++) {
        const char *storage = o->peer_storages.name[p];
        const peer_answer answer =
            peer_open_model(&run->peers[p], storage, threads, context, o->common.model);
        if (answer == PEER_GONE)
            return engine_fail(error, KVERN_ERR_ARGUMENT, "the peer %s stopped answering", o->peer);
    }
    return KVERN_OK;
}

static kvern_status open_threads(model_run *run, size_t threads, engine_error *error)
{
    cli_options common = run->options->bench.common;
    common.threads = threads;
    common.context = (int64_t)largest_context(run->options);
    kvern_status status = load_model(&common, &run->loaded, error);
    const size_t batch = run->options->batch, tokens = larger(SCHEDULE_CHUNK, batch);
    if (!status && kvern_state_create(run->loaded.composition, batch, &run->state))
        status = engine_fail_kvern(error, KVERN_ERR_MEMORY, "making the KV cache");
    if (!status)
        status = model_workspace_create(run->loaded.model, tokens, batch, &run->workspace, error);
    if (status)
        return status;
    storage_text(&common.storage, model_get_facts(run->loaded.model), run->storage);
    run->logits = malloc(batch * model_get_facts(run->loaded.model)->vocabulary * sizeof(float));
    run->tokens = malloc(tokens * sizeof(int32_t));
    if (!run->logits || !run->tokens)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory");
    return open_peers(run, threads, error);
}

static void close_threads(model_run *run)
{
    for (size_t p = 0; p < run->peer_count; p++)
        peer_close(&run->peers[p]);
    free(run->logits);
    free(run->tokens);
    model_workspace_destroy(run->workspace);
    kvern_state_destroy(run->state);
    unload_model(&run->loaded);
    run->logits = NULL;
    run->tokens = NULL;
    run->workspace = NULL;
    run->state = NULL;
}

// All contexts at one number of threads, in rounds.
static kvern_status measure_threads(model_run *run, size_t threads, model_cell *cells,
                                    engine_error *error)
{
    const number_list *contexts = &run->options->contexts;
    const size_t count = contexts->count;
    kvern_status status = open_threads(run, threads, error);
    progress bar = progress_start("measuring", "cells");
    for (size_t i = 0; i < count * run->runs && !status; i++) {
        model_cell *cell = &cells[i % count];
        progress_update(&bar, i, count * run->runs);
        cell->context = contexts->value[i % count];
        cell->threads = threads;
        status = time_own(run, cell, i / count, error);
        if (!status)
            measure_limit(run, cell, i / count);
        if (!status)
            status = time_peers(run, cell, i / count, error);
    }
    progress_end(&bar);
    close_threads(run);
    return status;
}

typedef struct speed {
    double median, low, high;
} speed;

static speed speed_of(const model_run *run, double *samples)
{
    return (speed){clock_quantile(samples, run->runs, 0.5), clock_quantile(samples, run->runs, 0),
                   clock_quantile(samples, run->runs, 1)};
}

static void print_speeds(const char *storage, speed prompt, speed generation)
{
    printf(" %8s %10.1f %8.1f-%-8.1f %10.1f %8.1f-%-8.1f", storage, prompt.median, prompt.low,
           prompt.high, generation.median, generation.low, generation.high);
}

// One line for ours, one for each peer with how many times faster ours is.
static void print_cell(const model_run *run, const model_cell *c)
{
    const speed prompt = speed_of(run, c->own.prompt);
    const speed generation = speed_of(run, c->own.generation);
    printf("%8zu %7zu", c->context, c->threads);
    print_speeds("ours", prompt, generation);
    putchar('\n');
    for (size_t p = 0; p < run->peer_count; p++) {
        const char *storage = run->options->bench.peer_storages.name[p];
        const speed peer = speed_of(run, c->peers[p].prompt);
        const speed peer_generation = speed_of(run, c->peers[p].generation);
        printf("%16s", "");
        if (c->refusals[p][0]) {
            printf(" %8s refuses: %s\n", storage, c->refusals[p]);
            continue;
        }
        print_speeds(storage, peer, peer_generation);
        printf(" %5.2fx %5.2fx", prompt.median / peer.median,
               generation.median / peer_generation.median);
        if (isnan(c->difference[p]))
            puts("      -");
        else
            printf(" %6.4f\n", c->difference[p]);
    }
}

// Medians of all rounds and their smallest and largest values.
static json_t *speeds_json(const model_run *run, const model_speeds *speeds)
{
    const speed prompt = speed_of(run, speeds->prompt);
    const speed generation = speed_of(run, speeds->generation);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "prompt_tokens_per_s", prompt.median,
                     "prompt_low", prompt.low, "prompt_high", prompt.high,
                     "generation_tokens_per_s", generation.median, "generation_low", generation.low,
                     "generation_high", generation.high);
}

// A peer that refused says why; one without logits has no "difference".
static json_t *peer_json(const model_run *run, const model_cell *c, size_t p)
{
    const char *storage = run->options->bench.peer_storages.name[p];
    if (c->refusals[p][0])
        return json_pack("{s:s, s:s}", "storage", storage, "refused", c->refusals[p]);
    json_t *peer = speeds_json(run, &c->peers[p]);
    json_object_set_new(peer, "storage", json_string(storage));
    if (!isnan(c->difference[p]))
        json_object_set_new(peer, "difference", json_real(c->difference[p]));
    return peer;
}

static json_t *cell_json(const model_run *run, const model_cell *c)
{
    json_t *peers = json_array();
    for (size_t p = 0; p < run->peer_count; p++)
        json_array_append_new(peers, peer_json(run, c, p));
    json_t *cell = speeds_json(run, &c->own);
    json_object_set_new(cell, "ctx", json_integer((json_int_t)c->context));
    json_object_set_new(cell, "threads", json_integer((json_int_t)c->threads));
    json_object_set_new(cell, "batch", json_integer((json_int_t)run->options->batch));
    json_object_set_new(cell, "bytes_per_token", json_real(c->bytes_per_token));
    json_object_set_new(cell, "limit_bytes_per_s",
                        json_real(clock_quantile(c->bandwidth, run->runs, 0.5)));
    json_object_set_new(cell, "peers", peers);
    return cell;
}

static int print_cells(const model_run *run)
{
    if (run->options->bench.common.json) {
        json_t *list = json_array();
        for (size_t i = 0; i < run->cell_count; i++)
            json_array_append_new(list, cell_json(run, &run->cells[i]));
        return json_print(json_pack("{s:s, s:s, s:o}", "kv", run->storage, "peer",
                                    run->peer_count ? run->peers[0].name : "", "cells", list));
    }
    printf("%8s %7s %8s %10s %17s %10s %17s%s\n", "context", "threads", "storage", "prompt/s",
           "low-high", "generate/s", "low-high", run->peer_count ? "  ratios        differ" : "");
    for (size_t i = 0; i < run->cell_count; i++)
        print_cell(run, &run->cells[i]);
    printf("our KV cache: %s\n", run->storage);
    return CLI_SUCCESS;
}

// Gives every cell its place in one array of samples.
static bool take_cells(model_run *run)
{
    const model_options *o = run->options;
    const size_t per_cell = (2 * (1 + run->peer_count) + 1) * run->runs;
    run->cell_count = o->contexts.count * o->bench.threads.count;
    run->cells = calloc(run->cell_count, sizeof *run->cells);
    run->samples = calloc(run->cell_count * per_cell, sizeof *run->samples);
    if (!run->cells || !run->samples)
        return false;
    double *at = run->samples;
    for (size_t i = 0; i < run->cell_count; i++) {
        for (size_t p = 0; p <= run->peer_count; p++) {
            model_speeds *speeds = p ? &run->cells[i].peers[p - 1] : &run->cells[i].own;
            *speeds = (model_speeds){at, at + run->runs};
            at += 2 * run->runs;
        }
        run->cells[i].bandwidth = at;
        at += run->runs;
    }
    return true;
}

static int measure_all(model_run *run)
{
    const model_options *o = run->options;
    engine_error error;
    if (!take_cells(run) || !roofline_open(COLD_BYTES, &run->buffer))
        return report_error("no memory");
    for (size_t t = 0; t < o->bench.threads.count; t++)
        if (measure_threads(run, o->bench.threads.value[t], run->cells + t * o->contexts.count,
                            &error))
            return report_engine_error(&error);
    return print_cells(run);
}

int bench_model(int argc, char **argv)
{
    model_options options = {.bench = {.threads = {2, {1, 2}}, .runs = 3},
                             .contexts = {2, {0, 2048}},
                             .batch = 1,
                             .prompt = 512,
                             .generate = 32};
    options_parse(&MODEL_ARGP, argc, argv, &options.bench.common);
    peer_process peers[BENCH_MOST_NAMES], *starting[BENCH_MOST_NAMES];
    model_run run = {.options = &options, .peers = peers};
    run.runs = options.bench.runs;
    for (size_t i = 0; i < BENCH_MOST_NAMES; i++)
        starting[i] = &peers[i];
    int code = bench_start_peers(&options.bench, starting, options.bench.peer_storages.count);
    if (code != CLI_SUCCESS)
        return code;
    run.peer_count = options.bench.peer_storages.count;
    code = measure_all(&run);
    for (size_t i = 0; i < run.peer_count; i++)
        peer_stop(&peers[i]);
    roofline_close(&run.buffer);
    free(run.cells);
    free(run.samples);
    return code;
}
