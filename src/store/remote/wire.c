// SPDX-License-Identifier: MIT
#include "src/store/remote/wire.h"

#include "src/base/fail.h"
#include "src/store/remote/remote_store.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

// What an answer may take at most while it arrives.
#define MOST_ANSWER_BYTES ((size_t)512 << 20)
#define SLICE_MS 20 // between looks at what was given up

void kvern_wire_close(kvern_wire *wire)
{
    if (wire->redis)
        redisFree(wire->redis);
    wire->redis = NULL;
    wire->pending = 0;
    wire->is_sent = true;
}

static kvern_status fail(kvern_wire *wire, kvern_status status, const char *what)
{
    const kvern_remote_address *a = wire->address;
    char text[sizeof wire->redis->errstr];
    snprintf(text, sizeof text, "%s", what);
    kvern_wire_close(wire);
    if (a->port)
        return kvern_fail(status, "%s:%d: %s", a->host, a->port, text);
    return kvern_fail(status, "%s: %s", a->host, text);
}

static const char *error_of(const kvern_wire *wire)
{
    return wire->redis->errstr[0] ? wire->redis->errstr : "the connection failed";
}

// ---- Connecting ----

static struct timeval time_of(uint32_t milliseconds)
{
    return (struct timeval){.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
}

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

kvern_status kvern_wire_connect(kvern_wire *wire)
{
    const kvern_remote_address *a = wire->address;
    const struct timeval most = time_of(wire->connect_ms), answer = time_of(wire->answer_ms);
    if (wire->redis)
        return KVERN_OK;
    wire->pending = 0;
    wire->redis = a->port ? redisConnectWithTimeout(a->host, a->port, most)
                          : redisConnectUnixWithTimeout(a->host, most);
    if (!wire->redis)
        return kvern_fail(KVERN_ERR_MEMORY, "no memory for a connection");
    if (wire->redis->err)
        return fail(wire, KVERN_ERR_IO, error_of(wire));
    if (redisSetTimeout(wire->redis, answer) != REDIS_OK)
        return fail(wire, KVERN_ERR_IO, error_of(wire));
    // Answers are read through one buffer, instead of one that grows anew for each.
    wire->redis->reader->maxbuf = 0;
    return introduce(wire);
}

// ---- Commands and answers ----

kvern_status kvern_wire_add(kvern_wire *wire, int count, const char *const *parts,
                            const size_t *sizes)
{
    kvern_status status = kvern_wire_connect(wire);
    if (status)
        return status;
    if (redisAppendCommandArgv(wire->redis, count, (const char **)(uintptr_t)parts, sizes) !=
        REDIS_OK)
        return fail(wire, KVERN_ERR_IO, error_of(wire));
    wire->pending++;
    wire->is_sent = false;
    return KVERN_OK;
}

static bool is_given_up(const kvern_wire *wire)
{
    for (size_t i = 0; i < 2; i++) {
        if (wire->given_up[i] && atomic_load(wire->given_up[i]))
            return true;
    }
    return kvern_remote_now() >= wire->deadline;
}

static kvern_status send_all(kvern_wire *wire)
{
    int done = 0;
    while (!done) {
        if (is_given_up(wire))
            return fail(wire, KVERN_ERR_BUSY, "given up");
        if (redisBufferWrite(wire->redis, &done) != REDIS_OK)
            return fail(wire, KVERN_ERR_IO,
                        errno == EAGAIN ? "it takes no commands in time" : error_of(wire));
    }
    wire->is_sent = true;
    wire->round_trips++;
    return KVERN_OK;
}

// Waits until there is something to read.
static kvern_status wait_for_bytes(kvern_wire *wire)
{
    struct pollfd ready = {.fd = wire->redis->fd, .events = POLLIN};
    const int64_t until = kvern_remote_now() + wire->answer_ms;
    for (;;) {
        const int found = poll(&ready, 1, SLICE_MS);
        if (found > 0)
            return KVERN_OK;
        if (found < 0 && errno != EINTR)
            return fail(wire, KVERN_ERR_IO, strerror(errno));
        // Silence is the server's fault, also where the time is over by it.
        if (kvern_remote_now() >= until)
            return fail(wire, KVERN_ERR_IO, "it does not answer in time");
        if (is_given_up(wire))
            return fail(wire, KVERN_ERR_BUSY, "given up");
    }
}

static kvern_status read_bytes(kvern_wire *wire)
{
    kvern_status status = wait_for_bytes(wire);
    if (status)
        return status;
    if (is_given_up(wire))
        return fail(wire, KVERN_ERR_BUSY, "given up");
    if (redisBufferRead(wire->redis) != REDIS_OK)
        return fail(wire, KVERN_ERR_IO, error_of(wire));
    if (wire->redis->reader->len - wire->redis->reader->pos > MOST_ANSWER_BYTES)
        return fail(wire, KVERN_ERR_IO, "an answer that is too large");
    return KVERN_OK;
}

kvern_status kvern_wire_next(kvern_wire *wire, redisReply **out)
{
    void *reply = NULL;
    *out = NULL;
    if (!wire->redis || wire->pending == 0)
        return kvern_fail(KVERN_ERR_IO, "nothing was asked");
    while (!reply) {
        kvern_status status = KVERN_OK;
        if (redisGetReplyFromReader(wire->redis, &reply) != REDIS_OK)
            return fail(wire, KVERN_ERR_IO, error_of(wire));
        if (!reply && !wire->is_sent)
            status = send_all(wire);
        else if (!reply)
            status = read_bytes(wire);
        if (status)
            return status;
    }
    wire->pending--;
    *out = reply;
    return KVERN_OK;
}

kvern_status kvern_wire_refused(kvern_wire *wire, const redisReply *reply)
{
    static const char *const passing[] = {"LOADING",    "MOVED",  "ASK",         "CLUSTERDOWN",
                                          "MASTERDOWN", "NOAUTH", "WRONGPASS",   "NOREPLICAS",
                                          "TRYAGAIN",   "BUSY ",  "ERR invalid", "ERR DB"};
    const char *text = reply->type == REDIS_REPLY_ERROR ? reply->str : "an answer of another kind";
    kvern_status status = KVERN_ERR_UNSUPPORTED;
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
        if (strncmp(text, passing[i], strlen(passing[i])) == 0)
            status = KVERN_ERR_IO;
    }
    return fail(wire, status, text);
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
