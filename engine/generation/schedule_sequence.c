// SPDX-License-Identifier: MIT
// One request of a scheduler: its copy, its answer, and its end.

#include "engine/generation/schedule_internal.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

// ---- Submission ----

// Tokens of the kept sequence that a request continues.
static size_t kept_tokens(const schedule_request *request)
{
    return request->kept ? request->kept->count : 0;
}

static kvern_status check_count(const schedule *s, const schedule_request *request,
                                engine_error *error)
{
    const size_t context = s->options.context_length, kept = kept_tokens(request);
    if (request->count == 0 && !(request->kept && kept_sequence_pending(request->kept))) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "there is no token to start from");
    }
    if (request->count > context) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "the prompt has %zu tokens, more than the context of %zu",
                           request->count, context);
    }
    if (request->count > context - kept) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "the prompt has %zu tokens, but only %zu of the context of %zu are free",
                           request->count, context - kept, context);
    }
    return KVERN_OK;
}

kvern_status schedule_check_tokens(const schedule *s, const int32_t *tokens, size_t count,
                                   engine_error *error)
{
    size_t vocabulary = model_get_facts(s->model)->vocabulary;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= vocabulary) {
            return engine_fail(error, KVERN_ERR_RANGE,
                               "token %d at index %zu is outside the vocabulary of %zu", tokens[i],
                               i, vocabulary);
        }
    }
    return KVERN_OK;
}

static kvern_status copy_tokens(schedule_sequence *q, engine_error *error)
{
    q->tokens = malloc(q->final_length * sizeof *q->tokens);
    if (!q->tokens) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a sequence of %zu tokens",
                           q->final_length);
    }
    const size_t kept = kept_tokens(&q->request);
    if (kept > 0) {
        memcpy(q->tokens, q->request.kept->tokens, kept * sizeof *q->tokens);
    }
    if (q->request.count > 0) {
        memcpy(q->tokens + kept, q->request.tokens, q->request.count * sizeof *q->tokens);
    }
    return KVERN_OK;
}

static kvern_status make_parts(const schedule *s, schedule_sequence *q, engine_error *error)
{
    const schedule_request *request = &q->request;
    q->sampler = request->sampler;
    q->stop = request->stop;
    kvern_status status = copy_tokens(q, error);
    if (status == KVERN_OK && !q->sampler) {
        status = sampler_check(&request->sampling, model_get_facts(s->model)->vocabulary, error);
    }
    if (status == KVERN_OK && !q->stop) {
        status = stop_matcher_create(request->stops, request->stop_count, &q->stop, error);
    }
    return status;
}

static size_t final_length(const schedule *s, const schedule_request *request)
{
    const size_t count = kept_tokens(request) + request->count;
    const size_t room = s->options.context_length - count;
    const bool limited = request->max_tokens >= 0 && (uint64_t)request->max_tokens < room;
    return count + (limited ? (size_t)request->max_tokens : room);
}

