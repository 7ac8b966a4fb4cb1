// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_CONNECTIONS_H
#define KVERN_SERVER_CONNECTIONS_H

// Who is connected: a thread that accepts, and that watches all connections. It tells at once when
// a client has gone, and ends those that take too long: to send a request, or to take an answer.
//
// There is room for a fixed number. When it is full, the connection goes that has done nothing for
// the longest, a second at least: has sent no whole request, or taken nothing of a whole answer
// that is there. Where there is none, a new one is answered 503 and closed.

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct connections connections;

typedef struct connections_options {
    const char *host;       // a name or a number
    uint16_t port;          // 0: any that is free
    size_t most;            // connections
    size_t most_each;       // of one address; 0: no limit
    double read_seconds;    // for a request to arrive, from the end of the one before it; and
                            // for some of an answer to be taken
    double request_seconds; // from there to the end of its answer; 0: no limit
    // Takes a connection over. False: it was closed.
    bool (*take)(void *user, int fd, const struct sockaddr *address, socklen_t bytes);
    void *user;
} connections_options;

// Listens; connections_start begins to accept. On failure *out is NULL. Errors: KVERN_ERR_IO (the
// address is none, or in use), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status connections_create(const connections_options *options, connections **out,
                                            engine_error *error);
KVERN_CHECK kvern_status connections_start(connections *c, engine_error *error);

// The port that it listens on.
uint16_t connections_port(const connections *c);

// Accepts no more, and ends the thread. Connections stay.
void connections_stop(connections *c);
void connections_destroy(connections *c); // NULL is allowed

// What happens to a request while it is answered. Called on any thread, while a lock is held: they
// may only note it.
typedef struct connection_watch {
    void (*gone)(void *user);    // nobody will read the answer
    void (*expired)(void *user); // it took too long
    void *user;
} connection_watch;

// A request has arrived whole, and is answered from now on; until connection_idle.
void connection_busy(connections *c, int fd, const connection_watch *watch);
// Of a busy one: the whole answer is there, and only has to be taken; or it comes by and by.
void connection_sending(connections *c, int fd);
void connection_streaming(connections *c, int fd);
void connection_idle(connections *c, int fd);
// It is going to be closed.
void connection_closed(connections *c, int fd);

// Connections now; those that were turned away, and those that were ended for a new one or for
// taking too long.
typedef struct connection_counts {
    size_t open;
    uint64_t accepted, refused, evicted, timed_out;
} connection_counts;
connection_counts connections_count(connections *c);

#endif
