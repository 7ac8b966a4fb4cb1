// SPDX-License-Identifier: MIT
#include "engine/base/hash.h"

#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/random.h> // getentropy, which others have in unistd.h
#endif

uint64_t hash_seed(void)
{
    uint64_t seed;
    if (getentropy(&seed, sizeof seed) == 0)
        return seed;
    // A system without randomness: where the stack lies and what time it is are better than
    // nothing.
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t known[] = {(uint64_t)(uintptr_t)&seed, (uint64_t)now.tv_nsec};
    return hash_bytes(known, sizeof known, (uint64_t)now.tv_sec);
}
