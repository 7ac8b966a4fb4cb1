// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_UNDO_H
#define KVERN_ROWS_UNDO_H

// How a row is taken back to what it was before a round, with all its pages.

#include "src/rows/row.h"

// What a row shared before a round (include/kvern/round.h) and left when the round first changed
// it. It is held for the row for as long as the round is open.
struct kvern_row_undo {
    bool begun;         // the round has changed the row
    kvern_table *table; // the table that the row shared; or NULL
    kvern_page *tail;   // the partly filled page that it shared, in a table of its own; or NULL

    // A whole row (src/rows/whole_row.h) keeps its page as `tail`, whether it shared it or not.
    int64_t begin;         // its length before the round
    size_t spare, passing; // of the row, likewise
    kvern_page *records;   // what the round's tokens put into it; or NULL
    int64_t replayed;      // tokens of them that are being replayed
};

// The end of a round in which the row grew from `begin` positions: it is left with `length` of
// them, and with the pages that it would have if it had never been longer. Cannot fail.
void kvern_row_take_back(kvern_row *row, kvern_row_undo *undo, int64_t begin, int64_t length);

// Lets go of what an undo holds.
void kvern_row_undo_clear(kvern_row_undo *undo);

#endif
