// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CLOCK_H
#define KVERN_ENGINE_CLOCK_H

#include <time.h>

// Seconds on a clock that never goes back.
static inline double engine_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
