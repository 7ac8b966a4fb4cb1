// SPDX-License-Identifier: MIT
#include "cli/batch/batch_job.h"

#include "cli/batch/batch_fingerprint.h"
#include "cli/batch/batch_input.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/io/signals.h"
#include "cli/io/text.h"

#include "engine/sampling/biases.h"

#include "engine/sampling/biases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A prompt that is being answered.
typedef struct batch_item {
    batch_job *job;
    size_t line;
    batch_prompt prompt;
    text_buffer text;
    logit_bias *biases; // of its sampler
} batch_item;

// ---- Lines ----

static bool is_blank(const char *line, size_t bytes)
{
    static const char blanks[] = {' ', '\t', '\r'};
    size_t spaces = 0;
    while (spaces < bytes && memchr(blanks, line[spaces], sizeof blanks)) {
        spaces++;
    }
    return spaces == bytes;
}

// The next line with something in it; false at the end.
static bool next_line(batch_job *job, const char **line, size_t *bytes)
{
    const text_buffer *text = &job->text;
    while (job->at < text->size) {
        *line = text->data + job->at;
        const char *newline = memchr(*line, '\n', text->size - job->at);
        *bytes = newline ? (size_t)(newline - *line) : text->size - job->at;
        job->at += *bytes + 1;
        job->line++;
        if (!is_blank(*line, *bytes)) {
            return true;
        }
    }
    return false;
}

// Some programs write a byte order mark in front of UTF-8; it belongs to no line.
static size_t skip_mark(const text_buffer *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t bytes = sizeof mark - 1;
    return text->size >= bytes && memcmp(text->data, mark, bytes) == 0 ? bytes : 0;
}

static size_t count_lines(batch_job *job)
{
    const char *line;
    size_t bytes, count = 0;
    job->at = skip_mark(&job->text);
    while (next_line(job, &line, &bytes)) {
        count++;
    }
    job->at = skip_mark(&job->text);
    job->line = 0;
    return count;
}

static void report_line(batch_job *job, size_t line, const char *what)
{
    progress_end(&job->bar);
    report_error("%s, line %zu: %s", job->options->prompts, line, what);
}

// ---- Life ----

static kvern_status read_prompts(batch_job *job, engine_error *error)
{
    const batch_options *options = job->options;
    if (batch_output_same(options->out, options->prompts)) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "--prompts and --out are the same file");
    }
    kvern_status status = text_read_file(options->prompts, &job->text, error);
    if (status != KVERN_OK) {
        return status;
    }
    job->seen = json_object();
    job->unknown = json_object();
    job->lines = count_lines(job);
    return job->seen && job->unknown
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_MEMORY, "no memory for the job");
}

static kvern_status load(batch_job *job, engine_error *error)
{
    const session_options *options = &job->options->session;
    kvern_status status = served_model_open(options, &job->served, error);
    if (status != KVERN_OK) {
        return status;
    }
    const schedule_options wanted =
        served_model_schedule(&job->served, options, job->options->parallel);
    return schedule_create(job->served.loaded.model, job->served.loaded.composition, &wanted,
                           &job->schedule, error);
}

// The file of results comes last: whatever fails before neither makes it nor changes it.
kvern_status batch_job_open(const batch_options *options, batch_job *job, engine_error *error)
{
    *job = (batch_job){.options = options, .output = {.fd = -1}};
    kvern_status status = read_prompts(job, error);
    if (status == KVERN_OK) {
        status = load(job, error);
    }
    char fingerprint[BATCH_FINGERPRINT_TEXT];
    if (status == KVERN_OK) {
        status = batch_fingerprint(&options->session, &job->served.loaded, job->served.chat,
                                   fingerprint, error);
    }
    if (status == KVERN_OK) {
        status = batch_output_open(options->out, fingerprint, &job->output, error);
    }
    if (status != KVERN_OK) {
        (void)!batch_job_close(job, NULL);
    }
    return status;
}

kvern_status batch_job_close(batch_job *job, engine_error *error)
{
    schedule_destroy(job->schedule); // tells of the ends of what still runs
    served_model_close(&job->served);
    json_decref(job->seen);
    json_decref(job->unknown);
    text_buffer_free(&job->text);
    kvern_status status = batch_output_close(&job->output, error);
    *job = (batch_job){.output = {.fd = -1}};
    return status;
}

// ---- Answers ----

static void free_item(batch_item *item)
{
    batch_prompt_free(&item->prompt);
    text_buffer_free(&item->text);
    free(item->biases);
    free(item);
}

static kvern_status keep_text(void *user, const char *text, size_t bytes)
{
    batch_item *item = user;
    return text_buffer_append(&item->text, text, bytes);
}

static kvern_status write_answer(batch_item *item, const schedule_result *result,
                                 engine_error *error)
{
    return batch_output_write(&item->job->output,
                              json_pack("{s:O, s:o, s:s, s:I, s:I, s:s}", "id", item->prompt.id,
                                        "text", json_text(item->text.data, item->text.size),
                                        "finish", generate_reason_name(result->reason),
                                        "prompt_tokens", (json_int_t)result->prompt_tokens,
                                        "generated_tokens", (json_int_t)result->generated_tokens,
                                        "job", item->job->output.job),
                              error);
}

static void take_end(void *user, const schedule_result *result)
{
    batch_item *item = user;
    batch_job *job = item->job;
    job->active--;
    if (result->status != KVERN_OK) {
        job->failed++;
        report_line(job, item->line, result->error);
    } else if (result->reason != GENERATE_CANCELLED && job->broken.status == KVERN_OK &&
               write_answer(item, result, &job->broken) == KVERN_OK) {
        job->done++;
    }
    free_item(item);
}

