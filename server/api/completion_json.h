// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_COMPLETION_JSON_H
#define KVERN_SERVER_COMPLETION_JSON_H

// Answers as clients of OpenAI's interface expect them, whole and in pieces of a stream. Results
// are new references; NULL: no memory.

#include "engine/tokenizer/tokenizer.h"

#include "server/worker/job.h"

// What all answers of a request have in common.
typedef struct completion_style {
    char id[JOB_NAME];
    int64_t created; // seconds since 1970
    const char *model;
    const tokenizer *tokens;
    bool chat;
    bool stream;
    bool include_usage;
    bool logprobs;
} completion_style;

// What has come of an answer since it was taken last.
typedef struct completion_part {
    size_t index;
    text_buffer text;
    token_logprobs logprobs;
    size_t offset; // of its tokens in the answer, in characters; moves on
    bool begins, ends;
    generate_reason reason; // where it ends
} completion_part;

// The answer or the piece with these choices; `usage` is taken over, NULL: none.
json_t *completion_json(const completion_style *style, json_t *choices, json_t *usage);

json_t *completion_choice_json(const completion_style *style, completion_part *part);

// Of a job that is done.
json_t *completion_usage_json(const job *j);

#endif
