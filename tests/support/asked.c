// SPDX-License-Identifier: MIT
#include "tests/support/asked.h"

#include "tests/support/lone_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void asked_fill(asked *a, const model *model, size_t count, size_t common, test_random *random)
{
    a->count = count;
    a->vocabulary = model_get_facts(model)->vocabulary;
    const size_t most = a->vocabulary < 100 ? a->vocabulary : 100;
    for (size_t i = 0; i < count; i++) {
        a->prompt[i] = (int32_t)(i < common ? i * 7 % most : test_random_below(random, most));
    }
    a->max_tokens = (int64_t)(1 + test_random_below(random, 40));
    a->sampling = sampler_default_options();
    if (test_random_below(random, 3) > 0) {
        a->sampling.temperature = 0.8f;
        a->sampling.top_k = (uint32_t)test_random_below(random, 50);
        a->sampling.top_p = 0.9f;
        a->sampling.seed = test_random_next(random);
    }
    if (a->max_tokens % 3 == 0) { // greedy ones, too
        a->sampling.penalties = (penalty_options){
            .repeat = 1.3f, .presence = 0.2f, .frequency = 0.1f, .window = (size_t)a->max_tokens};
    }
}

// FNV-1a.
static uint64_t digest(const float *values, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static kvern_status on_token(void *user, int32_t token, const float *logits)
{
    asked *a = user;
    assert_true(a->taken < ASKED_TOKENS && a->ends == 0);
    if (a->refuse_token == a->taken + 1) {
        return KVERN_ERR_IO;
    }
    a->digests[a->taken] = digest(logits, a->vocabulary);
    a->tokens[a->taken++] = token;
    if (a->taken == a->cancel_after) {
        atomic_store(&a->cancel, true);
    }
    return KVERN_OK;
}

static kvern_status on_text(void *user, const char *text, size_t bytes)
{
    asked *a = user;
    assert_true(bytes > 0 && a->ends == 0);
    if (a->refuse_text) {
        a->refused_texts++;
        return KVERN_ERR_IO;
    }
    return text_buffer_append(&a->text, text, bytes);
}

static void on_end(void *user, const schedule_result *result)
{
    asked *a = user;
    assert_int_equal(a->id, result->id);
    a->ends++;
    a->result = *result;
    snprintf(a->error, sizeof a->error, "%s", result->error);
}

schedule_request asked_request(asked *a)
{
    return (schedule_request){.tokens = a->prompt,
                              .count = a->count,
                              .max_tokens = a->max_tokens,
                              .sampling = a->sampling,
                              .stops = &a->stop,
                              .stop_count = a->stop ? 1 : 0,
                              .cancel = &a->cancel,
                              .user = a,
                              .on_token = on_token,
                              .on_text = on_text,
                              .on_end = on_end};
}

void asked_submit(asked *a, schedule *s)
{
    engine_error error;
    const schedule_request request = asked_request(a);
    if (schedule_submit(s, &request, &a->id, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
}

// ---- Alone ----

static void expect_logits(const asked *a, const lone_answer *r)
{
    for (size_t i = 0; i < a->taken; i++) {
        if (digest(r->logits + i * a->vocabulary, a->vocabulary) != a->digests[i]) {
            fail_msg("request %llu: the logits of token %zu are others than alone",
                     (unsigned long long)a->id, i);
        }
    }
}

static void expect_end(const asked *a, const lone_answer *r)
{
    assert_int_equal(a->taken, r->count);
    assert_int_equal(a->result.reason, r->reason);
    assert_int_equal(a->result.generated_tokens, r->generated);
    assert_int_equal(a->result.prompt_tokens, a->count);
    assert_int_equal(a->text.size, r->text.size);
    assert_string_equal(a->error, "");
}

void asked_expect_alone(const asked *a, const engine_fixture *f, size_t context_length,
                        size_t chunk)
{
    const lone_request alone = {.tokens = a->prompt,
                                .count = a->count,
                                .max_tokens = a->max_tokens,
                                .sampling = a->sampling,
                                .stop = a->stop,
                                .context_length = context_length,
                                .chunk = chunk};
    assert_int_equal(a->ends, 1);
    lone_answer r = lone_answer_make(f, &alone);
    const bool whole = a->result.status == KVERN_OK && a->result.reason != GENERATE_CANCELLED;
    if (whole) {
        expect_end(a, &r);
    }
    assert_true(a->taken <= r.count);
    assert_memory_equal(a->tokens, r.tokens, a->taken * sizeof *a->tokens);
    if (whole) {
        assert_memory_equal(a->text.data ? a->text.data : "", r.text.data ? r.text.data : "",
                            a->text.size);
    } else if (a->text.size > 3 && !a->stop) { // the end may stand for half a character
        assert_true(a->text.size - 3 <= r.text.size);
        assert_memory_equal(a->text.data, r.text.data, a->text.size - 3);
    }
    expect_logits(a, &r);
    lone_answer_free(&r);
}

uint64_t asked_row_bytes(const kvern_composition *composition, size_t tokens, size_t query_heads,
                         size_t round)
{
    uint64_t bytes;
    kvern_plan plan = kvern_plan_default();
    plan.tokens = (int64_t)tokens;
    plan.chunk = 128;
    plan.round = (int64_t)round;
    plan.query_vectors = 128 * query_heads;
    assert_int_equal(kvern_composition_plan_bytes(composition, &plan, &bytes), KVERN_OK);
    return bytes;
}

void asked_free(asked *a)
{
    text_buffer_free(&a->text);
}

// ---- At random ----

static const size_t PROMPTS[] = {1, 2, 30, 64, 65, 90, 150, 200};

static void fill_at_random(asked *a, const model *model, test_random *random)
{
    const size_t count = PROMPTS[test_random_below(random, sizeof PROMPTS / sizeof PROMPTS[0])];
    asked_fill(a, model, count, test_random_below(random, 3) ? count * 3 / 4 : 0, random);
    switch (test_random_below(random, 8)) {
    case 0:
        a->stop = "e";
        break;
    case 1:
        a->cancel_after = 1 + test_random_below(random, 8);
        break;
    case 2:
        a->refuse_token = 1 + test_random_below(random, 8);
        break;
    case 3:
        a->max_tokens = (int64_t)test_random_below(random, 2);
        break;
    default:
        break;
    }
}

void asked_serve(asked *requests, size_t count, const model *model, schedule *s,
                 test_random *random)
{
    size_t submitted = 0;
    bool busy = true;
    while (submitted < count || busy) {
        while (submitted < count && test_random_below(random, 4) == 0) {
            asked *a = &requests[submitted++];
            fill_at_random(a, model, random);
            asked_submit(a, s);
        }
        if (submitted > 0 && test_random_below(random, 60) == 0) {
            schedule_cancel(s, requests[test_random_below(random, submitted)].id);
        }
        busy = schedule_step(s);
    }
}
