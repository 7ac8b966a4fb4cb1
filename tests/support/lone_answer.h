// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_LONE_ANSWER_H
#define KVERN_TESTS_SUPPORT_LONE_ANSWER_H

// An answer made by hand, the simple way: a state of one row, a prompt in chunks, one token after
// the other. What every scheduler must give for the same request.

#include "engine/sampling/answer.h"
#include "engine/sampling/sampler.h"
#include "tests/support/engine_fixture.h"

typedef struct lone_request {
    const int32_t *tokens;
    size_t count;
    int64_t max_tokens; // -1: no limit
    sampler_options sampling;
    const char *stop;      // NULL: none
    size_t context_length; // at most the model's
    size_t chunk;
} lone_request;

typedef struct lone_answer {
    int32_t *tokens; // sampled, one that ends the turn included
    size_t count;
    size_t generated; // of these, those of the sequence
    float *logits;    // [count, vocabulary] that they were sampled from
    text_buffer text;
    generate_reason reason;
} lone_answer;

// A failure fails the test. The fixture's workspace must have room for a chunk.
lone_answer lone_answer_make(const engine_fixture *f, const lone_request *request);

void lone_answer_free(lone_answer *a);

#endif
