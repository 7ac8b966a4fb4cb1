// SPDX-License-Identifier: MIT
#include "src/rows/whole_row.h"

#include "src/base/assert.h"

#include <string.h>

// Takes pages until there are `wanted` of them, `count` included.
static kvern_status take_list(kvern_pool *pool, size_t count, size_t wanted, kvern_page **list)
{
    for (; count < wanted; count++) {
        kvern_page *page;
        kvern_status status = kvern_pool_take_first(pool, wanted - count, &page);
        if (status)
            return status;
        page->next = *list;
        *list = page;
    }
    return KVERN_OK;
}

static kvern_status choose_table(kvern_pool *pool, const kvern_row *row, kvern_row_change *change)
{
    change->table = row->table;
    if (kvern_table_is_exclusive(row->table))
        return KVERN_OK;
    kvern_status status = kvern_table_create(pool, 1, &change->table);
    if (!status)
        change->table->whole = true;
    return status;
}

kvern_status kvern_whole_row_prepare(kvern_row *row, const kvern_row_room *room,
                                     kvern_row_change *change)
{
    memset(change, 0, sizeof *change);
    kvern_row_give_back(row); // a page that it shared while it was emptied may be its own now
    const size_t own = row->length > 0;
    KVERN_ASSERT(room->whole && (!row->table || row->table->whole));
    kvern_status status = choose_table(room->pool, row, change);
    if (!status && room->pages > own)
        status = take_list(room->pool, row->room_count, room->pages - own, &change->room);
    if (!status && room->later)
        status = take_list(room->later_pool, row->later_count, room->later, &change->later);
    if (status)
        kvern_row_cancel(row, change);
    return status;
}

void kvern_whole_row_commit(kvern_row *row, kvern_row_change *change)
{
    kvern_table *old = row->table, *table = change->table;
    if (table != old) {
        if (row->length > 0) {
            table->pages[table->count++] = old->pages[0];
            kvern_page_retain(old->pages[0]);
        }
        row->table = table;
        kvern_table_release(old);
    }
    kvern_row_add_pages(row, change->room, change->later);
    if (change->promised > row->promised)
        row->promised = change->promised;
    memset(change, 0, sizeof *change);
    KVERN_ASSERT(kvern_row_is_sound(row));
}

kvern_page *kvern_whole_row_page(const kvern_row *row)
{
    KVERN_ASSERT(row->length == 0 || (row->table->whole && row->table->count == 1));
    return row->length > 0 ? row->table->pages[0] : NULL;
}

bool kvern_whole_row_is_exclusive(const kvern_row *row)
{
    KVERN_ASSERT(row->length > 0);
    return kvern_table_is_exclusive(row->table) &&
           kvern_page_is_exclusive(kvern_whole_row_page(row));
}

kvern_page *kvern_whole_row_exchange(kvern_row *row, kvern_page *page)
{
    kvern_page *old = kvern_whole_row_page(row);
    KVERN_ASSERT(kvern_table_is_exclusive(row->table) && row->table->capacity > 0);
    row->table->pages[0] = page;
    row->table->count = 1;
    return old;
}
