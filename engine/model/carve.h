// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CARVE_H
#define KVERN_ENGINE_CARVE_H

// One block of memory for many arrays: the same calls measure it and cut it up.

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define CARVE_ALIGNMENT ((size_t)64)

// Points *array, a pointer to an array of count * size bytes, behind `*bytes` bytes of memory
// (NULL: only measures), and adds to them, up to the alignment. False on overflow.
static inline bool carve_take(unsigned char *memory, size_t *bytes, void *array, size_t count,
                              size_t size)
{
    size_t more;
    if (memory) {
        unsigned char *at = memory + *bytes;
        memcpy(array, &at, sizeof at);
    }
    return !__builtin_mul_overflow(count, size, &more) &&
           !__builtin_add_overflow(*bytes, more, bytes) &&
           !__builtin_add_overflow(*bytes, CARVE_ALIGNMENT - 1, bytes) &&
           (*bytes &= ~(CARVE_ALIGNMENT - 1), true);
}

#endif
