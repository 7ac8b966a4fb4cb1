// SPDX-License-Identifier: MIT
#include "server/worker/job.h"

#include "server/worker/measures.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

// ---- Life ----

static void destroy(job *j)
{
    for (size_t i = 0; j->choices && i < j->count; i++) {
        text_buffer_free(&j->choices[i].text);
        token_logprobs_free(&j->choices[i].logprobs);
    }
    for (size_t i = 0; j->options.prompts && i < j->options.prompt_count; i++) {
        free(j->options.prompts[i].tokens);
    }
    for (size_t i = 0; j->stops && i < j->options.stop_count; i++) {
        free(j->stops[i]);
    }
    free(j->stops);
    free(j->options.prompts);
    free(j->options.biases);
    free(j->choices);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

static bool copy_stops(job *j, const job_options *options)
{
    j->stops = calloc(options->stop_count + 1, sizeof *j->stops);
    for (size_t i = 0; j->stops && i < options->stop_count; i++) {
        j->stops[i] = strdup(options->stops[i]);
        if (!j->stops[i]) {
            return false;
        }
    }
    return j->stops;
}

static void begin_choices(job *j)
{
    for (size_t i = 0; i < j->count; i++) {
        j->choices[i].job = j;
        j->choices[i].index = i;
        j->choices[i].logprobs.top =
            j->options.top_logprobs > 0 ? (size_t)j->options.top_logprobs : 0;
    }
}

kvern_status job_create(const job_options *options, job **out)
{
    job *j = calloc(1, sizeof *j);
    *out = NULL;
    if (!j) {
        return KVERN_ERR_MEMORY;
    }
    if (pthread_mutex_init(&j->lock, NULL) != 0) {
        free(j);
        return KVERN_ERR_MEMORY;
    }
    j->references = 2;
    j->count = options->prompt_count * options->each;
    j->choices = calloc(j->count, sizeof *j->choices);
    j->options.stop_count = options->stop_count;
    j->arrived = engine_seconds();
    if (!j->choices || !copy_stops(j, options)) {
        destroy(j);
        return KVERN_ERR_MEMORY;
    }
    j->options = *options;
    j->options.sampling.biases = options->biases;
    j->options.stops = (const char *const *)j->stops;
    begin_choices(j);
    *out = j;
    return KVERN_OK;
}

void job_release(job *j)
{
    pthread_mutex_lock(&j->lock);
    const int left = --j->references;
    pthread_mutex_unlock(&j->lock);
    if (left == 0) {
        destroy(j);
    }
}

// ---- What the scheduler tells ----

// Nobody may keep the scheduler waiting, nor have it fill the memory: a reader that is too slow
// loses its answer.
static void check_reader(job *j, const job_choice *c)
{
    const size_t each = (1 + c->logprobs.top) * sizeof(token_logprob);
    if (c->text.size + c->logprobs.count * each > j->options.most_waiting) {
        j->slow = true;
        atomic_store(&j->cancel, true);
    }
}

// The token that ends a turn is no part of the answer.
static kvern_status note_logprobs(job_choice *c, int32_t token, const float *logits)
{
    job *j = c->job;
    if (j->options.top_logprobs < 0 || tokenizer_is_end(model_tokenizer(j->model), token)) {
        return KVERN_OK;
    }
    pthread_mutex_lock(&j->lock);
    const kvern_status status =
        token_logprobs_add(&c->logprobs, token, logits, model_get_facts(j->model)->vocabulary);
    check_reader(j, c);
    pthread_mutex_unlock(&j->lock);
    j->news = true;
    return status;
}

static kvern_status take_token(void *user, int32_t token, const float *logits)
{
    job_choice *c = user;
    const double now = engine_seconds();
    if (c->first > 0) {
        histogram_add(&c->job->measures->inter_token, now - c->latest);
    } else {
        c->first = now;
        histogram_add(&c->job->measures->first_token, now - c->job->arrived);
    }
    c->latest = now;
    return note_logprobs(c, token, logits);
}

static kvern_status take_text(void *user, const char *text, size_t bytes)
{
    job_choice *c = user;
    job *j = c->job;
    pthread_mutex_lock(&j->lock);
    const kvern_status status = text_buffer_append(&c->text, text, bytes);
    check_reader(j, c);
    pthread_mutex_unlock(&j->lock);
    j->news = true;
    return status;
}

// Why an answer was cancelled, for a client that is still there.
static void explain_cancel(job *j)
{
    if (j->slow) {
        api_error_set(&j->error, 503, API_SERVER, "slow_reader", NULL,
                      "the answer was not read as fast as it came");
    } else if (atomic_load(&j->expired)) {
        api_error_set(&j->error, 504, API_SERVER, "timeout", NULL,
                      "the request took longer than the server permits");
    } else {
        api_error_set(&j->error, 503, API_SERVER, "cancelled", NULL,
                      "the server ends, or the client closed its sending half");
    }
}

static void take_end(void *user, const schedule_result *result)
{
    job_choice *c = user;
    job *j = c->job;
    pthread_mutex_lock(&j->lock);
    c->result = *result;
    c->result.error = NULL; // is there during the call only
    c->ended = true;
    if (j->error.http == 0 && result->status != KVERN_OK) {
        api_error_fail(&j->error, result->status, result->error);
        atomic_store(&j->cancel, true);
    } else if (j->error.http == 0 && result->reason == GENERATE_CANCELLED) {
        explain_cancel(j);
    }
    j->done = --j->running == 0 && j->submitted_all;
    pthread_mutex_unlock(&j->lock);
    measures_end(j->measures, result, engine_seconds() - j->arrived);
    j->news = true;
}

// ---- The worker's ----

static kvern_status submit(job_choice *c, schedule *s, engine_error *error)
{
    job *j = c->job;
    const job_prompt *prompt = &j->options.prompts[c->index / j->options.each];
    schedule_request request = {.tokens = prompt->tokens,
                                .count = prompt->count,
                                .max_tokens = j->options.max_tokens,
                                .sampling = j->options.sampling,
                                .stops = j->options.stops,
                                .stop_count = j->options.stop_count,
                                .cancel = &j->cancel,
                                .user = c,
                                .on_token = take_token,
                                .on_text = take_text,
                                .on_end = take_end};
    request.sampling.seed += c->index % j->options.each;
    return schedule_submit(s, &request, &c->id, error);
}

void job_submit(job *j, schedule *s, const model *model, measures *m)
{
    engine_error error;
    kvern_status status = KVERN_OK;
    j->model = model;
    j->measures = m;
    for (size_t i = 0; i < j->count && status == KVERN_OK; i++) {
        status = submit(&j->choices[i], s, &error);
        j->running += status == KVERN_OK;
    }
    pthread_mutex_lock(&j->lock);
    if (status != KVERN_OK) {
        api_error_refuse(&j->error, &error, NULL);
        atomic_store(&j->cancel, true);
    }
    j->submitted_all = true;
    j->accepted = status == KVERN_OK;
    j->done = j->running == 0;
    pthread_mutex_unlock(&j->lock);
    j->news = true;
}

void job_tell(job *j)
{
    if (j->news) {
        j->news = false;
        pthread_mutex_lock(&j->lock);
        waker_wake(&j->waker);
        pthread_mutex_unlock(&j->lock);
    }
}
