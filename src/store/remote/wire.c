// SPDX-License-Identifier: MIT
#include "src/store/remote/wire.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/store/remote/link.h"
#include "src/store/remote/remote_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What an answer may take at most while it arrives.
#define MOST_ANSWER_BYTES ((size_t)512 << 20)

void kvern_wire_close(kvern_wire *wire)
{
    kvern_tls_free(wire->tls);
    wire->tls = NULL;
    if (wire->redis)
        redisFree(wire->redis);
    wire->redis = NULL;
    wire->pending = wire->in_begin = wire->in_end = wire->out_count = 0;
    wire->is_sent = true;
}

kvern_status kvern_wire_fail(kvern_wire *wire, kvern_status status, kvern_remote_error kind,
                             const char *what)
{
    const kvern_remote_address *a = wire->address;
    char text[256]; // it may be the connection's
    snprintf(text, sizeof text, "%s", what);
    kvern_wire_close(wire);
    wire->counts.errors[kind]++;
    if (a->port)
        return kvern_fail(status, "%s:%d: %s", a->host, a->port, text);
    return kvern_fail(status, "%s: %s", a->host, text);
}

bool kvern_wire_is_given_up(const kvern_wire *wire)
{
    for (size_t i = 0; i < 2; i++) {
        if (wire->given_up[i] && atomic_load(wire->given_up[i]))
            return true;
    }
    return kvern_remote_now() >= wire->deadline;
}

// ---- Connecting ----

static kvern_status introduce(kvern_wire *wire)
{
    const kvern_remote_address *a = wire->address;
    const char *auth[] = {"AUTH", a->user[0] ? a->user : a->password, a->password};
    char number[16];
    snprintf(number, sizeof number, "%d", a->database);
    const char *select[] = {"SELECT", number};
    const char *ping[] = {"PING"};
    size_t count = 1;
    kvern_status status = KVERN_OK;
    if (a->password[0]) {
        status = kvern_wire_add(wire, a->user[0] ? 3 : 2, auth, NULL);
        count++;
    }
    if (!status && a->database) {
        status = kvern_wire_add(wire, 2, select, NULL);
        count++;
    }
    if (!status)
        status = kvern_wire_add(wire, 1, ping, NULL);
    return status ? status : kvern_wire_skip(wire, count);
}

static kvern_status connect_socket(kvern_wire *wire)
{
    const kvern_remote_address *a = wire->address;
    const struct timeval most = {.tv_sec = wire->connect_ms / 1000,
                                 .tv_usec = wire->connect_ms % 1000 * 1000};
    wire->redis = a->port ? redisConnectWithTimeout(a->host, a->port, most)
                          : redisConnectUnixWithTimeout(a->host, most);
    if (!wire->redis)
        return kvern_fail(KVERN_ERR_MEMORY, "no memory for a connection");
    if (wire->redis->err)
        return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_CONNECT, wire->redis->errstr);
    // Answers are read through one buffer, instead of one that grows anew for each.
    wire->redis->reader->maxbuf = 0;
    return kvern_link_begin(wire);
}

kvern_status kvern_wire_connect(kvern_wire *wire)
{
    if (wire->redis)
        return KVERN_OK;
    wire->pending = 0;
    kvern_status status = connect_socket(wire);
    if (status)
        return status;
    wire->counts.connections++;
    return introduce(wire);
}

// ---- Commands ----

static kvern_status send_out(kvern_wire *wire, bool more)
{
    const size_t count = wire->out_count;
    wire->out_count = 0;
    return count ? kvern_link_write(wire, wire->out, count, more) : KVERN_OK;
}

// What does not fit the buffer goes out behind it, from where it is; with TLS through it, for
// records of their full size.
static kvern_status put(kvern_wire *wire, const char *from, size_t bytes)
{
    while (bytes > 0) {
        if (bytes >= KVERN_WIRE_ROOM && !wire->tls) {
            kvern_status status = send_out(wire, true);
            return status ? status : kvern_link_write(wire, from, bytes, true);
        }
        const size_t part = kvern_min_size(bytes, KVERN_WIRE_ROOM - wire->out_count);
        memcpy(wire->out + wire->out_count, from, part);
        wire->out_count += part;
        from += part;
        bytes -= part;
        if (wire->out_count == KVERN_WIRE_ROOM) {
            kvern_status status = send_out(wire, bytes > 0);
            if (status)
                return status;
        }
    }
    return KVERN_OK;
}

