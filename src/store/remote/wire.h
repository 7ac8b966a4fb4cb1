// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_REMOTE_WIRE_H
#define KVERN_STORE_REMOTE_WIRE_H

// A connection to a Redis server, of one thread. Commands are collected, and sent when there are
// many or when the first of their answers is asked for, so that any number of them takes one round
// trip. hiredis connects and reads answers; bytes go through here, so that a large answer arrives
// where it is wanted, without a copy between.
//
// Errors of the wire: KVERN_ERR_IO (the server does not answer in time, or has gone, or refuses),
// KVERN_ERR_BUSY (the time of what is being done is over, or it was given up: the server is not to
// blame). After either the connection is closed, and the next call connects again.

#include "src/store/remote/tls.h"

#include <hiredis/hiredis.h>
#include <kvern/remote_store.h>
#include <kvern/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVERN_REMOTE_NAME_BYTES 256
#define KVERN_WIRE_ROOM 16384 // of what comes, and of what goes

// Where a server is.
typedef struct kvern_remote_address {
    char host[KVERN_REMOTE_NAME_BYTES]; // or the path of a socket
    int port;                           // 0: a socket
    char user[KVERN_REMOTE_NAME_BYTES], password[KVERN_REMOTE_NAME_BYTES]; // "": none
    int database;
    bool is_secure; // TLS
} kvern_remote_address;

// Reads a URL (kvern/remote_store.h). Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_remote_address_read(const char *url, kvern_remote_address *out);

// What a wire has counted since somebody last took it (kvern_remote_count_wire).
typedef struct kvern_wire_counts {
    uint64_t connections; // that were made
    uint64_t received, sent;
    uint64_t errors[KVERN_REMOTE_ERRORS];
} kvern_wire_counts;

typedef struct kvern_wire {
    const kvern_remote_address *address;
    const kvern_tls_trust *trust; // NULL: the address is not secure
    uint32_t connect_ms, answer_ms;
    redisContext *redis;            // NULL: not connected
    kvern_tls *tls;                 // NULL: plain bytes
    int64_t deadline;               // of what is being done, kvern_remote_now; INT64_MAX: none
    const atomic_bool *given_up[2]; // either; NULL: nothing to look at
    uint64_t round_trips;           // waits for answers
    size_t pending;                 // answers that are to come
    bool is_sent;                   // nobody has waited for answers since the last command
    size_t in_begin, in_end;        // of `in`: bytes that nobody has read
    size_t out_count;               // of `out`: bytes that have not been sent
    kvern_wire_counts counts;
    char in[KVERN_WIRE_ROOM], out[KVERN_WIRE_ROOM];
} kvern_wire;

// Connects, where that has not been done.
KVERN_CHECK kvern_status kvern_wire_connect(kvern_wire *wire);
void kvern_wire_close(kvern_wire *wire);

// Adds a command of `count` parts, with their sizes; NULL: of texts. They are copied or sent.
KVERN_CHECK kvern_status kvern_wire_add(kvern_wire *wire, int count, const char *const *parts,
                                        const size_t *sizes);

// The next answer, which the caller frees (freeReplyObject).
KVERN_CHECK kvern_status kvern_wire_next(kvern_wire *wire, redisReply **out);

// The same, but for a text of just `bytes` bytes (not 0): these go to `to`, and *out is NULL. On
// failure what is at `to` is unspecified.
KVERN_CHECK kvern_status kvern_wire_next_into(kvern_wire *wire, void *to, size_t bytes,
                                              redisReply **out);

// The next answers are of no interest, unless one is an error: KVERN_ERR_IO.
KVERN_CHECK kvern_status kvern_wire_skip(kvern_wire *wire, size_t count);

// What an error of the server means for whoever wrote: KVERN_ERR_IO where nothing can be had from
// it at present, KVERN_ERR_UNSUPPORTED where this was refused. Closes the connection.
kvern_status kvern_wire_refused(kvern_wire *wire, const redisReply *reply);

// Whether an answer is the error of a value of another type.
bool kvern_wire_is_wrong_type(const redisReply *reply);

// The wire is closed: a failure of this kind and status, with the server's name in front of what
// is said.
kvern_status kvern_wire_fail(kvern_wire *wire, kvern_status status, kvern_remote_error kind,
                             const char *what);

// Whether what is being done was given up, or its time is over.
bool kvern_wire_is_given_up(const kvern_wire *wire);

#endif
