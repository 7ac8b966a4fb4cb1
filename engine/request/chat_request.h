// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CHAT_REQUEST_H
#define KVERN_ENGINE_CHAT_REQUEST_H

// A request as a JSON object, in the words of OpenAI's interface and of the servers that follow it:
//
//     {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100, "top_p": 0.9}
//     {"prompt": "Once upon a time", "stop": ["\n"], "seed": 7}
//
// Every key is honoured, or the request is refused with the key's name; a value of null stands for
// a key that is absent, and a value that asks for nothing is accepted ("n": 1, "tools": []). Keys
// that nobody knows are no failure: chat_request_unknown tells them, so that they can be reported.
//
// Content is a string, or a list of parts of which each is {"type": "text", "text": "..."}: their
// texts are joined.

#include "engine/base/error.h"
#include "engine/chat/chat.h"
#include "engine/sampling/sampler.h"

#include <jansson.h>

// What holds where a request says nothing. Borrowed as long as the request.
typedef struct chat_request_defaults {
    const char *system; // goes before messages that do not begin with one; NULL: none
    int64_t max_tokens; // -1: no limit
    sampler_options sampling;
    const char *const *stops;
    size_t stop_count;
    bool ignore_eos;
} chat_request_defaults;

typedef struct chat_request {
    const char *prompt; // NULL: there were messages
    size_t prompt_bytes;
    chat_message *messages; // the prompt is a message of the user here; with the system message
    size_t message_count;
    int64_t max_tokens;
    sampler_options sampling; // its biases belong to the request or to the defaults
    const char **stops;
    size_t stop_count;
    bool ignore_eos; // no token that ends a turn is to be chosen

    json_t *object; // what the strings belong to
    char **texts;   // joined parts
    size_t text_count;
    logit_bias *biases; // of the object
} chat_request;

// Reads an object, which the request keeps a reference to. On failure *out is all zero and the text
// names the key. Errors: KVERN_ERR_FORMAT (a value of the wrong kind or range),
// KVERN_ERR_UNSUPPORTED (a key that asks for what cannot be done), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status chat_request_read(json_t *object, const chat_request_defaults *defaults,
                                           chat_request *out, engine_error *error);

// All zero is permitted.
void chat_request_free(chat_request *request);

// Whether this is a key of requests: one that is honoured, refused, or known to change nothing.
bool chat_request_knows(const char *key);

#endif