static kvern_status complete_sampling(batch_item *item, sampler_options *sampling,
                                      engine_error *error)
{
    const chat_request *asked = &item->prompt.request;
    const tokenizer *tokens = model_tokenizer(item->job->served.loaded.model);
    *sampling = asked->sampling;
    if (!sampling_biases(sampling->biases, sampling->bias_count, asked->ignore_eos ? tokens : NULL,
                         &item->biases, &sampling->bias_count)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to sample with");
    }
    sampling->biases = item->biases;
    return KVERN_OK;
}

static kvern_status submit(batch_item *item, engine_error *error)
{
    batch_job *job = item->job;
    const batch_prompt *prompt = &item->prompt;
    token_buffer tokens = TOKEN_BUFFER_INIT;
    sampler_options sampling;
    kvern_status status = complete_sampling(item, &sampling, error);
    if (status == KVERN_OK) {
        status = batch_prompt_encode(prompt, model_tokenizer(job->served.loaded.model),
                                     job->served.chat, &tokens, error);
    }
    if (status == KVERN_OK) {
        const schedule_request request = {.tokens = tokens.ids,
                                          .count = tokens.count,
                                          .max_tokens = prompt->request.max_tokens,
                                          .sampling = sampling,
                                          .stops = prompt->request.stops,
                                          .stop_count = prompt->request.stop_count,
                                          .user = item,
                                          .on_text = keep_text,
                                          .on_end = take_end};
        uint64_t id;
        status = schedule_submit(job->schedule, &request, &id, error);
    }
    token_buffer_free(&tokens);
    return status;
}

// ---- Feeding ----

// Whether the id is new in the file of prompts; it is remembered.
static kvern_status remember_id(batch_item *item, engine_error *error)
{
    json_t *seen = item->job->seen;
    const json_t *before = json_object_get(seen, item->prompt.key);
    if (before) {
        return engine_fail(error, KVERN_ERR_FORMAT, "the id is that of line %lld",
                           (long long)json_integer_value(before));
    }
    if (json_object_set_new_nocheck(seen, item->prompt.key, json_integer((json_int_t)item->line)) !=
        0) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the job");
    }
    return KVERN_OK;
}

static void report_key(void *user, const char *key)
{
    batch_item *item = user;
    char text[200];
    snprintf(text, sizeof text, "the key \"%.100s\" is unknown and has no effect", key);
    report_line(item->job, item->line, text);
}

// Takes a line in. *submitted: its answer will come. Otherwise it was done before.
static kvern_status take_prompt_line(batch_item *item, const char *line, size_t bytes,
                                     bool *submitted, engine_error *error)
{
    batch_job *job = item->job;
    *submitted = false;
    kvern_status status =
        batch_prompt_parse(line, bytes, &job->options->session, &item->prompt, error);
    if (status == KVERN_OK) {
        status = remember_id(item, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    batch_prompt_unknown(&item->prompt, job->unknown, report_key, item);
    if (batch_output_has(&job->output, item->prompt.key)) {
        job->skipped++;
        return KVERN_OK;
    }
    status = submit(item, error);
    *submitted = status == KVERN_OK;
    return status;
}

static void feed_line(batch_job *job, const char *line, size_t bytes)
{
    engine_error error;
    bool submitted;
    batch_item *item = calloc(1, sizeof *item);
    if (!item) {
        (void)!engine_fail(&job->broken, KVERN_ERR_MEMORY, "no memory for a prompt");
        return;
    }
    *item = (batch_item){.job = job, .line = job->line};
    if (take_prompt_line(item, line, bytes, &submitted, &error) != KVERN_OK) {
        job->bad++;
        report_line(job, job->line, error.text);
    }
    if (submitted) {
        job->active++;
    } else {
        free_item(item);
    }
}

// As many prompts as fill the rows, and as many that wait: the next ones are there when rows leave.
static void feed(batch_job *job)
{
    const char *line;
    size_t bytes;
    while (job->broken.status == KVERN_OK && job->active < 2 * job->options->parallel &&
           next_line(job, &line, &bytes)) {
        feed_line(job, line, bytes);
    }
}

static void show_progress(batch_job *job)
{
    const schedule_statistics sums = schedule_get_statistics(job->schedule);
    const double rate = number_per_second(sums.generated_tokens, sums.seconds);
    snprintf(job->label, sizeof job->label, "%zu rows, %.0f tokens/s", sums.running, rate);
    progress_update(&job->bar, job->done + job->skipped + job->bad + job->failed, job->lines);
}

void batch_job_run(batch_job *job)
{
    signals_note_interrupts();
    job->bar = progress_start(job->label, "prompts");
    bool more = true;
    while (more && !signals_noted() && job->broken.status == KVERN_OK) {
        feed(job);
        more = schedule_step(job->schedule) || job->at < job->text.size;
        show_progress(job);
    }
    progress_end(&job->bar);
    job->interrupted = more ? signals_noted() : 0;
    job->statistics = schedule_get_statistics(job->schedule);
    job->store = kvern_store_stats_default();
    if (job->served.cache.store) { // cannot fail: the arguments are right
        (void)!kvern_store_get_stats(job->served.cache.store, &job->store);
    }
    job->remote = kvern_remote_store_stats_default();
    if (job->served.cache.remote) {
        (void)!kvern_remote_store_get_stats(job->served.cache.remote, &job->remote);
    }
}
