// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_UNDO_H
#define KVERN_ROWS_UNDO_H

// How a row is taken back to what it was before a round, with all its bytes.

#include "src/rows/row.h"

// What a row had before a round (include/kvern/round.h), as far as the round gave it something
// else. For as long as the round is open, a table that others hold is held for it too, and one that
// has become too small lies here empty.
typedef enum kvern_undo_kind {
    KVERN_UNDO_NOTHING = 0, // the row still has its table
    KVERN_UNDO_NO_TABLE,    // it had none
    KVERN_UNDO_TABLE,       // it shared `table`
    KVERN_UNDO_EMPTIED      // its pages moved out of `table`
} kvern_undo_kind;

struct kvern_row_undo {
    kvern_undo_kind kind;
    bool begun;  // the round has changed the row
    bool copied; // the partly filled page is a copy that was taken for the round
    bool took;   // and so are the pages from table entry `fresh` on
    size_t fresh;
    kvern_table *table;
    kvern_page *tail; // the partly filled page that the row shared; or NULL
};

// The end of a round in which the row grew from `begin` positions: it is left with `length` of
// them, and with what it would have if it had never been longer. Cannot fail.
void kvern_row_take_back(kvern_row *row, kvern_row_undo *undo, int64_t begin, int64_t length);

// Lets go of what an undo holds.
void kvern_row_undo_clear(kvern_row_undo *undo);

#endif
