// SPDX-License-Identifier: MIT
// /v1/chat/completions and /v1/completions: from a body to a job, and from what comes of it to an
// answer.

#include "server/api/api.h"
#include "server/api/completion_json.h"
#include "server/api/completion_request.h"
#include "server/base/json_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

// Log probabilities of a whole answer that are written while connections wait; those of an event;
// and bytes of events after which others have their turn.
#define MOST_NUMBERS 2048
#define MOST_EVENT_NUMBERS 512
#define MOST_EVENT_BYTES 65536

// An answer that is being made.
typedef struct completion {
    api *api;
    job *job;
    completion_style style;
    size_t *offsets;  // of choices: characters of the tokens that were sent
    bool is_aside;    // a thread that no connection waits for writes the whole answer
    atomic_bool left; // its client has gone
} completion;

// ---- What has come ----

static bool has_news(const completion *c, const job_choice *choice)
{
    return !choice->started || choice->text.size > 0 || choice->logprobs.count > 0 ||
           (choice->ended && !choice->finish_sent && c->job->error.http == 0);
}

// Takes out what has come, log probabilities of `most` tokens at most; the job's lock is held, or
// the job is done. Without memory for them they are lost: the answer ends there.
static bool take_part(const completion *c, job_choice *choice, size_t most, completion_part *part)
{
    *part = (completion_part){.index = choice->index,
                              .offset = c->offsets[choice->index],
                              .begins = !choice->started,
                              .reason = choice->result.reason};
    if (!token_logprobs_take(&choice->logprobs, most, &part->logprobs)) {
        return false;
    }
    part->text = choice->text;
    choice->text = (text_buffer)TEXT_BUFFER_INIT;
    choice->started = true;
    const bool whole = choice->ended && choice->logprobs.count == 0;
    part->ends = whole && !choice->finish_sent && choice->result.status == KVERN_OK &&
                 choice->result.reason != GENERATE_CANCELLED;
    choice->finish_sent = whole;
    return true;
}

static json_t *choice_json(completion *c, completion_part *part)
{
    json_t *choice = completion_choice_json(&c->style, part);
    c->offsets[part->index] = part->offset;
    text_buffer_free(&part->text);
    token_logprobs_free(&part->logprobs);
    return choice;
}

// ---- Whole ----

static void reply_whole(completion *c, http_reply *reply)
{
    job *j = c->job;
    json_t *choices = json_array();
    for (size_t i = 0; choices && i < j->count; i++) {
        completion_part part;
        (void)take_part(c, &j->choices[i], SIZE_MAX, &part); // all of them: takes no memory
        json_array_append_new(choices, choice_json(c, &part));
    }
    api_reply_json(completion_json(&c->style, choices, completion_usage_json(j)), reply);
}

// Whether it takes longer to write than other connections should wait.
static bool is_long(const job *j)
{
    size_t numbers = 0;
    for (size_t i = 0; i < j->count; i++) {
        numbers += j->choices[i].logprobs.count * (1 + j->choices[i].logprobs.top);
    }
    return numbers > MOST_NUMBERS;
}

static void begin_stream(http_reply *reply)
{
    *reply = (http_reply){.status = 200,
                          .type = "text/event-stream; charset=utf-8",
                          .names = {"Cache-Control", "X-Accel-Buffering"},
                          .values = {"no-store", "no"}};
}

static bool reply_refusal(const completion *c, http_reply *reply)
{
    job *j = c->job;
    pthread_mutex_lock(&j->lock);
    const api_error error = j->error;
    pthread_mutex_unlock(&j->lock);
    if (error.http) {
        api_reply_error(&error, reply);
    }
    return error.http;
}

// A refusal is known before an answer begins; so a stream has a status of its own for that.
static bool await_reply(const completion *c, const waker *who)
{
    job *j = c->job;
    pthread_mutex_lock(&j->lock);
    const bool there = j->done || (c->style.stream && j->accepted);
    if (!there) {
        waker_sleep(&j->waker, who);
    }
    pthread_mutex_unlock(&j->lock);
    return there;
}

