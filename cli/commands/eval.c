// SPDX-License-Identifier: MIT
// kvern eval: what storing the KV cache in fewer bits costs a model.

#include "cli/commands/command.h"
#include "cli/commands/divergence.h"
#include "cli/io/json.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"
#include "cli/io/text.h"
#include "cli/options/prompt.h"
#include "cli/options/storage_options.h"
#include "cli/session/model_loading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WINDOW 1024
#define MOST_STORAGES 32

// Logits of a forward pass that are held at once, per storage.
#define MOST_LOGITS ((size_t)4 << 20)
#define MOST_STEP 64

enum { KEY_TEXT = OPTIONS_KEY_COMMAND, KEY_LIST, KEY_WINDOWS };

typedef struct eval_options {
    cli_options common; // its context: tokens of a window
    const char *text;
    size_t windows; // most of them; 0: the whole text
    storage_options storages[MOST_STORAGES];
    size_t storage_count;
} eval_options;

// "bf16,q8,q8/q4,kv_config.json"
static void parse_list(const struct argp_state *state, char *list, eval_options *options)
{
    char *rest = list;
    options->storage_count = 0;
    memset(options->storages, 0, sizeof options->storages);
    for (char *item; (item = strsep(&rest, ","));) {
        if (options->storage_count == MOST_STORAGES) {
            options_fail(state, "--kv takes %d storages at most", MOST_STORAGES);
        }
        storage_options *storage = &options->storages[options->storage_count++];
        const size_t length = strlen(item);
        if (length > 5 && strcmp(item + length - 5, ".json") == 0) {
            storage->config = item;
        } else if (!storage_parse(item, storage)) {
            options_fail(state,
                         "--kv takes a list of " STORAGE_CODECS
                         ", pairs such as q8/q4, " STORAGE_PRESETS
                         ", or kv_config.json files, not '%s'",
                         item);
        }
    }
}

// What the other options say holds for every storage of the list.
static void complete_storages(eval_options *options)
{
    const storage_options *common = &options->common.storage;
    if (options->storage_count == 0) {
        options->storage_count = 1;
    }
    for (size_t i = 0; i < options->storage_count; i++) {
        storage_options *storage = &options->storages[i];
        storage->group = common->group;
        storage->has_start = common->has_start;
        storage->start = common->start;
        storage->first = common->first;
        storage->last = common->last;
        storage->has_residual = common->has_residual;
        storage->residual = common->residual;
        storage->has_sinks = common->has_sinks;
        storage->sinks = common->sinks;
        storage->rotated_latents = common->rotated_latents;
    }
}

