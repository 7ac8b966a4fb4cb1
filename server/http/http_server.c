// SPDX-License-Identifier: MIT
#include "server/http/http_server.h"

#include "server/http/aside.h"

#include "engine/base/clock.h"

#include <microhttpd.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Threads, each with its part of the connections.
#define THREADS 2
// Bytes of a body that one of them reads itself: what that takes is less than a token.
#define MOST_READ_AT_ONCE 4096
#define STREAM_BLOCK 16384
#define READ_BUFFER 2048
#define STOP_SECONDS 2.0

struct http_server {
    http_options options;
    connections *connections;
    struct MHD_Daemon *daemons[THREADS];
    aside *aside;         // for what takes long
    size_t next;          // daemon
    atomic_size_t bodies; // bytes of all
    atomic_size_t tasks;  // that have not ended
    atomic_bool stopping;
};

// A request, from its first line to the end of its answer.
typedef struct exchange {
    http_server *server;
    struct MHD_Connection *connection;
    int fd;
    unsigned status;         // that it was answered with
    bool closes;             // the connection, after the answer
    bool begun;              // its head has come
    bool received;           // whole
    bool counts;             // in server->tasks
    bool watched;            // its task is told when the client has gone
    const http_fault *fault; // of what came of its body
    text_buffer body;
    size_t counted; // of it in server->bodies
    const char *path;
    http_line line;
    http_task task;
    aside_work work;
    http_reply reply; // that was made aside; status 0: none
    text_buffer out;  // pulled, and to be sent from `sent` on
    size_t sent;
    bool ended;
} exchange;

static const http_fault TOO_LARGE = {413, NULL, "the body of the request is too large"};
static const http_fault BODIES_FULL = {503, "bodies",
                                       "the bodies of other requests leave no room for this one"};
static const http_fault NO_MEMORY = {503, "out_of_memory", "there is no memory for the body"};
static const http_fault ENDS = {503, "draining", "the server ends"};
static const http_fault FOREIGN_HOST = {
    403, "foreign_host",
    "without API keys only localhost and addresses of it are answered as Host"};

static void say_nothing(void *user, const char *format, va_list arguments)
{
    (void)user, (void)format, (void)arguments;
}

// ---- Sleeping ----

static void sleep_connection(void *user)
{
    MHD_suspend_connection(user);
}

static void wake_connection(void *user)
{
    MHD_resume_connection(user);
}

static waker waker_of(const exchange *e)
{
    return (waker){.sleep = sleep_connection, .wake = wake_connection, .user = e->connection};
}

// ---- Replies ----

static void add_headers(const exchange *e, struct MHD_Response *response, const http_reply *reply)
{
    if (e->closes) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    for (size_t i = 0; i < HTTP_MOST_HEADERS && reply->names[i]; i++) {
        MHD_add_response_header(response, reply->names[i], reply->values[i]);
    }
}

static enum MHD_Result send_response(exchange *e, struct MHD_Response *response,
                                     const http_reply *reply)
{
    if (!response) {
        return MHD_NO; // the connection is closed
    }
    add_headers(e, response, reply);
    e->status = reply->status;
    const enum MHD_Result queued = MHD_queue_response(e->connection, reply->status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result send_whole(exchange *e, http_reply *reply)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->body.size, reply->body.data, MHD_RESPMEM_MUST_FREE);
    if (response) {
        reply->body = (text_buffer)TEXT_BUFFER_INIT; // the response has it
    } else {
        text_buffer_free(&reply->body);
    }
    connection_sending(e->server->connections, e->fd);
    return send_response(e, response, reply);
}

// What is left of what was pulled; true: something is.
static bool send_left(exchange *e, char *buffer, size_t most, ssize_t *bytes)
{
    const size_t left = e->out.size - e->sent;
    const size_t count = left < most ? left : most;
    if (count == 0) {
        return false;
    }
    memcpy(buffer, e->out.data + e->sent, count);
    e->sent += count;
    *bytes = (ssize_t)count;
    return true;
}

