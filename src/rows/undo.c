// SPDX-License-Identifier: MIT
#include "src/rows/undo.h"

#include "src/base/assert.h"

#include <string.h>

static void put_table_back(kvern_row *row, kvern_row_undo *undo)
{
    kvern_table_release(row->table);
    row->table = undo->table;
    undo->table = NULL;
    kvern_row_give_back(row); // it was the last holder's to drop, and that may be this row now
}

// A table that a read of the round still holds keeps its copy.
static void put_tail_back(kvern_row *row, kvern_row_undo *undo)
{
    if (!kvern_table_is_exclusive(row->table))
        return;
    kvern_page **tail = &row->table->pages[kvern_table_used(row->table, row->length) - 1];
    kvern_page_release(*tail);
    *tail = undo->tail;
    undo->tail = NULL;
}

void kvern_row_take_back(kvern_row *row, kvern_row_undo *undo, int64_t begin, int64_t length)
{
    KVERN_ASSERT(length >= begin);
    kvern_row_truncate(row, length);
    if (length == begin && undo->table)
        put_table_back(row, undo);
    else if (length == begin && undo->tail)
        put_tail_back(row, undo);
    kvern_row_undo_clear(undo);
    KVERN_ASSERT(kvern_row_is_sound(row));
}

void kvern_row_undo_clear(kvern_row_undo *undo)
{
    kvern_table_release(undo->table);
    if (undo->tail)
        kvern_page_release(undo->tail);
    if (undo->records)
        kvern_page_release(undo->records);
    memset(undo, 0, sizeof *undo);
}
