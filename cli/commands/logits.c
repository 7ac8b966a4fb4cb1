// SPDX-License-Identifier: MIT
// kvern logits: the logits of every position of a text, as a NumPy file.

#include "cli/commands/command.h"
#include "cli/io/json.h"
#include "cli/io/npy.h"
#include "cli/io/number.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"
#include "cli/options/prompt.h"
#include "cli/session/model_loading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Logits of so many positions are held at once: 12 MB with a vocabulary of 49,152 tokens.
#define DEFAULT_CHUNK 64

enum { KEY_TOKENS = OPTIONS_KEY_COMMAND, KEY_OUT, KEY_CHUNK };

typedef struct logits_options {
    cli_options common;
    token_buffer tokens; // of --tokens
    const char *out;
    size_t chunk;
} logits_options;

// "1,2,3"
static void parse_tokens(const struct argp_state *state, const char *text, token_buffer *tokens)
{
    tokens->count = 0;
    for (;;) {
        char number[16];
        size_t length = strcspn(text, ",");
        uint64_t id = 0;
        snprintf(number, sizeof number, "%.*s", (int)(length < 15 ? length : 15), text);
        if (!number_parse(number, INT32_MAX, &id)) {
            options_fail(state, "--tokens takes token numbers such as 1,2,3, not '%.*s'",
                         (int)(length < 100 ? length : 100), text);
        }
        if (token_buffer_push(tokens, (int32_t)id) != KVERN_OK) {
            options_fail(state, "--tokens: no memory");
        }
        if (!text[length]) {
            return;
        }
        text += length + 1;
    }
}

static void check_logits(struct argp_state *state, const logits_options *options)
{
    bool text = options->common.prompt || options->common.file;
    if (options->tokens.count && (text || options->common.template_name)) {
        options_fail(state, "--tokens cannot be used with -p, -f or --template");
    }
    if (!options->tokens.count && prompt_is_missing(&options->common)) {
        options_fail(state, "no text given: use -p TEXT, -f FILE, --tokens 1,2,3 or "
                            "standard input");
    }
    if (!options->out) {
        options_fail(state, "no output file given (--out FILE)");
    }
}

static error_t parse_logits(int key, char *argument, struct argp_state *state)
{
    logits_options *options = state->input;
    switch (key) {
    case KEY_TOKENS:
        parse_tokens(state, argument, &options->tokens);
        return 0;
    case KEY_OUT:
        options->out = argument;
        return 0;
    case KEY_CHUNK:
        options->chunk = options_number(state, "--chunk", argument, 1, INT32_MAX);
        return 0;
    case ARGP_KEY_END:
        check_logits(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option LOGITS_OPTIONS[] = {
    {.name = "tokens", .key = KEY_TOKENS, .arg = "1,2,3", .doc = "Token numbers instead of a text"},
    {.name = "out", .key = KEY_OUT, .arg = "FILE", .doc = "The file to write, usually NAME.npy"},
    {.name = "chunk",
     .key = KEY_CHUNK,
     .arg = "N",
     .doc = "Compute N positions at a time (default: 64); 1 decodes token by token. The numbers do "
            "not depend on it, memory and speed do"},
    {0}};

static const struct argp_child LOGITS_CHILDREN[] = {{.argp = &options_model_argp},
                                                    {.argp = &options_text_argp},
                                                    {.argp = &options_template_argp},
                                                    {.argp = &options_context_argp},
                                                    {.argp = &options_budget_argp},
                                                    {.argp = &options_codec_argp},
                                                    {.argp = &options_storage_argp},
                                                    {.argp = &options_threads_argp},
                                                    {.argp = &options_json_argp},
                                                    {.argp = &options_quiet_argp},
                                                    {0}};

static const struct argp LOGITS_ARGP = {
    .options = LOGITS_OPTIONS,
    .parser = parse_logits,
    .args_doc = "MODEL --out FILE",
    .doc = "Writes the logits of every position of a text as a NumPy file: float32, "
           "[positions, vocabulary]; row i follows from the tokens up to i."
           "\v"
           "  kvern logits MODEL -f text.txt --out logits.npy\n"
           "  kvern logits MODEL --tokens 1,2,3 --out logits.npy\n\n"
           "The text is that of -p, -f or standard input, used as it is, control tokens "
           "recognised, unless --template says otherwise. The file appears when it is whole; a "
           "failure leaves none.",
    .children = LOGITS_CHILDREN,
};

// What one run works with.
typedef struct logits_run {
    const logits_options *options;
    const model *model;
    token_buffer ids;
    size_t chunk;
    size_t vocabulary;
    kvern_state *state;
    model_workspace *workspace;
    float *values; // [chunk, vocabulary]
    npy_writer *file;
    double seconds;
} logits_run;

static kvern_status read_tokens(logits_run *run, const cli_options *options, engine_error *error)
{
    if (run->options->tokens.count) {
        run->ids = run->options->tokens;
        return KVERN_OK;
    }
    const tokenizer *tokens = model_tokenizer(run->model);
    if (!tokens) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s has no tokenizer; --tokens takes numbers", options->model);
    }
    text_buffer text = TEXT_BUFFER_INIT;
    kvern_status status = prompt_read(options, &text, error);
    if (status == KVERN_OK) {
        status = prompt_encode_plain(options, tokens, &text, &run->ids, error);
    }
    text_buffer_free(&text);
    return status;
}

// Before anything is computed or written.
static kvern_status check_tokens(const logits_run *run, size_t context, engine_error *error)
{
    if (run->ids.count == 0) {
        return engine_fail(error, KVERN_ERR_RANGE, "the text is empty");
    }
    if (run->ids.count > context) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "the text has %zu tokens, more than the context of %zu", run->ids.count,
                           context);
    }
    for (size_t i = 0; i < run->ids.count; i++) {
        if ((size_t)run->ids.ids[i] >= run->vocabulary) {
            return engine_fail(error, KVERN_ERR_RANGE,
                               "token %" PRId32 " is outside the vocabulary of %zu tokens",
                               run->ids.ids[i], run->vocabulary);
        }
    }
    return KVERN_OK;
}