kvern_status schedule_sequence_create(const schedule *s, const schedule_request *request,
                                      schedule_sequence **out, engine_error *error)
{
    *out = NULL;
    if (request->kept && request->kept->busy) {
        return engine_fail(error, KVERN_ERR_BUSY, "another request continues this sequence");
    }
    kvern_status status = check_count(s, request, error);
    if (status == KVERN_OK) {
        status = schedule_check_tokens(s, request->tokens, request->count, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    schedule_sequence *q = calloc(1, sizeof *q);
    if (!q) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a request");
    }
    q->request = *request;
    q->count = q->known = kept_tokens(request) + request->count;
    q->final_length = final_length(s, request);
    q->draft_row = q->like = DRAFT_NO_ROW;
    q->source = SCHEDULE_NO_ROW;
    q->timed = &q->result.queue_seconds;
    q->since = engine_seconds();
    status = make_parts(s, q, error);
    if (status != KVERN_OK) {
        schedule_sequence_destroy(q);
        return status;
    }
    answer_begin(&q->answer, &(answer_options){.tokenizer = model_tokenizer(s->model),
                                               .stop = q->stop,
                                               .cancel = request->cancel,
                                               .max_tokens = request->max_tokens,
                                               .context_length = s->options.context_length});
    *out = q;
    return KVERN_OK;
}

// A sampler has scratch for the whole vocabulary, which a long queue does not need.
kvern_status schedule_sequence_seat(const schedule *s, schedule_sequence *q, engine_error *error)
{
    return q->sampler ? KVERN_OK
                      : sampler_create(&q->request.sampling, model_get_facts(s->model)->vocabulary,
                                       &q->sampler, error);
}

void schedule_sequence_destroy(schedule_sequence *q)
{
    if (!q) {
        return;
    }
    answer_free(&q->answer);
    if (!q->request.stop) {
        stop_matcher_destroy(q->stop);
    }
    if (!q->request.sampler) {
        sampler_destroy(q->sampler);
    }
    free(q->tokens);
    free(q);
}

// ---- Its answer ----

bool schedule_sequence_cancelled(const schedule_sequence *q)
{
    return q->cancelled || answer_cancelled(&q->answer);
}

void schedule_sequence_time(schedule_sequence *q, double *timed)
{
    double now = engine_seconds();
    *q->timed += now - q->since;
    q->timed = timed;
    q->since = now;
}

void schedule_sequence_fail(schedule_sequence *q, const engine_error *error)
{
    q->error = *error;
}

static kvern_status refuse(schedule_sequence *q, kvern_status status, const char *what)
{
    q->refused = true;
    return engine_fail(&q->error, status, "its receiver refused %s", what);
}

void schedule_sequence_tell_prompt(const schedule_sequence *q)
{
    const size_t before = q->result.shared_tokens;
    if (q->request.on_prompt) {
        q->request.on_prompt(q->request.user, q->forwarded - before, q->count - before);
    }
}

// Hands what is to be shown to the owner.
static kvern_status show(schedule_sequence *q)
{
    const text_buffer *shown = &q->answer.shown;
    if (shown->size == 0 || !q->request.on_text) {
        return KVERN_OK;
    }
    kvern_status status = q->request.on_text(q->request.user, shown->data, shown->size);
    return status == KVERN_OK ? KVERN_OK : refuse(q, status, "a text");
}

static kvern_status tell_token(schedule_sequence *q, int32_t token, const float *logits)
{
    if (!q->request.on_token) {
        return KVERN_OK;
    }
    kvern_status status = q->request.on_token(q->request.user, token, logits);
    return status == KVERN_OK ? KVERN_OK : refuse(q, status, "a token");
}

static bool finished(schedule_sequence *q)
{
    if (answer_finished(&q->answer, q->known)) {
        return true;
    }
    if (q->cancelled) {
        q->answer.reason = GENERATE_CANCELLED;
    }
    return q->cancelled;
}

static kvern_status sample(schedule_sequence *q, const float *logits)
{
    int32_t token;
    const size_t before = q->answer.tokens;
    const sampled_sequence sequence = {.tokens = q->tokens, .count = q->known};
    kvern_status status = sampler_next(q->sampler, logits, &sequence, &token, &q->error);
    if (status == KVERN_OK) {
        q->result.decode_tokens += q->result.decode_steps > 0;
        status = tell_token(q, token, logits);
    }
    if (status == KVERN_OK) {
        status = answer_take(&q->answer, token, &q->over, &q->error);
    }
    if (q->answer.tokens > before) { // it did not end the turn
        q->tokens[q->known++] = token;
    }
    return status == KVERN_OK ? show(q) : status;
}

void schedule_sequence_sample(schedule_sequence *q, const float *logits)
{
    q->over = finished(q);
    if (!q->over && sample(q, logits) != KVERN_OK) {
        q->over = true;
    }
    q->over = q->over || finished(q);
}

// ---- Its end ----

// Held back text is shown after a failure too; the failure's own sentence stays.
static void flush(schedule_sequence *q)
{
    engine_error failure = q->error;
    bool flushed = answer_flush(&q->answer, &q->error) == KVERN_OK;
    if (flushed && !q->refused) {
        flushed = show(q) == KVERN_OK;
    }
    if (!flushed && failure.status != KVERN_OK) {
        q->error = failure;
    }
}

static void count_end(schedule_statistics *sums, const schedule_sequence *q)
{
    if (q->error.status != KVERN_OK) {
        sums->failed++;
    } else if (q->answer.reason == GENERATE_CANCELLED) {
        sums->cancelled++;
    } else {
        sums->finished++;
    }
    sums->queue_seconds += q->result.queue_seconds;
}

void schedule_sequence_end(schedule *s, schedule_sequence *q)
{
    schedule_fetched_end(s, q);
    flush(q);
    schedule_sequence_time(q, q->timed);
    count_end(&s->statistics, q);
    q->result.status = q->error.status;
    q->result.error = q->error.text;
    q->result.reason = q->answer.reason;
    q->result.prompt_whole = q->forwarded == q->count;
    q->result.prompt_tokens = q->forwarded;
    q->result.generated_tokens = q->answer.tokens;
    if (q->request.kept) {
        q->request.kept->busy = false;
    }
    if (q->request.on_end) {
        q->request.on_end(q->request.user, &q->result);
    }
    schedule_sequence_destroy(q);
}
