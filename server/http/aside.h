// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_ASIDE_H
#define KVERN_SERVER_ASIDE_H

// Work that takes long, on a thread of its own, first come, first served: threads that serve
// connections hand it over, so that other connections do not wait for it.

#include "engine/base/error.h"

#include <stdbool.h>

typedef struct aside aside;

typedef struct aside_work {
    void (*run)(void *user);
    void *user;
    struct aside_work *next;
} aside_work;

// On failure *out is NULL. Errors: KVERN_ERR_MEMORY, KVERN_ERR_THREADS.
KVERN_CHECK kvern_status aside_create(aside **out, engine_error *error);

// `work` is borrowed until it runs. Any thread. False: the thread has ended.
bool aside_add(aside *a, aside_work *work);

// Runs what is left, and ends the thread. NULL is allowed.
void aside_stop(aside *a);
void aside_destroy(aside *a);

#endif