// The worker touches nothing of a job that is done, and must not wait until an answer is written:
// so that is done without the lock.
static http_progress look(void *state, const waker *who, http_reply *reply)
{
    completion *c = state;
    if (!await_reply(c, who)) {
        return HTTP_WAIT;
    }
    if (reply_refusal(c, reply)) {
        return HTTP_WHOLE;
    }
    if (c->style.stream) {
        begin_stream(reply);
        return HTTP_STREAM;
    }
    if (!c->is_aside && is_long(c->job)) {
        c->is_aside = true;
        return HTTP_LONG;
    }
    reply_whole(c, reply);
    return HTTP_WHOLE;
}

// ---- A stream ----

static bool write_event(json_t *value, text_buffer *out)
{
    const size_t before = out->size;
    if (text_buffer_append(out, "data: ", 6) == KVERN_OK && server_json_write(value, out) &&
        text_buffer_append(out, "\n\n", 2) == KVERN_OK) {
        return true;
    }
    out->size = before;
    return false;
}

static bool write_part(completion *c, completion_part *part, text_buffer *out)
{
    json_t *choice = choice_json(c, part);
    return write_event(completion_json(&c->style, json_pack("[o]", choice), NULL), out);
}

// The next choice that has news; NULL: none has.
static job_choice *find_news(const completion *c)
{
    for (size_t i = 0; i < c->job->count; i++) {
        if (has_news(c, &c->job->choices[i])) {
            return &c->job->choices[i];
        }
    }
    return NULL;
}

static bool write_end(completion *c, text_buffer *out)
{
    static const char DONE[] = "data: [DONE]\n\n";
    job *j = c->job;
    if (j->error.http) {
        return write_event(api_error_json(&j->error), out);
    }
    if (c->style.include_usage &&
        !write_event(completion_json(&c->style, json_array(), completion_usage_json(j)), out)) {
        return false;
    }
    return text_buffer_append(out, DONE, sizeof DONE - 1) == KVERN_OK;
}

// Without memory for a piece the answer ends: one that lacks a piece would be another answer. What
// a reader has left lying comes in pieces that other connections can wait for.
static http_progress pull(void *state, const waker *who, text_buffer *out)
{
    completion *c = state;
    job *j = c->job;
    bool written = true;
    pthread_mutex_lock(&j->lock);
    job_choice *choice = find_news(c);
    while (choice && written && out->size < MOST_EVENT_BYTES) {
        completion_part part;
        written = take_part(c, choice, MOST_EVENT_NUMBERS / (1 + choice->logprobs.top), &part);
        pthread_mutex_unlock(&j->lock); // the worker need not wait for texts to be made
        written = written && write_part(c, &part, out);
        pthread_mutex_lock(&j->lock);
        choice = find_news(c);
    }
    const bool done = j->done && (!choice || !written);
    if (!done && out->size == 0 && written) {
        waker_sleep(&j->waker, who);
    }
    pthread_mutex_unlock(&j->lock);
    if (done && written) {
        written = write_end(c, out);
    }
    return done || !written ? HTTP_END : out->size > 0 ? HTTP_PIECE : HTTP_WAIT;
}

// ---- Its end ----

static void gone(void *state)
{
    completion *c = state;
    atomic_store(&c->left, true);
    atomic_store(&c->job->cancel, true);
}

static void expired(void *state)
{
    completion *c = state;
    atomic_store(&c->job->expired, true);
    atomic_store(&c->job->cancel, true);
}

// Nobody sleeps for it any more.
static void free_completion(void *state)
{
    completion *c = state;
    job *j = c->job;
    pthread_mutex_lock(&j->lock);
    j->waker.waiting = false;
    atomic_fetch_add(&c->api->slow_readers, j->slow);
    atomic_fetch_add(&c->api->disconnects, (atomic_load(&c->left) || !j->done) && !j->slow);
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->cancel, true);
    job_release(j);
    free(c->offsets);
    free(c);
}

// ---- Its beginning ----

static job_prompt *take_prompts(completion_request *r)
{
    job_prompt *prompts = calloc(r->prompt_count, sizeof *prompts);
    for (size_t i = 0; prompts && i < r->prompt_count; i++) {
        prompts[i] = (job_prompt){r->prompts[i].ids, r->prompts[i].count};
        r->prompts[i] = (token_buffer)TOKEN_BUFFER_INIT;
    }
    return prompts;
}

