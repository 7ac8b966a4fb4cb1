// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_ASKED_H
#define KVERN_TESTS_SUPPORT_ASKED_H

// Requests for a scheduler, what became of them, and what each would have been alone.

#include "engine/generation/schedule.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/random.h"

#define ASKED_PROMPT 400
#define ASKED_TOKENS 512

typedef struct asked {
    // The request.
    int32_t prompt[ASKED_PROMPT];
    size_t count;
    int64_t max_tokens;
    sampler_options sampling;
    const char *stop; // NULL: none
    atomic_bool cancel;
    size_t cancel_after; // tokens after which its own callback cancels it; 0: never
    size_t refuse_token; // the callback fails at this one, from 1 on; 0: never
    bool refuse_text;    // the callback of texts fails
    size_t vocabulary;   // of the model

    // What became of it.
    uint64_t id;
    int32_t tokens[ASKED_TOKENS];
    uint64_t digests[ASKED_TOKENS]; // of the logits that each was sampled from
    size_t taken;
    text_buffer text;
    size_t refused_texts;
    size_t ends; // calls of on_end
    schedule_result result;
    char error[512];
} asked;

// A random prompt of `count` tokens, which begins with up to `common` tokens that all such prompts
// have, and random options of sampling, or greedy ones.
void asked_fill(asked *a, const model *model, size_t count, size_t common, test_random *random);

// Fills `count` requests at random, some with a reason to end early, submits them at random steps
// of the scheduler, cancels some from outside, and steps until all have ended.
void asked_serve(asked *requests, size_t count, const model *model, schedule *s,
                 test_random *random);

// Submits it; it must be taken.
void asked_submit(asked *a, schedule *s);
// The request as it is given to a scheduler.
schedule_request asked_request(asked *a);

// Fails the test unless it ended once, and its tokens, the logits of each, its text and its result
// are those of the same request alone, in `alone` and with prompt chunks of `chunk` tokens; up to
// where it was cancelled or failed.
void asked_expect_alone(const asked *a, const engine_fixture *alone, size_t context_length,
                        size_t chunk);

void asked_free(asked *a);

// Bytes that a row of `tokens` positions takes at most in a scheduler of this composition, with
// chunks of 128 tokens, `query_heads` heads and rounds of `round` tokens.
uint64_t asked_row_bytes(const kvern_composition *composition, size_t tokens, size_t query_heads,
                         size_t round);

#endif