static kvern_status make_room(logits_run *run, const loaded_model *loaded, engine_error *error)
{
    size_t wanted = run->options->chunk ? run->options->chunk : DEFAULT_CHUNK;
    run->chunk = wanted < run->ids.count ? wanted : run->ids.count;
    run->values = calloc(run->chunk, run->vocabulary * sizeof *run->values);
    if (!run->values) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the logits of %zu positions",
                           run->chunk);
    }
    kvern_status status = kvern_state_create(loaded->composition, 1, &run->state);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "making the KV cache");
    }
    return model_workspace_create(run->model, run->chunk, 1, &run->workspace, error);
}

static kvern_status compute_chunk(logits_run *run, size_t from, size_t count, engine_error *error)
{
    int64_t counts = (int64_t)count;
    model_step step = {
        .phase = run->chunk == 1 ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW,
        .tokens = run->ids.ids + from,
        .counts = &counts,
        .logits = run->values,
        .logits_counts = &counts,
    };
    kvern_status status = model_forward(run->model, run->workspace, run->state, &step, error);
    return status == KVERN_OK ? npy_write_rows(run->file, run->values, count, error) : status;
}

static kvern_status compute(logits_run *run, engine_error *error)
{
    progress bar = progress_start("logits", "tokens");
    double started = number_seconds();
    kvern_status status = KVERN_OK;
    for (size_t done = 0; done < run->ids.count && status == KVERN_OK;) {
        size_t left = run->ids.count - done;
        size_t count = run->chunk < left ? run->chunk : left;
        uint64_t most = (uint64_t)kvern_state_max_append(run->state, 0);
        count = count < most ? count : (size_t)most; // precision changes where it should
        status = compute_chunk(run, done, count, error);
        done += count;
        progress_update(&bar, done, run->ids.count);
    }
    progress_end(&bar);
    run->seconds = number_seconds() - started;
    return status;
}

static kvern_status write_logits(logits_run *run, const loaded_model *loaded, engine_error *error)
{
    const logits_options *options = run->options;
    run->model = loaded->model;
    run->vocabulary = model_get_facts(run->model)->vocabulary;
    kvern_status status = read_tokens(run, &options->common, error);
    if (status == KVERN_OK) {
        status = check_tokens(run, loaded->context_length, error);
    }
    if (status == KVERN_OK) {
        status = make_room(run, loaded, error);
    }
    if (status == KVERN_OK) {
        status = npy_create(options->out, run->ids.count, run->vocabulary, &run->file, error);
    }
    if (status == KVERN_OK) {
        status = compute(run, error);
    }
    if (status == KVERN_OK) {
        status = npy_finish(run->file, error);
        run->file = NULL;
    }
    return status;
}

static int print_summary(const logits_run *run)
{
    double speed = number_per_second(run->ids.count, run->seconds);
    if (!run->options->common.json) {
        fprintf(stderr, "%zu positions of %zu logits in %.2f s, %.1f tokens/s\n", run->ids.count,
                run->vocabulary, run->seconds, speed);
        return CLI_SUCCESS;
    }
    const char *path = run->options->out;
    return json_print(json_pack("{s:o, s:I, s:I, s:f, s:f}", "file", json_text(path, strlen(path)),
                                "positions", (json_int_t)run->ids.count, "vocabulary",
                                (json_int_t)run->vocabulary, "seconds", run->seconds,
                                "tokens_per_s", speed));
}

static void end_run(logits_run *run)
{
    npy_abandon(run->file);
    model_workspace_destroy(run->workspace);
    kvern_state_destroy(run->state);
    free(run->values);
    token_buffer_free(&run->ids);
}

static int run_logits(int argc, char **argv)
{
    logits_options options = {0};
    options_parse(&LOGITS_ARGP, argc, argv, &options.common);
    engine_error error;
    loaded_model loaded;
    if (load_model(&options.common, &loaded, &error) != KVERN_OK) {
        token_buffer_free(&options.tokens);
        return report_engine_error(&error);
    }
    logits_run run = {.options = &options};
    kvern_status status = write_logits(&run, &loaded, &error);
    int code = status == KVERN_OK ? print_summary(&run) : report_engine_error(&error);
    end_run(&run);
    unload_model(&loaded);
    return code;
}

const command command_logits = {
    .name = "logits",
    .title = "kvern logits",
    .summary = "write the logits of every position of a text as a NumPy file",
    .run = run_logits,
};
