// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_API_H
#define KVERN_SERVER_API_H

// What the server answers: OpenAI's interface for completions, and looks at the server itself
// (docs/server.md).

#include "engine/chat/chat.h"
#include "engine/request/chat_request.h"

#include "server/api/api_keys.h"
#include "server/http/http_server.h"
#include "server/worker/worker.h"

#include <stdatomic.h>

// Borrowed as long as the server.
typedef struct api_options {
    const char *model_name;
    const tokenizer *tokens;
    const chat_template *chat;      // NULL: there is none, and messages are refused
    chat_request_defaults defaults; // but for the seed
    bool fixed_seed;                // the defaults have a seed; else each request gets a random one
    size_t context_length;
    size_t most_text;    // bytes of a prompt: completion_most_text
    size_t most_choices; // answers of one request
    size_t most_waiting; // bytes of a stream that may wait for its reader
    api_keys *keys;      // NULL: anybody may ask
} api_options;

typedef struct api {
    api_options options;
    worker *worker;
    int64_t created; // seconds since 1970
    atomic_uint_fast64_t ids;
    atomic_uint_fast64_t statuses[600]; // answers by status
    atomic_uint_fast64_t slow_readers, disconnects;
    _Atomic(http_server *) http; // for its counts; NULL until it has started
} api;

http_handler api_handler(api *a);

// Parses a body as a JSON object. NULL: *error says why.
json_t *api_read_object(const http_request *request, api_error *error);

// *reply becomes an error, or a value with status 200, which is released; NULL: no memory.
void api_reply_error(const api_error *error, http_reply *reply);
void api_reply_json(json_t *value, http_reply *reply);

#define API_JSON "application/json"

// ---- Routes, each in a file of its own ----

void api_complete_chat(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_complete_text(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_list_models(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_tokenize(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_detokenize(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_metrics(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_cache(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_health(api *a, const http_request *request, http_task *task, http_reply *reply);
void api_page(api *a, const http_request *request, http_task *task, http_reply *reply);

#endif
