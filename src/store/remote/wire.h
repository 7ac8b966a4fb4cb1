// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_REMOTE_WIRE_H
#define KVERN_STORE_REMOTE_WIRE_H

// A connection to a Redis server, of one thread. Commands are collected and sent when the first of
// their answers is asked for, so that any number of them takes one round trip.
//
// Errors of the wire: KVERN_ERR_IO (the server does not answer in time, or has gone, or refuses),
// KVERN_ERR_BUSY (the time of what is being done is over, or it was given up: the server is not to
// blame). After either the connection is closed, and the next call connects again.

#include <hiredis/hiredis.h>
#include <kvern/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVERN_REMOTE_NAME_BYTES 256

// Where a server is.
typedef struct kvern_remote_address {
    char host[KVERN_REMOTE_NAME_BYTES]; // or the path of a socket
    int port;                           // 0: a socket
    char user[KVERN_REMOTE_NAME_BYTES], password[KVERN_REMOTE_NAME_BYTES]; // "": none
    int database;
} kvern_remote_address;

// Reads a URL (kvern/remote_store.h). Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_remote_address_read(const char *url, kvern_remote_address *out);

typedef struct kvern_wire {
    const kvern_remote_address *address;
    uint32_t connect_ms, answer_ms;
    redisContext *redis;            // NULL: not connected
    int64_t deadline;               // of what is being done, kvern_remote_now; INT64_MAX: none
    const atomic_bool *given_up[2]; // either; NULL: nothing to look at
    uint64_t round_trips;           // waits for answers
    size_t pending;                 // answers that are to come
    bool is_sent;                   // all commands
} kvern_wire;

// Connects, where that has not been done.
KVERN_CHECK kvern_status kvern_wire_connect(kvern_wire *wire);
void kvern_wire_close(kvern_wire *wire);

// Adds a command of `count` parts, with their sizes; NULL: of texts.
KVERN_CHECK kvern_status kvern_wire_add(kvern_wire *wire, int count, const char *const *parts,
                                        const size_t *sizes);

// The next answer, which the caller frees (freeReplyObject).
KVERN_CHECK kvern_status kvern_wire_next(kvern_wire *wire, redisReply **out);

// The next answer is of no interest, unless it is an error: KVERN_ERR_IO.
KVERN_CHECK kvern_status kvern_wire_skip(kvern_wire *wire, size_t count);

// What an error of the server means for whoever wrote: KVERN_ERR_IO where nothing can be had from
// it at present, KVERN_ERR_UNSUPPORTED where this was refused. Closes the connection.
kvern_status kvern_wire_refused(kvern_wire *wire, const redisReply *reply);

// Whether an answer is the error of a value of another type.
bool kvern_wire_is_wrong_type(const redisReply *reply);

#endif