static kvern_status put_head(kvern_wire *wire, char kind, size_t number)
{
    char text[32];
    const int bytes = snprintf(text, sizeof text, "%c%zu\r\n", kind, number);
    return put(wire, text, (size_t)bytes);
}

kvern_status kvern_wire_add(kvern_wire *wire, int count, const char *const *parts,
                            const size_t *sizes)
{
    kvern_status status = kvern_wire_connect(wire);
    if (!status)
        status = put_head(wire, '*', (size_t)count);
    for (int i = 0; i < count && !status; i++) {
        const size_t bytes = sizes ? sizes[i] : strlen(parts[i]);
        status = put_head(wire, '$', bytes);
        if (!status)
            status = put(wire, parts[i], bytes);
        if (!status)
            status = put(wire, "\r\n", 2);
    }
    if (status)
        return status;
    wire->pending++;
    wire->is_sent = false;
    return KVERN_OK;
}

// ---- Answers ----

static kvern_status fail_answer(kvern_wire *wire, const char *what)
{
    return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_ANSWER, what);
}

// More of what comes, behind what nobody has read.
static kvern_status fill(kvern_wire *wire)
{
    size_t count;
    memmove(wire->in, wire->in + wire->in_begin, wire->in_end - wire->in_begin);
    wire->in_end -= wire->in_begin;
    wire->in_begin = 0;
    if (wire->in_end == sizeof wire->in)
        return fail_answer(wire, "an answer with a line that is too long");
    kvern_status status =
        kvern_link_read(wire, wire->in + wire->in_end, sizeof wire->in - wire->in_end, &count);
    if (!status)
        wire->in_end += count;
    return status;
}

// The next line, with its end, once all of it is there.
static kvern_status next_line(kvern_wire *wire, size_t *bytes)
{
    for (;;) {
        const char *begin = wire->in + wire->in_begin;
        const size_t there = wire->in_end - wire->in_begin;
        const char *end = there ? memchr(begin, '\n', there) : NULL;
        if (end) {
            *bytes = (size_t)(end - begin) + 1;
            return KVERN_OK;
        }
        kvern_status status = fill(wire);
        if (status)
            return status;
    }
}

// How many bytes of a text the line announces; 0: it is another line, or one of no text.
static size_t text_behind(const char *line)
{
    char *end;
    if (line[0] != '$')
        return 0;
    const long long number = strtoll(line + 1, &end, 10);
    return number > 0 && *end == '\r' ? (size_t)number : 0;
}

// Gives the reader of hiredis the next bytes.
static kvern_status feed(kvern_wire *wire, size_t bytes)
{
    while (bytes > 0) {
        if (wire->in_begin == wire->in_end) {
            kvern_status status = fill(wire);
            if (status)
                return status;
        }
        const size_t part = kvern_min_size(bytes, wire->in_end - wire->in_begin);
        if (redisReaderFeed(wire->redis->reader, wire->in + wire->in_begin, part) != REDIS_OK)
            return fail_answer(wire, "no memory for an answer");
        wire->in_begin += part;
        bytes -= part;
    }
    return KVERN_OK;
}

// Line by line, and each text with its line: the reader never has more than the answer.
static kvern_status read_answer(kvern_wire *wire, redisReply **out)
{
    void *reply = NULL;
    size_t all = 0;
    while (!reply) {
        size_t line;
        kvern_status status = next_line(wire, &line);
        if (status)
            return status;
        const size_t text = text_behind(wire->in + wire->in_begin);
        if (text >= MOST_ANSWER_BYTES || (all += line + text) >= MOST_ANSWER_BYTES)
            return fail_answer(wire, "an answer that is too large");
        status = feed(wire, line + (text ? text + 2 : 0));
        if (status)
            return status;
        if (redisReaderGetReply(wire->redis->reader, &reply) != REDIS_OK)
            return fail_answer(wire, wire->redis->reader->errstr);
    }
    *out = reply;
    return KVERN_OK;
}

