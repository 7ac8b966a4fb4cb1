// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ROW_ROOM_H
#define KVERN_ENGINE_ROW_ROOM_H

// What a row of a state may take beyond the room that is reserved up to its final length. Three
// things no reservation covers: pages of the chunk that a layer with a window holds beside its
// window while a prompt is appended; those that a row needs in the form that it is converted to;
// and those of a window that it shares with another row.

#include <kvern/kvern.h>

// A sequence in a row.
typedef struct row_room {
    size_t length;    // of its end, at most
    size_t prompt;    // tokens that are appended in chunks; at most `length`
    bool prompt_done; // they have been
    size_t chunk;     // most tokens of one append
    size_t shared;    // tokens that were taken over from another row
} row_room;

// Bytes that the row may still take.
uint64_t row_room_promise(const kvern_state *state, size_t row, const row_room *room);

#endif