static error_t parse_eval(int key, char *argument, struct argp_state *state)
{
    eval_options *options = state->input;
    switch (key) {
    case KEY_TEXT:
        options->text = argument;
        return 0;
    case KEY_LIST:
        parse_list(state, argument, options);
        return 0;
    case 'c':
        options->common.context = (int64_t)options_number(state, "--ctx", argument, 1, INT32_MAX);
        return 0;
    case KEY_WINDOWS:
        options->windows = options_number(state, "--windows", argument, 1, INT32_MAX);
        return 0;
    case ARGP_KEY_END:
        if (!options->text) {
            options_fail(state, "no text given (--text FILE)");
        }
        complete_storages(options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option EVAL_OPTIONS[] = {
    {.name = "text", .key = KEY_TEXT, .arg = "FILE", .doc = "The text; - is standard input"},
    {.name = "kv",
     .key = KEY_LIST,
     .arg = "LIST",
     .doc = "Storages of the KV cache, a row each: " STORAGE_CODECS ", q8/q4 for keys "
            "and values apart, " STORAGE_PRESETS ", or a kv_config.json; default: bf16"},
    {.name = "ctx",
     .key = 'c',
     .arg = "N",
     .doc = "Tokens of a window, at most the model's context (default: 1024)"},
    {.name = "ctx-size", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "windows",
     .key = KEY_WINDOWS,
     .arg = "N",
     .doc = "Stop after N windows (default: the whole text)"},
    {0}};

static const struct argp_child EVAL_CHILDREN[] = {{.argp = &options_model_argp},
                                                  {.argp = &options_budget_argp},
                                                  {.argp = &options_storage_argp},
                                                  {.argp = &options_threads_argp},
                                                  {.argp = &options_json_argp},
                                                  {.argp = &options_quiet_argp},
                                                  {0}};

static const struct argp EVAL_ARGP = {
    .options = EVAL_OPTIONS,
    .parser = parse_eval,
    .args_doc = "MODEL",
    .doc = "Measures what a storage of the KV cache costs a model: the perplexity of a text, and "
           "against the same model with bf16 the KL divergence of its predictions (mean, 99% of "
           "all positions, largest; in nats) and how often the most likely token is the same."
           "\v"
           "  kvern eval MODEL --text wiki.txt --kv bf16,q8,q4\n"
           "  kvern eval MODEL --text wiki.txt --kv q8/q4,kv_config.json --windows 20\n\n"
           "The text is cut into windows of --ctx tokens, each begun anew; the "
           "second half of a window is scored, the first half is its context.",
    .children = EVAL_CHILDREN,
};

// One storage under test.
typedef struct eval_row {
    const storage_options *storage;
    kvern_composition *composition;
    kvern_state *state;
    divergence result;
} eval_row;

typedef struct eval_run {
    const eval_options *options;
    loaded_model loaded;
    eval_row rows[MOST_STORAGES + 1]; // the last one: bf16, the reference
    size_t row_count;                 // without the reference
    model_workspace *workspace;
    token_buffer ids;
    size_t window, windows, step, vocabulary;
    int32_t *tokens;              // [window]
    float *reference, *candidate; // [step, vocabulary]
} eval_run;

static kvern_status read_text(eval_run *run, engine_error *error)
{
    const tokenizer *tokens = model_tokenizer(run->loaded.model);
    text_buffer text = TEXT_BUFFER_INIT;
    if (!tokens) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED, "%s has no tokenizer",
                           run->options->common.model);
    }
    kvern_status status = text_read_file(run->options->text, &text, error);
    if (status == KVERN_OK) {
        status = tokenizer_encode(tokens, text.data, text.size, 0, &run->ids, error);
    }
    text_buffer_free(&text);
    return status;
}

// A window's first token is the beginning of a sequence for models that want one.
static size_t text_tokens(const eval_run *run)
{
    return run->window - tokenizer_adds_bos(model_tokenizer(run->loaded.model));
}

static kvern_status choose_windows(eval_run *run, engine_error *error)
{
    const int64_t wanted = run->options->common.context;
    const size_t most = model_get_facts(run->loaded.model)->context_length;
    run->window = wanted ? (size_t)wanted : DEFAULT_WINDOW;
    run->window = run->window < most ? run->window : most;
    if (run->window < 4) {
        return engine_fail(error, KVERN_ERR_RANGE, "--ctx %zu leaves nothing to score",
                           run->window);
    }
    run->windows = run->ids.count / text_tokens(run);
    if (run->windows == 0) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "the text has %zu tokens, less than one window of %zu", run->ids.count,
                           run->window);
    }
    if (run->options->windows && run->options->windows < run->windows) {
        run->windows = run->options->windows;
    }
    return KVERN_OK;
}

static kvern_status make_row(eval_run *run, eval_row *row, const storage_options *storage,
                             engine_error *error)
{
    row->storage = storage;
    kvern_status status = storage_composition(storage, model_get_facts(run->loaded.model),
                                              run->loaded.context, true, &row->composition, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_state_create(row->composition, 1, &row->state);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "making a KV cache");
}

static kvern_status make_rows(eval_run *run, engine_error *error)
{
    static const storage_options bf16 = {0};
    kvern_status status = make_row(run, &run->rows[MOST_STORAGES], &bf16, error);
    while (status == KVERN_OK && run->row_count < run->options->storage_count) {
        const size_t i = run->row_count++;
        status = make_row(run, &run->rows[i], &run->options->storages[i], error);
    }
    return status;
}

// Whether all storages fit the budget beside each other; a window begins by giving the room back.
static kvern_status check_room(eval_run *run, engine_error *error)
{
    const size_t heads = model_get_facts(run->loaded.model)->heads * run->step;
    for (size_t r = 0; r <= MOST_STORAGES; r++) {
        if (run->rows[r].state &&
            kvern_state_reserve(run->rows[r].state, 0, (int64_t)run->window, heads) != KVERN_OK) {
            return engine_fail_kvern(error, KVERN_ERR_BUDGET,
                                     "making room for a window of every storage");
        }
    }
    return KVERN_OK;
}

