// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_BUFFER_CACHE_H
#define KVERN_BASE_BUFFER_CACHE_H

// Buffers that are put back stay with the context and are handed out again, so that a decode loop
// takes nothing from the allocator once it has warmed up. There are two kinds: few large ones for
// the length of one call, and many small ones for objects that come and go every token.
//
// Whoever has to be sure of its buffers reserves them: a cache or a state does. A reservation's
// buffers are handed out for that reservation alone and return to it, so reservations of one
// context add up.

#include <kvern/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvern_context kvern_context;
typedef struct kvern_buffer kvern_buffer;
typedef struct kvern_reservation kvern_reservation;

typedef enum kvern_buffer_kind {
    KVERN_SCRATCH, // for the length of one call
    KVERN_OBJECT,  // a small object: a read, the arrays of an attend
    KVERN_BUFFER_KINDS
} kvern_buffer_kind;

// The idle buffers of one kind that are nobody's; guarded by the context's lock.
typedef struct kvern_buffer_cache {
    kvern_buffer *idle;
    size_t idle_count;
    size_t most_idle; // more than these are released, the smallest first
} kvern_buffer_cache;

// What a buffer of that size takes from the allocator, and a reservation beside its buffers.
uint64_t kvern_buffer_bytes(size_t bytes);
uint64_t kvern_reservation_bytes(void);

// Takes a buffer of at least `bytes` bytes, aligned to a cache line, for the caller alone: one of
// the reservation (NULL: none), an idle one, or one from the allocator. Its content is undefined.
// On failure *out is NULL.
KVERN_CHECK kvern_status kvern_buffer_take(kvern_context *context, kvern_reservation *reservation,
                                           kvern_buffer_kind kind, size_t bytes, void **out);

// Puts a buffer back. NULL is allowed.
void kvern_buffer_give(kvern_context *context, void *data);

// Puts a buffer back when the call that took it has failed: one that came from the allocator goes
// back there, so that the failed call has changed nothing. NULL is allowed.
void kvern_buffer_undo(kvern_context *context, void *data);

// Gives idle buffers that nobody has reserved back to the allocator: all of them; or, for a caller
// that lacks `bytes`, so many as bring that, or none when all together do not. Returns the bytes.
uint64_t kvern_buffers_release_idle(kvern_context *context);
uint64_t kvern_buffers_release_enough(kvern_context *context, uint64_t bytes);

// Makes sure that *reservation has at least count[kind] buffers of at least bytes[kind] bytes, for
// each kind. NULL
// there becomes a new one, with one reference. It never shrinks. On failure nothing changed.
KVERN_CHECK kvern_status kvern_reservation_extend(kvern_context *context,
                                                  kvern_reservation **reservation,
                                                  const size_t *count, const size_t *bytes);

// What takes buffers of a reservation holds a reference. NULL is allowed in all three.
void kvern_reservation_retain(kvern_reservation *reservation);
void kvern_reservation_release(kvern_context *context, kvern_reservation *reservation);

// For its owner, instead of the release: the buffers go back to the allocator, those in use when
// they are put back.
void kvern_reservation_end(kvern_context *context, kvern_reservation *reservation);

#endif