static job *make_job(const api *a, completion_request *r)
{
    job *j;
    job_options options = {.prompts = take_prompts(r),
                           .prompt_count = r->prompt_count,
                           .each = r->each,
                           .max_tokens = r->asked.max_tokens,
                           .sampling = r->asked.sampling,
                           .biases = r->biases,
                           .stops = r->asked.stops,
                           .stop_count = r->asked.stop_count,
                           .top_logprobs = r->top_logprobs,
                           .most_waiting = r->stream ? a->options.most_waiting : SIZE_MAX};
    options.sampling.bias_count = r->bias_count;
    if (!options.prompts) {
        return NULL;
    }
    if (job_create(&options, &j) != KVERN_OK) {
        for (size_t i = 0; i < options.prompt_count; i++) {
            free(options.prompts[i].tokens);
        }
        free(options.prompts);
        return NULL;
    }
    r->biases = NULL;
    return j;
}

static void name_answer(api *a, const completion_request *r, completion_style *style)
{
    const uint64_t number = atomic_fetch_add(&a->ids, 1) + 1;
    snprintf(style->id, sizeof style->id, "%s-%" PRIx64 "-%" PRIu64, r->chat ? "chatcmpl" : "cmpl",
             (uint64_t)a->created, number);
    style->created = (int64_t)time(NULL);
    style->model = a->options.model_name;
    style->tokens = a->options.tokens;
    style->chat = r->chat;
    style->stream = r->stream;
    style->include_usage = r->include_usage;
    style->logprobs = r->top_logprobs >= 0;
}

static completion *make_completion(api *a, completion_request *r)
{
    completion *c = calloc(1, sizeof *c);
    size_t *offsets = calloc(r->prompt_count * r->each, sizeof *offsets);
    job *j = c && offsets ? make_job(a, r) : NULL;
    if (!j) {
        free(offsets);
        free(c);
        return NULL;
    }
    *c = (completion){.api = a, .job = j, .offsets = offsets};
    name_answer(a, r, &c->style);
    memcpy(j->name, c->style.id, sizeof j->name);
    return c;
}

static void refuse_push(worker_answer answer, unsigned retry, api_error *error)
{
    if (answer == WORKER_FULL) {
        api_error_set(error, 429, "rate_limit_error", "queue_full", NULL,
                      "the queue is full; try again in %u s", retry);
        error->retry_seconds = retry;
    } else {
        api_error_set(error, 503, API_SERVER, "draining", NULL, "the server ends");
    }
}

static bool start(api *a, completion_request *r, http_task *task, api_error *error)
{
    unsigned retry;
    completion *c = make_completion(a, r);
    if (!c) {
        api_error_fail(error, KVERN_ERR_MEMORY, "no memory for the request");
        return false;
    }
    const worker_answer answer = worker_push(a->worker, c->job, &retry);
    if (answer != WORKER_TAKEN) {
        refuse_push(answer, retry, error);
        c->job->done = true;
        job_release(c->job); // the reference that the worker would have had
        free_completion(c);
        return false;
    }
    *task = (http_task){.state = c,
                        .look = look,
                        .pull = pull,
                        .gone = gone,
                        .expired = expired,
                        .free = free_completion};
    return true;
}

static uint64_t random_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = (uint32_t)time(NULL);
    }
    return seed;
}

static bool read_body(const api *a, const http_request *request, bool chat, completion_request *r,
                      api_error *error)
{
    completion_context context = {.model_name = a->options.model_name,
                                  .tokens = a->options.tokens,
                                  .chat = a->options.chat,
                                  .defaults = a->options.defaults,
                                  .most_choices = a->options.most_choices,
                                  .context_length = a->options.context_length,
                                  .most_text = a->options.most_text};
    if (!a->options.fixed_seed) {
        context.defaults.sampling.seed = random_seed();
    }
    json_t *object = api_read_object(request, error);
    const bool read = object && completion_request_read(object, chat, &context, r, error);
    json_decref(object);
    return read;
}

static void complete(api *a, const http_request *request, bool chat, http_task *task,
                     http_reply *reply)
{
    api_error error = {0};
    completion_request r = {0};
    if (!read_body(a, request, chat, &r, &error) || !start(a, &r, task, &error)) {
        api_reply_error(&error, reply);
    }
    completion_request_free(&r);
}

void api_complete_chat(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    complete(a, request, true, task, reply);
}

void api_complete_text(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    complete(a, request, false, task, reply);
}
