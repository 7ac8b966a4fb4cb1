// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_HTTP_SERVER_H
#define KVERN_SERVER_HTTP_SERVER_H

// HTTP by libmicrohttpd: receives requests, has them answered by a handler, and sends what it says,
// whole or as a stream. Nothing of it knows what the requests are about.
//
// An answer that takes time is a task. Its connection sleeps while there is nothing to send, and no
// thread waits for it.

#include "server/base/waker.h"
#include "server/http/connections.h"
#include "server/http/head.h"

#include "engine/base/text_buffer.h"

#define HTTP_MOST_HEADERS 4

// What is answered. All zero is to be filled in.
typedef struct http_reply {
    unsigned status;
    const char *type;                      // of the content; static
    text_buffer body;                      // taken over; of a stream: none
    const char *names[HTTP_MOST_HEADERS];  // of further headers; static; NULL: no more
    const char *values[HTTP_MOST_HEADERS]; // static, or `number`
    char number[16];
} http_reply;

typedef enum http_progress {
    HTTP_WAIT = 0, // there is nothing yet; the waker has been put to sleep
    HTTP_WHOLE,    // of `look`: the reply is there
    HTTP_LONG,     // of `look`: it takes time to write; `look` is called again, by a thread that
                   // no connection waits for, and says HTTP_WHOLE then
    HTTP_STREAM,   // of `look`: the reply's head is there, its body is pulled
    HTTP_PIECE,    // of `pull`: something was appended
    HTTP_END       // of `pull`: there is no more; something may have been appended
} http_progress;

// An answer that takes time. Its functions are called by one thread at a time, but `gone` and
// `expired`, which any thread calls and which only note it.
typedef struct http_task {
    void *state;
    http_progress (*look)(void *state, const waker *who, http_reply *reply);
    http_progress (*pull)(void *state, const waker *who, text_buffer *out);
    void (*gone)(void *state);
    void (*expired)(void *state);
    void (*free)(void *state); // nobody wants the answer any more, or all of it was sent
} http_task;

typedef struct http_request {
    const char *method, *path;
    const char *body; // any bytes; not terminated
    size_t body_bytes;
    // The value of a header; NULL: none. There during the call.
    const char *(*header)(const struct http_request *request, const char *name);
    void *connection;
} http_request;

typedef struct http_handler {
    void *user;
    // When the head of a request is there, before its body: true to go on, or *reply refuses it.
    bool (*admit)(void *user, const http_request *request, http_reply *reply);
    // The whole request: *task (its state is not NULL), or *reply. One with a long body is given to
    // a thread that no connection waits for.
    void (*answer)(void *user, const http_request *request, http_task *task, http_reply *reply);
    // What the server itself refuses: *reply gets a body that says why.
    void (*refuse)(void *user, const http_fault *fault, http_reply *reply);
    // A request was answered with this status. Any thread.
    void (*note)(void *user, unsigned status);
} http_handler;

typedef struct http_options {
    connections_options connections; // but for its callback
    size_t most_body;                // bytes of a request's body
    size_t most_bodies;              // of all bodies at once
    size_t most_head;                // bytes of a request's head, about
    const char *local_host;          // not NULL: a Host must be http_is_local with this one
    http_handler handler;
} http_options;

typedef struct http_server http_server;

// Begins to answer. On failure *out is NULL. Errors: those of connections_create,
// KVERN_ERR_THREADS.
KVERN_CHECK kvern_status http_server_start(const http_options *options, http_server **out,
                                           engine_error *error);

// Ends all connections: of requests that are answered as well. NULL is allowed. Whatever may wake
// them must have ended, or go on to: tasks are told that their client has gone.
void http_server_stop(http_server *server);

uint16_t http_server_port(const http_server *server);
connection_counts http_server_connections(const http_server *server);

#endif
