// SPDX-License-Identifier: MIT
#include "src/store/remote/link.h"

#include "src/base/fail.h"
#include "src/store/remote/remote_store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define SLICE_MS 20 // between looks at what was given up

#ifndef MSG_MORE // a hint, which only Linux takes
#define MSG_MORE 0
#endif

static kvern_status give_up(kvern_wire *wire)
{
    return kvern_wire_fail(wire, KVERN_ERR_BUSY, KVERN_REMOTE_ERROR_LATE, "given up");
}

// Waits until the socket is ready to be read (POLLIN) or written (POLLOUT).
static kvern_status wait_for(kvern_wire *wire, short events, uint32_t most_ms)
{
    struct pollfd ready = {.fd = wire->redis->fd, .events = events};
    const int64_t until = kvern_remote_now() + most_ms;
    for (;;) {
        const int found = poll(&ready, 1, SLICE_MS);
        if (found > 0)
            return KVERN_OK;
        if (found < 0 && errno != EINTR)
            return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_CLOSED, strerror(errno));
        // Silence is the server's fault, also where the time is over by it.
        if (kvern_remote_now() >= until)
            return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_SILENT,
                                   events == POLLIN ? "it does not answer in time"
                                                    : "it takes no commands in time");
        if (kvern_wire_is_given_up(wire))
            return give_up(wire);
    }
}

static kvern_status fail_closed(kvern_wire *wire)
{
    return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_CLOSED,
                           "it ended the connection");
}

static kvern_status fail_socket(kvern_wire *wire)
{
    return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_CLOSED, strerror(errno));
}

// What TLS wants before it goes on.
static kvern_status wait_for_tls(kvern_wire *wire, kvern_tls_result result, uint32_t most_ms)
{
    char text[200];
    if (result == KVERN_TLS_READS || result == KVERN_TLS_WRITES)
        return wait_for(wire, result == KVERN_TLS_READS ? POLLIN : POLLOUT, most_ms);
    if (result == KVERN_TLS_ENDED)
        return fail_closed(wire);
    kvern_tls_error(wire->tls, text, sizeof text);
    return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_CLOSED, text);
}

// ---- Beginning ----

static kvern_status greet(kvern_wire *wire)
{
    wire->tls = kvern_tls_make(wire->trust, wire->redis->fd, wire->address->host);
    if (!wire->tls)
        return kvern_wire_fail(wire, KVERN_ERR_IO, KVERN_REMOTE_ERROR_CONNECT, "no TLS for it");
    for (;;) {
        const kvern_tls_result result = kvern_tls_greet(wire->tls);
        if (result == KVERN_TLS_DONE)
            return KVERN_OK;
        kvern_status status = wait_for_tls(wire, result, wire->connect_ms);
        if (status)
            return status;
    }
}

kvern_status kvern_link_begin(kvern_wire *wire)
{
    const int flags = fcntl(wire->redis->fd, F_GETFL);
    if (flags < 0 || fcntl(wire->redis->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return fail_socket(wire);
    return wire->trust ? greet(wire) : KVERN_OK;
}

// ---- Reading ----

static kvern_status read_tls(kvern_wire *wire, void *to, size_t room, size_t *count)
{
    for (;;) {
        const kvern_tls_result result = kvern_tls_read(wire->tls, to, room, count);
        if (result == KVERN_TLS_DONE)
            return KVERN_OK;
        kvern_status status = wait_for_tls(wire, result, wire->answer_ms);
        if (status)
            return status;
    }
}

static kvern_status read_plain(kvern_wire *wire, void *to, size_t room, size_t *count)
{
    for (;;) {
        const ssize_t done = recv(wire->redis->fd, to, room, 0);
        *count = done > 0 ? (size_t)done : 0;
        if (done > 0)
            return KVERN_OK;
        if (done == 0)
            return fail_closed(wire);
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return fail_socket(wire);
        kvern_status status = wait_for(wire, POLLIN, wire->answer_ms);
        if (status)
            return status;
    }
}

kvern_status kvern_link_read(kvern_wire *wire, void *to, size_t room, size_t *count)
{
    if (kvern_wire_is_given_up(wire))
        return give_up(wire);
    kvern_status status =
        wire->tls ? read_tls(wire, to, room, count) : read_plain(wire, to, room, count);
    if (!status)
        wire->counts.received += *count;
    return status;
}

// ---- Writing ----

static kvern_status write_tls(kvern_wire *wire, const void *from, size_t bytes, size_t *count)
{
    for (;;) {
        const kvern_tls_result result = kvern_tls_write(wire->tls, from, bytes, count);
        if (result == KVERN_TLS_DONE)
            return KVERN_OK;
        kvern_status status = wait_for_tls(wire, result, wire->answer_ms);
        if (status)
            return status;
    }
}

static kvern_status write_plain(kvern_wire *wire, const void *from, size_t bytes, bool more,
                                size_t *count)
{
    for (;;) {
        const ssize_t done =
            send(wire->redis->fd, from, bytes, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        *count = done > 0 ? (size_t)done : 0;
        if (done > 0)
            return KVERN_OK;
        if (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return fail_socket(wire);
        kvern_status status = wait_for(wire, POLLOUT, wire->answer_ms);
        if (status)
            return status;
    }
}

kvern_status kvern_link_write(kvern_wire *wire, const void *from, size_t bytes, bool more)
{
    const unsigned char *at = from;
    while (bytes > 0) {
        size_t count;
        if (kvern_wire_is_given_up(wire))
            return give_up(wire);
        kvern_status status = wire->tls ? write_tls(wire, at, bytes, &count)
                                        : write_plain(wire, at, bytes, more, &count);
        if (status)
            return status;
        wire->counts.sent += count;
        at += count;
        bytes -= count;
    }
    return KVERN_OK;
}