static ssize_t send_piece(void *user, uint64_t position, char *buffer, size_t most)
{
    exchange *e = user;
    ssize_t bytes = 0;
    (void)position;
    if (send_left(e, buffer, most, &bytes)) {
        return bytes;
    }
    text_buffer_clear(&e->out);
    e->sent = 0;
    if (!e->ended) {
        const waker who = waker_of(e);
        e->ended = e->task.pull(e->task.state, &who, &e->out) == HTTP_END;
        if (e->ended) {
            connection_sending(e->server->connections, e->fd);
        }
    }
    if (send_left(e, buffer, most, &bytes)) {
        return bytes;
    }
    return e->ended ? MHD_CONTENT_READER_END_OF_STREAM : 0;
}

// The connection sleeps until the work, which has to wake it, is done.
static enum MHD_Result put_aside(exchange *e, void (*run)(void *user))
{
    e->work = (aside_work){.run = run, .user = e};
    MHD_suspend_connection(e->connection);
    if (!aside_add(e->server->aside, &e->work)) { // the server ends
        run(e);
    }
    return MHD_YES;
}

static void look_aside(void *user)
{
    exchange *e = user;
    const waker who = waker_of(e);
    (void)e->task.look(e->task.state, &who, &e->reply);
    wake_connection(e->connection);
}

static enum MHD_Result look_at_task(exchange *e)
{
    http_reply reply = {0};
    const waker who = waker_of(e);
    switch (e->task.look(e->task.state, &who, &reply)) {
    case HTTP_WAIT:
        return MHD_YES;
    case HTTP_LONG:
        return put_aside(e, look_aside);
    case HTTP_STREAM:
        connection_streaming(e->server->connections, e->fd);
        return send_response(
            e,
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, send_piece, e, NULL),
            &reply);
    default:
        return send_whole(e, &reply);
    }
}

static enum MHD_Result refuse(exchange *e, const http_fault *fault)
{
    http_reply reply = {0};
    e->server->options.handler.refuse(e->server->options.handler.user, fault, &reply);
    return send_whole(e, &reply);
}

// ---- Receiving ----

