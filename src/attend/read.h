// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_READ_H
#define KVERN_ATTEND_READ_H

// The inside of a read: the rows' tables, retained, with the lengths they had.

#include "src/attend/attend.h"

struct kvern_read {
    kvern_context *context;
    kvern_reservation *reservation; // where its memory may come from; NULL: none
    kvern_composition *composition; // retained: what the two geometries belong to; or NULL
    const kvern_geometry *geometry; // of the planned codecs
    const kvern_geometry *first;    // of rows before `start`; without streams when there are none
    kvern_window window;
    void *blocks; // what the tables of block reads lie in, from the buffers; NULL: there are none
    size_t row_count;
    kvern_read_row rows[];
};

// Makes a read of `row_count` empty rows for the caller to fill, everything else included; the
// context and the reservation (NULL: none) are retained. On failure *out is NULL.
KVERN_CHECK kvern_status kvern_read_create(kvern_context *context, kvern_reservation *reservation,
                                           size_t row_count, kvern_read **out);

// Releases a read of a call that fails: what was taken from the allocator for it goes back there.
void kvern_read_undo(kvern_read *read);

// The rows of a read, as an attend wants them.
kvern_view kvern_read_view(const kvern_read *read);

// Makes sure that `reads` reads of `row_count` rows, open at once and made with the reservation,
// and attends of them that need `scratch_bytes` (see kvern_attend_scratch_bytes; 0: none), one at a
// time, take nothing from the allocator. On failure nothing changed.
KVERN_CHECK kvern_status kvern_read_reserve(kvern_context *context, kvern_reservation **reservation,
                                            size_t reads, size_t row_count, size_t scratch_bytes);

// The bytes that this takes from the allocator.
uint64_t kvern_read_reserved_bytes(size_t reads, size_t row_count, size_t scratch_bytes);

#endif