static kvern_status make_room(eval_run *run, engine_error *error)
{
    run->vocabulary = model_get_facts(run->loaded.model)->vocabulary;
    run->step = MOST_LOGITS / run->vocabulary;
    run->step = run->step < 1 ? 1 : run->step > MOST_STEP ? MOST_STEP : run->step;
    run->tokens = calloc(run->window, sizeof *run->tokens);
    run->reference = calloc(run->step, run->vocabulary * sizeof(float));
    run->candidate = calloc(run->step, run->vocabulary * sizeof(float));
    if (!run->tokens || !run->reference || !run->candidate) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the logits of %zu positions",
                           2 * run->step);
    }
    kvern_status status = check_room(run, error);
    return status == KVERN_OK
               ? model_workspace_create(run->loaded.model, run->step, 1, &run->workspace, error)
               : status;
}

// Forwards tokens [from, from + count) of the window; logits only where they are scored.
static kvern_status forward(eval_run *run, eval_row *row, size_t from, size_t count, bool scored,
                            float *logits, engine_error *error)
{
    const int64_t counts = (int64_t)count, wanted = scored ? counts : 0;
    const model_step step = {.phase = KVERN_PHASE_WINDOW,
                             .tokens = run->tokens + from,
                             .counts = &counts,
                             .logits = scored ? logits : NULL,
                             .logits_counts = &wanted};
    return model_forward(run->loaded.model, run->workspace, row->state, &step, error);
}

// One step of all storages: the reference first, since the others are compared with it.
static kvern_status step_all(eval_run *run, size_t from, size_t count, bool scored,
                             engine_error *error)
{
    kvern_status status =
        forward(run, &run->rows[MOST_STORAGES], from, count, scored, run->reference, error);
    for (size_t r = 0; r < run->row_count && status == KVERN_OK; r++) {
        status = forward(run, &run->rows[r], from, count, scored, run->candidate, error);
        for (size_t i = 0; scored && i < count && status == KVERN_OK; i++) {
            if (from + i + 1 == run->window) {
                break; // nothing follows the window's last token
            }
            status = divergence_add(&run->rows[r].result, run->reference + i * run->vocabulary,
                                    run->candidate + i * run->vocabulary, run->vocabulary,
                                    run->tokens[from + i + 1], error);
        }
    }
    return status;
}

// Where the next step from `from` on ends: at a half, and where a storage changes its precision, so
// that the size of steps does not decide where that is.
static size_t step_end(const eval_run *run, size_t from)
{
    const size_t half = run->window / 2;
    size_t end = from + run->step < run->window ? from + run->step : run->window;
    end = from < half && end > half ? half : end;
    for (size_t r = 0; r < run->row_count; r++) {
        const uint64_t most = (uint64_t)kvern_state_max_append(run->rows[r].state, 0);
        end = end - from > most ? from + (size_t)most : end;
    }
    return end;
}

static void load_window(eval_run *run, size_t index)
{
    const tokenizer *tokens = model_tokenizer(run->loaded.model);
    const size_t begin = tokenizer_adds_bos(tokens);
    if (begin) {
        run->tokens[0] = tokenizer_bos(tokens);
    }
    memcpy(run->tokens + begin, run->ids.ids + index * text_tokens(run),
           text_tokens(run) * sizeof *run->tokens);
}

static kvern_status run_window(eval_run *run, size_t index, progress *bar, engine_error *error)
{
    kvern_status status = kvern_state_reset(run->rows[MOST_STORAGES].state, 0);
    for (size_t r = 0; r < run->row_count && status == KVERN_OK; r++) {
        status = kvern_state_reset(run->rows[r].state, 0);
    }
    load_window(run, index);
    for (size_t from = 0; from < run->window && status == KVERN_OK;) {
        const size_t end = step_end(run, from);
        status = step_all(run, from, end - from, from >= run->window / 2, error);
        from = end;
        progress_update(bar, index * run->window + from, run->windows * run->window);
    }
    return status;
}

static kvern_status evaluate(eval_run *run, engine_error *error)
{
    progress bar = progress_start("evaluating", "tokens");
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < run->windows && status == KVERN_OK; i++) {
        status = run_window(run, i, &bar, error);
    }
    progress_end(&bar);
    return status;
}

static kvern_status prepare(const eval_options *options, eval_run *run, engine_error *error)
{
    run->options = options;
    cli_options loading = options->common;
    loading.context = 0; // a window may be longer than the model's context: it is cut to that
    kvern_status status = load_model(&loading, &run->loaded, error);
    if (status == KVERN_OK) {
        status = read_text(run, error);
    }
    if (status == KVERN_OK) {
        status = choose_windows(run, error);
    }
    if (status == KVERN_OK) {
        status = make_rows(run, error);
    }
    return status == KVERN_OK ? make_room(run, error) : status;
}

