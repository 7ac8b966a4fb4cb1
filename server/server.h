// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_H
#define KVERN_SERVER_H

// A server of a model: what `kvern serve` runs (docs/server.md).
//
// server/worker owns the scheduler, on one thread. server/http speaks HTTP, on a few. server/api is
// between them: it knows what requests mean. server/page is what a browser gets.

#include "engine/request/chat_request.h"

#include "server/api/api_keys.h"
#include "server/worker/worker.h"

typedef struct server server;

// Borrowed until server_stop.
typedef struct server_options {
    const char *host;
    bool is_private;        // `host` is this machine's for itself, and anybody on it may ask
    uint16_t port;          // 0: any that is free
    const char *model_name; // as clients call it
    worker_options worker;
    const chat_template *chat;      // NULL: messages are refused
    chat_request_defaults defaults; // but for the seed
    bool fixed_seed;                // these have a seed
    api_keys *keys;                 // NULL: anybody may ask
    size_t most_choices;            // answers of one request
    size_t most_body;               // bytes of a request's body
    size_t most_waiting;            // bytes of a stream that may wait for its reader
    size_t connections;             // at once
    size_t connections_each;        // of one address; 0: no limit
    double read_seconds;            // for a request to arrive
    double request_seconds;         // from there to the end of its answer; 0: no limit
} server_options;

// Listens and answers. On failure *out is NULL.
KVERN_CHECK kvern_status server_start(const server_options *options, server **out,
                                      engine_error *error);

uint16_t server_port(const server *s);

// From now on completions are refused; what runs goes on for so long at most. False: some of it was
// cancelled then.
bool server_drain(server *s, double seconds);

// Ends what is left, and the server. NULL is allowed.
void server_stop(server *s);

#endif
