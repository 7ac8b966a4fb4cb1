// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_REMOTE_PROXY_H
#define KVERN_TESTS_SUPPORT_REMOTE_PROXY_H

// Stands in front of the Redis server of a bed (tests/support/remote_bed.h) and gives it one
// command after the other, each when the one before was answered, so that it can be killed behind
// any of them: by SIGKILL, with so many commands done and no other begun.

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define REMOTE_PROXY_CONNECTIONS 64

typedef struct remote_proxy {
    int listens;
    pthread_t thread;
    atomic_bool ends;
    // Behind so many commands the server is killed; negative: it lives.
    atomic_long kill_after;
    bool keeps_last;      // the last answer does not reach the client
    atomic_long commands; // that the server answered
    atomic_bool has_killed;
    atomic_uint connections;
} remote_proxy;

void remote_proxy_begin(remote_proxy *proxy);
void remote_proxy_end(remote_proxy *proxy); // stores at it have been closed
const char *remote_proxy_url(void);

#endif