static void discard(eval_run *run)
{
    for (size_t r = 0; r <= MOST_STORAGES; r++) {
        kvern_state_destroy(run->rows[r].state);
        kvern_composition_release(run->rows[r].composition);
        divergence_free(&run->rows[r].result);
    }
    model_workspace_destroy(run->workspace);
    token_buffer_free(&run->ids);
    free(run->tokens);
    free(run->reference);
    free(run->candidate);
    unload_model(&run->loaded);
}

static double mean_of(const divergence *d)
{
    return d->sum / (double)d->count;
}

static double same_top(const divergence *d)
{
    return (double)d->same_top / (double)d->count;
}

// Bytes of a number that the reference, which is dense, stores in a layer of positions; 0: the
// layer has none.
static size_t reference_bytes(const kvern_layer *layer)
{
    const kvern_codec *codec =
        layer->kind == KVERN_LAYER_LATENT ? &layer->latent_codec : &layer->k_codec;
    return layer->kind == KVERN_LAYER_RECURRENT ? 0 : kvern_type_bytes((kvern_type)codec->kind);
}

// The mean bits of a stored number in the pages that hold the last window, precise positions
// included: the reference's pages tell how many numbers that are.
static double mean_bits(const eval_run *run, const eval_row *row)
{
    const eval_row *reference = &run->rows[MOST_STORAGES];
    double bytes = 0, numbers = 0;
    for (size_t i = 0; i < kvern_composition_layers(reference->composition); i++) {
        const size_t size = reference_bytes(kvern_composition_layer(reference->composition, i));
        if (size > 0) {
            bytes += (double)kvern_cache_bytes(kvern_state_cache(row->state, i));
            numbers +=
                (double)kvern_cache_bytes(kvern_state_cache(reference->state, i)) / (double)size;
        }
    }
    return numbers > 0 ? 8 * bytes / numbers : 0;
}

static void print_table(eval_run *run)
{
    printf("%-16s %10s %10s %10s %10s %9s %6s %12s\n", "kv", "ppl", "kld mean", "kld 99%",
           "kld max", "same top", "bits", "bytes/token");
    for (size_t r = 0; r < run->row_count; r++) {
        divergence *d = &run->rows[r].result;
        char name[STORAGE_TEXT];
        printf("%-16s %10.4f %10.6f %10.6f %10.6f %8.2f%% %6.2f %12" PRIu64 "\n",
               storage_text(run->rows[r].storage, model_get_facts(run->loaded.model), name),
               divergence_perplexity(d), mean_of(d), divergence_quantile(d, 0.99), d->largest,
               100 * same_top(d), mean_bits(run, &run->rows[r]),
               kvern_composition_bytes_per_token(run->rows[r].composition));
    }
    printf("%zu windows of %zu tokens, %zu positions scored\n", run->windows, run->window,
           run->rows[0].result.count);
}

static int print_json(eval_run *run)
{
    json_t *rows = json_array();
    for (size_t r = 0; r < run->row_count; r++) {
        divergence *d = &run->rows[r].result;
        char name[STORAGE_TEXT];
        json_array_append_new(
            rows,
            json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "kv",
                      storage_text(run->rows[r].storage, model_get_facts(run->loaded.model), name),
                      "ppl", divergence_perplexity(d), "kld_mean", mean_of(d), "kld_p99",
                      divergence_quantile(d, 0.99), "kld_max", d->largest, "same_top", same_top(d),
                      "kv_bits", mean_bits(run, &run->rows[r]), "kv_bytes_per_token",
                      (json_int_t)kvern_composition_bytes_per_token(run->rows[r].composition)));
    }
    return json_print(json_pack("{s:I, s:I, s:I, s:o}", "windows", (json_int_t)run->windows,
                                "window", (json_int_t)run->window, "positions",
                                (json_int_t)run->rows[0].result.count, "rows", rows));
}

static int run_eval(int argc, char **argv)
{
    static eval_options options;
    static eval_run run;
    engine_error error = {0};
    options_parse(&EVAL_ARGP, argc, argv, &options.common);
    int code = CLI_SUCCESS;
    kvern_status status = prepare(&options, &run, &error);
    if (status == KVERN_OK) {
        status = evaluate(&run, &error);
    }
    if (status != KVERN_OK) {
        code = report_engine_error(&error);
    } else if (options.common.json) {
        code = print_json(&run);
    } else {
        print_table(&run);
    }
    discard(&run);
    return code;
}

const command command_eval = {
    .name = "eval",
    .title = "kvern eval",
    .summary = "measure what a storage of the KV cache costs",
    .run = run_eval,
};
