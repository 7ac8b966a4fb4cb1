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
// Tables hold pages with positions, nothing else. Pages for what is yet to come, room, are on a
// list of the row: nobody else sees them, and who shares the table does not hold them.
//
// A change has two halves. kvern_row_prepare takes everything that can fail; kvern_row_commit
// cannot fail. Between them nothing has changed, so several rows can change together or not at all.
// kvern_row_extend then turns room into pages with positions.
//
// A row gives back what it does not need: pages that its window has passed, and those behind its
// length. In a table that others hold too it cannot drop any; so it leaves that table for one of
// its own, best effort, and the pages go when the last of the others lets go, on whatever thread.
// Where that cannot be done, the next call on the row tries again.

#include "src/pages/pool.h"
#include "src/rows/ranges.h"

#include <stdbool.h>

typedef struct kvern_table {
    _Atomic size_t references;
    kvern_pool *pool;
    size_t stored; // entries of the context's store that have it (src/store/claim.h)
    size_t capacity;
    size_t count; // pages
    size_t kept;  // the first pages of the row, which stay
    size_t gap;   // pages of the row that were dropped behind them
    bool whole;   // one page holds the row, whatever its length (src/rows/whole_row.h)
    kvern_page *pages[];
} kvern_table;

typedef struct kvern_row {
    kvern_table *table; // NULL while it never held anything
    kvern_page *room;   // pages of this row alone, through kvern_page.next
    size_t room_count;
    kvern_page *later; // the same, in the planned form, for a row that is not converted yet
    size_t later_count;
    kvern_page *before;    // of a whole row: its page before the open step; or NULL
    int64_t length;        // positions
    int64_t held;          // the kept positions and those from here on can be attended
    size_t kept;           // pages of the kept positions; where `held` is not 0
    size_t reserved;       // pages that it is to have at least, those with positions among them
    size_t passing;        // and as many more: shared ones that its window will leave to others
    size_t promised;       // the same, for the length of an open step
    size_t spare;          // of a whole row: the same, for its next step
    size_t reserved_later; // the same, for when it has been converted
    bool slotted;          // its token of the open step has been stored behind its length
    bool handed_out;       // the caller has that token's address, and may write there
    bool converted;        // its pages have the planned codecs, not those of before `start`
    int64_t floor;    // length when it was converted, 0 for none: what is below was another form
    int64_t boundary; // not to be converted below this length
    kvern_ranges *ranges; // positions that see each other both ways; NULL: none
    size_t range_count;   // of them; they end at the row's length or before
} kvern_row;

typedef struct kvern_row_undo kvern_row_undo;

typedef struct kvern_row_change {
    kvern_table *table;            // the row's table after the change: its own or a new one
    size_t total;                  // pages that the row has afterwards, room among them
    size_t dropped;                // pages behind the kept ones that a new table does without
    size_t fresh_begin, fresh_end; // new pages, which lie behind those in use until the commit
    kvern_page *copy;              // replaces the shared, partly filled page; or NULL
    kvern_page *later;             // new pages for later, through kvern_page.next
    kvern_page *room;              // of a whole row: new pages, likewise
    size_t promised;               // likewise: what the row is promised for the open step
    kvern_ranges *ranges;          // the row's when the change is stored; NULL: as before
} kvern_row_change;

// Positions of a row at most: far above any model, far below any overflow.
#define KVERN_MAX_POSITIONS (INT64_C(1) << 40)

size_t kvern_pages_of(int64_t positions);

// Page number `page` of the row, which must be held.
static inline kvern_page *kvern_table_page(const kvern_table *table, size_t page)
{
    return table->pages[page < table->kept ? page : page - table->gap];
}

// Pages that a table has for a row of `length` positions.
size_t kvern_table_used(const kvern_table *table, int64_t length);

// Prepares that the positions [row->length, new_length) can be written, and that the row has
// row->reserved and `reserve` pages at least. new_length >= row->length. Pages that nobody can see
// any more become room or go, also when the call fails.
KVERN_CHECK kvern_status kvern_row_prepare(kvern_pool *pool, kvern_row *row, int64_t new_length,
                                           size_t reserve, kvern_row_change *change);