static const char *header_of(const http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

static http_request request_of(const exchange *e)
{
    return (http_request){.method = e->line.method,
                          .path = e->path,
                          .body = e->body.data ? e->body.data : "",
                          .body_bytes = e->body.size,
                          .header = header_of,
                          .connection = e->connection};
}

static exchange *begin_exchange(http_server *server, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    exchange *e = info ? calloc(1, sizeof *e) : NULL;
    if (e) {
        *e = (exchange){.server = server, .connection = connection, .fd = info->connect_fd};
    }
    return e;
}

// The first line has come; what is returned is the exchange's state from here on.
static void *note_line(void *user, const char *target, struct MHD_Connection *connection)
{
    exchange *e = begin_exchange(user, connection);
    if (e) {
        e->line.target = target;
        e->line.target_bytes = strlen(target);
    }
    return e;
}

static size_t unescape(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user, (void)connection;
    return http_unescape(text);
}

static bool too_large_by_its_head(const exchange *e)
{
    const char *length =
        MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length && strtoull(length, NULL, 10) > e->server->options.most_body;
}

// A page of another site whose name was made to point at this machine has that name as its Host.
// No browser leaves it out.
static bool is_foreign_host(const exchange *e)
{
    const char *own = e->server->options.local_host;
    const char *host =
        MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    return own && host && !http_is_local(host, own);
}

// What follows such a head may be anything: nothing of it is read.
static enum MHD_Result refuse_head(exchange *e, const http_fault *fault)
{
    e->closes = true;
    return refuse(e, fault);
}

static enum MHD_Result take_head(exchange *e, const char *path, const char *method,
                                 const char *version)
{
    e->path = path;
    e->line.method = method;
    e->line.version = version;
    const http_fault *fault = http_head_fault(e->connection, &e->line);
    http_reply reply = {0};
    const http_request request = request_of(e);
    const http_handler *handler = &e->server->options.handler;
    if (fault) {
        return refuse_head(e, fault);
    }
    if (is_foreign_host(e)) {
        return refuse(e, &FOREIGN_HOST);
    }
    if (!handler->admit(handler->user, &request, &reply)) {
        return send_whole(e, &reply);
    }
    return too_large_by_its_head(e) ? refuse(e, &TOO_LARGE) : MHD_YES;
}

static void forget_body(exchange *e)
{
    atomic_fetch_sub(&e->server->bodies, e->counted);
    e->counted = 0;
    text_buffer_free(&e->body);
}

static const http_fault *keep_body(exchange *e, const char *data, size_t bytes)
{
    const http_options *options = &e->server->options;
    const size_t before = atomic_fetch_add(&e->server->bodies, bytes);
    e->counted += bytes;
    if (e->body.size + bytes > options->most_body) {
        return &TOO_LARGE;
    }
    if (before + bytes > options->most_bodies) {
        return &BODIES_FULL;
    }
    return text_buffer_append(&e->body, data, bytes) == KVERN_OK ? NULL : &NO_MEMORY;
}

// libmicrohttpd lets nobody answer before the end of a body: the rest of one that is refused is
// passed over, and takes no room from others.
static void take_body(exchange *e, const char *data, size_t bytes)
{
    if (e->fault) {
        return;
    }
    e->fault = keep_body(e, data, bytes);
    if (e->fault) {
        forget_body(e);
    }
}

static void tell_gone(void *user)
{
    exchange *e = user;
    e->task.gone(e->task.state);
}

static void tell_expired(void *user)
{
    exchange *e = user;
    e->task.expired(e->task.state);
}

static void watch_exchange(exchange *e)
{
    connection_watch watch = {.user = e};
    if (e->task.state) {
        watch.gone = tell_gone;
        watch.expired = tell_expired;
        e->watched = true;
    }
    connection_busy(e->server->connections, e->fd, &watch);
}

static void answer_now(exchange *e)
{
    const http_request request = request_of(e);
    const http_handler *handler = &e->server->options.handler;
    handler->answer(handler->user, &request, &e->task, &e->reply);
    forget_body(e);
}

static void answer_aside(void *user)
{
    exchange *e = user;
    answer_now(e);
    wake_connection(e->connection);
}

// What was made of the request, if it was aside, is there.
static enum MHD_Result go_on(exchange *e)
{
    if (e->reply.status) {
        return send_whole(e, &e->reply);
    }
    return look_at_task(e);
}

// A task is one from here to the end of the exchange, be it made or not.
static bool begin_task(exchange *e)
{
    e->counts = true;
    atomic_fetch_add(&e->server->tasks, 1);
    return !atomic_load(&e->server->stopping);
}

static enum MHD_Result answer(exchange *e)
{
    if (e->fault || !begin_task(e)) {
        watch_exchange(e);
        return refuse(e, e->fault ? e->fault : &ENDS);
    }
    if (e->body.size > MOST_READ_AT_ONCE) {
        watch_exchange(e);
        return put_aside(e, answer_aside);
    }
    answer_now(e);
    watch_exchange(e);
    return go_on(e);
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *bytes, void **state)
{
    exchange *e = *state;
    (void)user, (void)connection;
    if (!e) {
        return MHD_NO; // there was no memory for it
    }
    if (!e->begun) {
        e->begun = true;
        return take_head(e, path, method, version);
    }
    if (*bytes > 0) {
        take_body(e, data, *bytes);
        *bytes = 0;
        return MHD_YES;
    }
    if (!e->received) {
        e->received = true;
        return answer(e);
    }
    if (!e->watched && e->task.state) {
        watch_exchange(e);
    }
    return go_on(e);
}

static void end_exchange(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    exchange *e = *state;
    (void)user, (void)connection, (void)code;
    *state = NULL;
    if (!e) {
        return;
    }
    http_server *server = e->server;
    if (e->begun) {
        connection_idle(server->connections, e->fd);
    }
    if (e->task.state) {
        e->task.free(e->task.state);
    }
    if (e->counts) {
        atomic_fetch_sub(&server->tasks, 1);
    }
    if (e->status) {
        server->options.handler.note(server->options.handler.user, e->status);
    }
    forget_body(e);
    text_buffer_free(&e->reply.body);
    text_buffer_free(&e->out);
    free(e);
}

static void note_connection(void *user, struct MHD_Connection *connection, void **state,
                            enum MHD_ConnectionNotificationCode code)
{
    http_server *server = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)state;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED && info) {
        connection_closed(server->connections, info->connect_fd);
    }
}

