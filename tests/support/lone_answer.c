// SPDX-License-Identifier: MIT
#include "tests/support/lone_answer.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

// What the making needs besides the answer.
typedef struct maker {
    const engine_fixture *f;
    const lone_request *request;
    lone_answer *made;
    kvern_state *state;
    sampler *sampler;
    stop_matcher *stop;
    answer answer;
    size_t vocabulary;
} maker;

static void forward(const maker *m, kvern_phase phase, const int32_t *tokens, size_t count,
                    float *logits)
{
    engine_error error;
    const model_step step = {
        .phase = phase, .tokens = tokens, .counts = &(int64_t){(int64_t)count}, .logits = logits};
    if (model_forward(m->f->model, m->f->workspace, m->state, &step, &error) != KVERN_OK) {
        fail_msg("alone: %s", error.text);
    }
}

// A chunk ends where a layer's precision changes.
static void forward_prompt(const maker *m, float *logits)
{
    const lone_request *r = m->request;
    for (size_t at = 0, count; at < r->count; at += count) {
        const uint64_t most = (uint64_t)kvern_state_max_append(m->state, 0);
        count = r->count - at < r->chunk ? r->count - at : r->chunk;
        count = count < most ? count : (size_t)most;
        forward(m, KVERN_PHASE_WINDOW, r->tokens + at, count, logits);
    }
}

static void show(maker *m)
{
    const text_buffer *shown = &m->answer.shown;
    if (shown->size > 0) {
        assert_ok(text_buffer_append(&m->made->text, shown->data, shown->size));
    }
}

static float *logits_at(const maker *m, size_t token)
{
    return m->made->logits + token * m->vocabulary;
}

static void answer_prompt(maker *m)
{
    lone_answer *a = m->made;
    engine_error error;
    bool over = false;
    while (!over && !answer_finished(&m->answer, m->request->count + m->answer.tokens)) {
        if (a->count > 0) {
            forward(m, KVERN_PHASE_DECODE, &a->tokens[a->count - 1], 1, logits_at(m, a->count));
        }
        const sampled_sequence sequence = {m->request->tokens, m->request->count, a->tokens,
                                           a->count};
        assert_ok(sampler_next(m->sampler, logits_at(m, a->count), &sequence, &a->tokens[a->count],
                               &error));
        assert_ok(answer_take(&m->answer, a->tokens[a->count++], &over, &error));
        show(m);
    }
    assert_ok(answer_flush(&m->answer, &error));
    show(m);
    a->generated = m->answer.tokens;
    a->reason = m->answer.reason;
}

static void begin(maker *m, size_t most)
{
    const lone_request *r = m->request;
    m->vocabulary = m->f->facts->vocabulary;
    m->state = engine_fixture_state(m->f, 1);
    m->made->tokens = malloc((most + 1) * sizeof *m->made->tokens);
    m->made->logits = malloc((most + 1) * m->vocabulary * sizeof *m->made->logits);
    assert_true(m->made->tokens && m->made->logits);
    assert_ok(sampler_create(&r->sampling, m->vocabulary, &m->sampler, NULL));
    assert_ok(stop_matcher_create(&r->stop, r->stop ? 1 : 0, &m->stop, NULL));
    answer_begin(&m->answer, &(answer_options){.tokenizer = model_tokenizer(m->f->model),
                                               .stop = m->stop,
                                               .max_tokens = r->max_tokens,
                                               .context_length = r->context_length});
}

lone_answer lone_answer_make(const engine_fixture *f, const lone_request *request)
{
    lone_answer made = {0};
    maker m = {.f = f, .request = request, .made = &made};
    const size_t room = request->context_length - request->count;
    const bool limited = request->max_tokens >= 0 && (uint64_t)request->max_tokens < room;
    begin(&m, limited ? (size_t)request->max_tokens : room);
    forward_prompt(&m, made.logits);
    answer_prompt(&m);
    answer_free(&m.answer);
    stop_matcher_destroy(m.stop);
    sampler_destroy(m.sampler);
    kvern_state_destroy(m.state);
    return made;
}

void lone_answer_free(lone_answer *a)
{
    free(a->tokens);
    free(a->logits);
    text_buffer_free(&a->text);
}
