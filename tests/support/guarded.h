// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_GUARDED_H
#define KVERN_TESTS_SUPPORT_GUARDED_H

// Buffers between two unreadable pages: an access just outside ends the test.

#include <stddef.h>

typedef struct guarded {
    unsigned char *data; // they end at (or begin behind) an unreadable page
    size_t bytes;
    void *mapping;
    size_t mapped_bytes;
} guarded;

// At the end of the readable pages, so that reading past the end is caught. The content is zero.
guarded guarded_at_end(size_t bytes);

// At the start of the readable pages, so that reading before the start is caught.
guarded guarded_at_start(size_t bytes);

// The last `bytes` bytes.
void *guarded_last(const guarded *buffer, size_t bytes);

void guarded_free(guarded *buffer);

#endif
