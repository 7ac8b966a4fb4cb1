// SPDX-License-Identifier: MIT
#include "src/rows/undo.h"

#include <string.h>

// Moves the row's pages into a table that it had before, which has room for them.
static void return_to(kvern_row *row, kvern_table *table)
{
    kvern_table *left = row->table;
    memcpy(table->pages, left->pages, left->count * sizeof left->pages[0]);
    table->count = left->count;
    table->kept = left->kept;
    table->gap = left->gap;
    left->count = 0;
    row->table = table;
    kvern_table_release(left);
}

static void put_table_back(kvern_row *row, kvern_row_undo *undo, bool unchanged)
{
    if (undo->kind == KVERN_UNDO_EMPTIED) {
        if (!kvern_table_is_exclusive(row->table) || row->table->count > undo->table->capacity)
            return;
        return_to(row, undo->table);
    } else if (undo->kind != KVERN_UNDO_NOTHING && unchanged) {
        kvern_table_release(row->table);
        row->table = undo->table;
    } else {
        return;
    }
    undo->table = NULL;
}

// A table that a read of the round still holds keeps its copy.
static void put_tail_back(kvern_row *row, kvern_row_undo *undo)
{
    if (!undo->tail || !kvern_table_is_exclusive(row->table))
        return;
    kvern_page **tail = &row->table->pages[kvern_table_used(row->table, row->length) - 1];
    kvern_page_release(*tail);
    *tail = undo->tail;
    undo->tail = NULL;
}

static void rehome(kvern_table *table, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        if (kvern_page_is_exclusive(table->pages[i]))
            kvern_page_rehome(&table->pages[i]);
    }
}

// Pages that were taken for the tokens that stay move to where they would have been taken from
// without those that go.
static void rehome_taken(kvern_row *row, const kvern_row_undo *undo, int64_t begin)
{
    if (row->length == begin || !kvern_table_is_exclusive(row->table))
        return;
    const size_t used = kvern_table_used(row->table, begin);
    if (undo->copied)
        rehome(row->table, used - 1, used);
    if (undo->took)
        rehome(row->table, undo->fresh, row->table->count);
}

void kvern_row_take_back(kvern_row *row, kvern_row_undo *undo, int64_t begin, int64_t length)
{
    kvern_row_truncate(row, length);
    put_table_back(row, undo, length == begin);
    if (length == begin) {
        put_tail_back(row, undo);
        kvern_row_truncate(row, length); // a table that the round did not leave at once
    }
    rehome_taken(row, undo, begin);
    kvern_row_undo_clear(undo);
}

void kvern_row_undo_clear(kvern_row_undo *undo)
{
    kvern_table_release(undo->table);
    if (undo->tail)
        kvern_page_release(undo->tail);
    memset(undo, 0, sizeof *undo);
}
