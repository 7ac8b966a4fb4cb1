// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_WAKER_H
#define KVERN_SERVER_WAKER_H

// Who waits for news of something, and how. The lock of that thing guards it.

#include <stdbool.h>

typedef struct waker {
    bool waiting;
    void (*sleep)(void *user); // to be called while the lock is held, by the thread that waits
    void (*wake)(void *user);  // likewise, by any thread
    void *user;
} waker;

// There is nothing yet: `who` sleeps until the next waker_wake.
static inline void waker_sleep(waker *w, const waker *who)
{
    *w = *who;
    w->waiting = true;
    w->sleep(w->user);
}

// Wakes, if somebody waits.
static inline void waker_wake(waker *w)
{
    if (w->waiting) {
        w->waiting = false;
        w->wake(w->user);
    }
}

#endif
