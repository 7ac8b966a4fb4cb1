// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_SHELF_H
#define KVERN_BASE_SHELF_H

// Shelves of idle buffers. A buffer that is put back stays with the context and is handed out
// again, so that a decode loop takes nothing from the allocator once it has warmed up or reserved.
// A context has two shelves: few large buffers for the length of one call, and many small ones for
// objects that come and go every token.

#include <kvern/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvern_context kvern_context;
typedef struct kvern_buffer kvern_buffer;

typedef struct kvern_shelf {
    kvern_buffer *idle; // all guarded by the context's lock
    size_t idle_count;
    size_t most_idle; // more than these are released, the smallest first; grows by reservations
} kvern_shelf;

// What a buffer of that size takes from the allocator.
uint64_t kvern_shelf_bytes(size_t bytes);

// Takes a buffer of at least `bytes` bytes, aligned to a cache line, for the caller alone; its
// content is undefined. On failure *out is NULL.
KVERN_CHECK kvern_status kvern_shelf_take(kvern_context *context, kvern_shelf *shelf, size_t bytes,
                                          void **out);

// Puts a buffer back. NULL is allowed.
void kvern_shelf_give(kvern_context *context, kvern_shelf *shelf, void *data);

// Puts a buffer back when the call that took it has failed: one that came from the allocator goes
// back there, so that the failed call has changed nothing. NULL is allowed.
void kvern_shelf_undo(kvern_context *context, kvern_shelf *shelf, void *data);

// Makes sure that `count` idle buffers of at least `bytes` bytes exist; on failure nothing changed.
KVERN_CHECK kvern_status kvern_shelf_reserve(kvern_context *context, kvern_shelf *shelf,
                                             size_t count, size_t bytes);

// Releases all idle buffers (when the context ends).
void kvern_shelf_clear(kvern_context *context, kvern_shelf *shelf);

#endif
