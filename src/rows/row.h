// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_ROW_H
#define KVERN_ROWS_ROW_H

// A row: one sequence in one layer. Its positions lie in pages, in order, never padded; page i
// holds the positions 64 i to 64 i + 63. A row with a window (src/rows/window.h) drops pages of
// which nothing can be seen any more: those behind the pages of kept positions, oldest first.
//
// The list of pages, a table, is shared by reference count: a read or a fork retains the table,
// whatever its length, and the row makes a table of its own before it next changes anything that
// the others see. The same holds for the last, partly filled page.
//
// A change has two halves. kvern_row_prepare takes everything that can fail; kvern_row_commit
// cannot fail. Between them nothing has changed, so several rows can change together or not at all.

#include "src/pages/pool.h"

#include <stdbool.h>

typedef struct kvern_table {
    _Atomic size_t references;
    kvern_pool *pool;
    size_t capacity;
    size_t count; // pages held; those behind the row's length are room
    size_t kept;  // the first pages of the row, which stay
    size_t gap;   // pages of the row that were dropped behind them
    kvern_page *pages[];
} kvern_table;

typedef struct kvern_row {
    kvern_table *table; // NULL while it never held anything
    int64_t length;     // positions
    int64_t held;       // the kept positions and those from here on can be attended
    size_t reserved;    // pages that are kept as room
    size_t promised;    // the same, for the length of an open step
    bool slotted;       // its token of the open step has been stored behind its length
    bool converted;     // its pages have the planned codecs, not those of before `start`
    int64_t floor;      // length when it was converted, 0 for none: what is below was another form
    int64_t boundary;   // not to be converted below this length
} kvern_row;

typedef struct kvern_row_undo kvern_row_undo;

typedef struct kvern_row_change {
    kvern_table *table;                // the row's table after the change: its own or a new one
    size_t dropped;                    // pages behind the kept ones that a new table does without
    size_t fresh_begin, fresh_end;     // pages taken for it
    size_t surplus_begin, surplus_end; // pages in front of those that go when it is committed
    kvern_page *copy;                  // replaces the shared, partly filled page; or NULL
} kvern_row_change;

// Positions of a row at most: far above any model, far below any overflow.
#define KVERN_MAX_POSITIONS (INT64_C(1) << 40)

size_t kvern_pages_of(int64_t positions);

// Page number `page` of the row, which must be held.
static inline kvern_page *kvern_table_page(const kvern_table *table, size_t page)
{
    return table->pages[page < table->kept ? page : page - table->gap];
}

// Pages that a table holds for a row of `length` positions, room not counted.
size_t kvern_table_used(const kvern_table *table, int64_t length);

// Prepares that the positions [row->length, new_length) can be written, and that at least
// row->reserved or `reserve` pages are held. new_length >= row->length. `keep`: kept positions.
// Pages below row->held become room.
KVERN_CHECK kvern_status kvern_row_prepare(kvern_pool *pool, kvern_row *row, int64_t keep,
                                           int64_t new_length, size_t reserve,
                                           kvern_row_change *change);

// Pages that preparing to write up to `new_length` would take, for growth and as a copy.
size_t kvern_row_foresee(const kvern_row *row, int64_t keep, int64_t new_length);

// Within a round, `undo` (src/rows/undo.h) keeps what the row loses; else it is NULL.
void kvern_row_commit(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo);
void kvern_row_cancel(kvern_row *row, kvern_row_change *change);

// Notes that nothing between the kept positions and `held` can be seen any more. Pages that lie
// there go, unless somebody else holds the table: then they go with the next change.
void kvern_row_settle(kvern_row *row, int64_t keep, int64_t held);

// Drops the newest positions down to `length`, and the pages that are neither used nor reserved.
void kvern_row_truncate(kvern_row *row, int64_t length);

// Empties the row and gives up its reserved room.
void kvern_row_reset(kvern_row *row);

// *to becomes another row with the same positions. Cannot fail. *to must be empty.
void kvern_row_share(const kvern_row *from, kvern_row *to);

// Bytes of the pages that the row holds.
uint64_t kvern_row_bytes(const kvern_row *row);

// Makes a table without pages, with one reference.
KVERN_CHECK kvern_status kvern_table_create(kvern_pool *pool, size_t capacity, kvern_table **out);
bool kvern_table_is_shared(const kvern_table *table);
bool kvern_table_is_exclusive(const kvern_table *table); // there is one, and nobody else holds it

void kvern_table_retain(kvern_table *table);
void kvern_table_release(kvern_table *table); // NULL is allowed

#endif