// What a row is to have set aside.
typedef struct kvern_row_room {
    size_t pages;           // those with positions among them
    kvern_pool *pool;       // where these come from: of the row's present form
    size_t later;           // pages for when it has been converted; of a whole row, for rounds
    kvern_pool *later_pool; // where these come from; NULL when there are none
    bool whole;             // a whole row (src/rows/whole_row.h)
} kvern_row_room;

// Prepares that the row has that room, and a table that is large enough for it. After the commit
// the caller sets what is reserved.
KVERN_CHECK kvern_status kvern_row_prepare_room(kvern_row *row, const kvern_row_room *room,
                                                kvern_row_change *change);

// Of the row's pages, those that somebody else can see.
size_t kvern_row_shared_pages(const kvern_row *row);

// Pages that preparing to write up to `new_length` would take, for growth and as a copy.
size_t kvern_row_foresee(const kvern_row *row, int64_t new_length);

// Within a round, `undo` (src/rows/undo.h) keeps what the row leaves; else it is NULL.
void kvern_row_commit(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo);
void kvern_row_cancel(kvern_row *row, kvern_row_change *change);

// Whether the positions [row->length, new_length) can be written without a change: nobody else sees
// the table or its last page, and there is room.
bool kvern_row_is_open(const kvern_row *row, int64_t new_length);

// Puts room behind the row's pages, so that there is one for each position below `new_length`. The
// row is open that far.
void kvern_row_extend(kvern_row *row, int64_t new_length);

// Notes that nothing between the first `keep` positions and `held` can be seen any more, and gives
// back what the row does not need.
void kvern_row_settle(kvern_row *row, int64_t keep, int64_t held);

// Drops the newest positions down to `length`, and gives back what the row does not need.
void kvern_row_truncate(kvern_row *row, int64_t length);

// Gives back what the row does not need, if it still holds anything of that: what others held too,
// when there was no memory for a table without it.
void kvern_row_give_back(kvern_row *row);

// The row's ranges are those of the change, if it has any; its new positions are stored.
void kvern_row_commit_ranges(kvern_row *row, kvern_row_change *change);

// Empties the row and gives up its reserved room.
void kvern_row_reset(kvern_row *row);

// The row is in its planned form from now on: room of the old form goes, and what was set aside for
// later is room.
void kvern_row_change_form(kvern_row *row);

// Gives up the row's room, which is of another form than the row is going to have.
void kvern_row_drop_room(kvern_row *row);

// A page that was set aside for later; NULL when there is none.
kvern_page *kvern_row_take_later(kvern_row *row);

// A page of the row's room, of which there is one; and one that it does not need any more, which
// becomes room where the row is promised that and nobody else holds it.
kvern_page *kvern_row_take_room(kvern_row *row);
void kvern_row_return_page(kvern_row *row, kvern_page *page);

// New pages, through kvern_page.next, become room, or are set aside for later.
void kvern_row_add_pages(kvern_row *row, kvern_page *room, kvern_page *later);

// *to becomes another row with the same positions and no room. Cannot fail. *to must be empty.
void kvern_row_share(const kvern_row *from, kvern_row *to);

// Bytes of the pages that the row holds, room among them.
uint64_t kvern_row_bytes(const kvern_row *row);

// Whether everything about the row agrees, for asserts: pages and positions, room, references.
bool kvern_row_is_sound(const kvern_row *row);

// Bytes of a table, of which the least one has room for 512 positions.
size_t kvern_table_bytes(size_t capacity);

// Makes a table without pages, with one reference.
KVERN_CHECK kvern_status kvern_table_create(kvern_pool *pool, size_t capacity, kvern_table **out);
bool kvern_table_is_shared(const kvern_table *table);
bool kvern_table_is_exclusive(const kvern_table *table); // there is one, and nobody else holds it

void kvern_table_retain(kvern_table *table);
void kvern_table_release(kvern_table *table); // NULL is allowed

#endif
