// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_COMPLETION_REQUEST_H
#define KVERN_SERVER_COMPLETION_REQUEST_H

// The body of /v1/chat/completions or /v1/completions: what engine/request/chat_request.h knows,
// and what a server has besides. Every key is honoured, known to change nothing, or refused by its
// name.

#include "engine/chat/chat.h"
#include "engine/request/chat_request.h"
#include "engine/tokenizer/tokenizer.h"

#include "server/base/api_error.h"

// What requests are read with. Borrowed.
typedef struct completion_context {
    const char *model_name;
    const tokenizer *tokens;
    const chat_template *chat; // NULL: messages are refused
    chat_request_defaults defaults;
    size_t most_choices;
    size_t context_length;
    size_t most_text; // bytes of a prompt's text: completion_most_text
} completion_context;

typedef struct completion_request {
    bool chat;
    chat_request asked;    // how it is answered; its stops are its own
    size_t each;           // answers of every prompt
    token_buffer *prompts; // [prompt_count]
    size_t prompt_count;
    logit_bias *biases; // of the sampler
    size_t bias_count;
    bool stream, include_usage;
    int top_logprobs; // of each token; -1: none are wanted
} completion_request;

// Stop strings of a request are compared with what comes at every token, by the thread of all rows.
#define COMPLETION_MOST_STOPS 64
#define COMPLETION_MOST_STOP_BYTES 256

// Bytes of the longest text that a context's tokens are, were each the longest of the vocabulary:
// longer ones are refused before they are tokenized, which takes time.
size_t completion_most_text(const tokenizer *tokens, size_t context_length);

// A client that names another model wants that one's answers. False: *error says so.
bool completion_request_is_served(const json_t *object, const char *name, api_error *error);

// Reads a body; `chat`: there are messages, else prompts. On failure *out is all zero, *error says
// why, and the result is false.
bool completion_request_read(json_t *object, bool chat, const completion_context *context,
                             completion_request *out, api_error *error);

// All zero is permitted.
void completion_request_free(completion_request *request);

#endif