// ---- Life ----

static bool take_connection(void *user, int fd, const struct sockaddr *address, socklen_t bytes)
{
    http_server *server = user;
    server->next = (server->next + 1) % THREADS;
    return MHD_add_connection(server->daemons[server->next], fd, address, bytes) == MHD_YES;
}

// Time is the connections' to watch; the limit here is never reached. What strictness 1 adds is
// what http_head_fault finds, which answers as the rest does: libmicrohttpd 0.9.75 sends the heads
// of its own answers to that twice.
static struct MHD_Daemon *start_daemon(http_server *server)
{
    const http_options *options = &server->options;
    return MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
            MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, handle, server, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(2 * options->connections.most + 64),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, options->most_head + READ_BUFFER + STREAM_BLOCK,
        MHD_OPTION_NOTIFY_COMPLETED, end_exchange, server, MHD_OPTION_NOTIFY_CONNECTION,
        note_connection, server, MHD_OPTION_URI_LOG_CALLBACK, note_line, server,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 0,
        MHD_OPTION_END);
}

static kvern_status start_daemons(http_server *server, engine_error *error)
{
    for (size_t i = 0; i < THREADS; i++) {
        server->daemons[i] = start_daemon(server);
        if (!server->daemons[i]) {
            return engine_fail(error, KVERN_ERR_THREADS, "starting the HTTP server failed");
        }
    }
    const kvern_status status = aside_create(&server->aside, error);
    return status == KVERN_OK ? connections_start(server->connections, error) : status;
}

kvern_status http_server_start(const http_options *options, http_server **out, engine_error *error)
{
    http_server *server = calloc(1, sizeof *server);
    *out = NULL;
    if (!server) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the HTTP server");
    }
    server->options = *options;
    server->options.connections.take = take_connection;
    server->options.connections.user = server;
    kvern_status status =
        connections_create(&server->options.connections, &server->connections, error);
    if (status == KVERN_OK) {
        status = start_daemons(server, error);
    }
    if (status != KVERN_OK) {
        http_server_stop(server);
        return status;
    }
    *out = server;
    return KVERN_OK;
}

// libmicrohttpd ends no connection that sleeps. New tasks are refused by now, and whoever wakes the
// others is about to; what they send has this long.
static void await_tasks(http_server *server)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    const double begin = engine_seconds();
    atomic_store(&server->stopping, true);
    while (atomic_load(&server->tasks) > 0 && engine_seconds() - begin < STOP_SECONDS) {
        nanosleep(&moment, NULL);
    }
}

void http_server_stop(http_server *server)
{
    if (!server) {
        return;
    }
    await_tasks(server);
    if (server->connections) {
        connections_stop(server->connections);
    }
    aside_stop(server->aside); // which wakes its connections
    for (size_t i = 0; i < THREADS; i++) {
        if (server->daemons[i]) {
            MHD_stop_daemon(server->daemons[i]);
        }
    }
    connections_destroy(server->connections);
    aside_destroy(server->aside);
    free(server);
}

uint16_t http_server_port(const http_server *server)
{
    return connections_port(server->connections);
}

connection_counts http_server_connections(const http_server *server)
{
    return connections_count(server->connections);
}