// The same where the answer may be a text for `to`.
static kvern_status read_text(kvern_wire *wire, char *to, size_t bytes, redisReply **out)
{
    size_t line, count;
    kvern_status status = next_line(wire, &line);
    if (status)
        return status;
    if (text_behind(wire->in + wire->in_begin) != bytes)
        return read_answer(wire, out);
    wire->in_begin += line;
    count = kvern_min_size(bytes, wire->in_end - wire->in_begin);
    memcpy(to, wire->in + wire->in_begin, count);
    wire->in_begin += count;
    for (size_t done = count; done < bytes; done += count) {
        if ((status = kvern_link_read(wire, to + done, bytes - done, &count)))
            return status;
    }
    if ((status = next_line(wire, &line)))
        return status;
    if (line != 2 || wire->in[wire->in_begin] != '\r')
        return fail_answer(wire, "a text without its end");
    wire->in_begin += line;
    return KVERN_OK;
}

// Before an answer is waited for: the commands are on their way.
static kvern_status begin_answer(kvern_wire *wire, redisReply **out)
{
    *out = NULL;
    if (!wire->redis || wire->pending == 0)
        return kvern_fail(KVERN_ERR_IO, "nothing was asked");
    if (wire->is_sent)
        return KVERN_OK;
    kvern_status status = send_out(wire, false);
    wire->is_sent = true;
    wire->round_trips++;
    return status;
}

kvern_status kvern_wire_next(kvern_wire *wire, redisReply **out)
{
    kvern_status status = begin_answer(wire, out);
    if (!status)
        status = read_answer(wire, out);
    if (!status)
        wire->pending--;
    return status;
}

kvern_status kvern_wire_next_into(kvern_wire *wire, void *to, size_t bytes, redisReply **out)
{
    kvern_status status = begin_answer(wire, out);
    if (!status)
        status = read_text(wire, to, bytes, out);
    if (!status)
        wire->pending--;
    return status;
}

// What the server says, in words that say what can be done about it.
static const char *words_of(const char *error)
{
    if (strncmp(error, "MOVED", 5) == 0 || strncmp(error, "ASK", 3) == 0)
        return "it is one node of a cluster, which this store does not speak with: give it a "
               "server of its own, or a proxy in front of the cluster";
    return error;
}

kvern_status kvern_wire_refused(kvern_wire *wire, const redisReply *reply)
{
    static const char *const passing[] = {"LOADING",    "MOVED",  "ASK",         "CLUSTERDOWN",
                                          "MASTERDOWN", "NOAUTH", "WRONGPASS",   "NOREPLICAS",
                                          "TRYAGAIN",   "BUSY ",  "ERR invalid", "ERR DB"};
    const bool is_error = reply->type == REDIS_REPLY_ERROR;
    const char *text = is_error ? reply->str : "an answer of another kind";
    kvern_status status = KVERN_ERR_UNSUPPORTED;
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
        if (strncmp(text, passing[i], strlen(passing[i])) == 0)
            status = KVERN_ERR_IO;
    }
    return kvern_wire_fail(wire, status,
                           is_error ? KVERN_REMOTE_ERROR_REFUSED : KVERN_REMOTE_ERROR_ANSWER,
                           words_of(text));
}

bool kvern_wire_is_wrong_type(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGTYPE", 9) == 0;
}

kvern_status kvern_wire_skip(kvern_wire *wire, size_t count)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        redisReply *reply;
        status = kvern_wire_next(wire, &reply);
        if (!status && reply->type == REDIS_REPLY_ERROR) {
            (void)kvern_wire_refused(wire, reply);
            status = KVERN_ERR_IO;
        }
        freeReplyObject(reply);
    }
    return status;
}
