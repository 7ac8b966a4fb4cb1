// SPDX-License-Identifier: MIT
#include "src/rows/block_row.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <string.h>

// Pages that a block of `count` positions lies in at most, the row's last one, which it shares with
// those before it, among them.
static size_t most_pages(int64_t count)
{
    return kvern_pages_of(count) + 1;
}

// Pages in the table of the longer row at most.
static size_t most_entries(const kvern_row *row, int64_t count)
{
    return (row->table ? row->table->capacity : 0) + most_pages(count);
}

static size_t table_bytes(size_t entries)
{
    const size_t bytes = sizeof(kvern_table) + entries * sizeof(kvern_page *);
    return kvern_ceil_div(bytes, KVERN_HEAP_ALIGNMENT) * KVERN_HEAP_ALIGNMENT;
}

static size_t list_bytes(size_t pages)
{
    const size_t bytes = pages * sizeof(kvern_page);
    return kvern_ceil_div(bytes, KVERN_HEAP_ALIGNMENT) * KVERN_HEAP_ALIGNMENT;
}

bool kvern_block_row_bytes(const kvern_pool *pool, const kvern_row *row, int64_t count,
                           size_t *bytes)
{
    const size_t pages = most_pages(count);
    size_t data;
    KVERN_ASSERT(count > 0 && count <= KVERN_MAX_POSITIONS);
    return kvern_size_mul(pages, kvern_pool_page_bytes(pool), &data) &&
           kvern_size_add(data, list_bytes(pages) + table_bytes(most_entries(row, count)), bytes);
}

// The pages of the block, as the room of the row; without an arena, by which they are known.
static void add_room(kvern_pool *pool, size_t count, kvern_page *pages, char *data, kvern_row *row)
{
    for (size_t i = count; i-- > 0;) {
        pages[i] = (kvern_page){
            .references = 1, .data = data + i * kvern_pool_page_bytes(pool), .next = row->room};
        row->room = &pages[i];
    }
    row->room_count = count;
}

// The pages of the row; the last one, if positions are to be added to it, as a copy.
static void add_pages(kvern_pool *pool, const kvern_row *from, kvern_table *table, kvern_row *row)
{
    const size_t used = kvern_table_used(from->table, from->length);
    const bool is_open = from->length % KVERN_PAGE_POSITIONS != 0;
    for (size_t i = 0; i < used - is_open; i++) {
        table->pages[i] = from->table->pages[i];
        kvern_page_retain(table->pages[i]);
    }
    if (is_open) {
        kvern_page *copy = kvern_row_take_room(row);
        memcpy(copy->data, from->table->pages[used - 1]->data, kvern_pool_page_bytes(pool));
        table->pages[used - 1] = copy;
    }
    table->count = used;
}

void kvern_block_row_make(kvern_pool *pool, const kvern_row *from, int64_t count, void *memory,
                          kvern_row *out)
{
    const size_t pages = most_pages(count), entries = most_entries(from, count);
    char *const list = (char *)memory + pages * kvern_pool_page_bytes(pool);
    kvern_table *table = (kvern_table *)(list + list_bytes(pages));
    KVERN_ASSERT((uintptr_t)memory % KVERN_HEAP_ALIGNMENT == 0);
    *table = (kvern_table){.references = 1, .pool = pool, .capacity = entries};
    if (from->table) {
        table->kept = from->table->kept;
        table->gap = from->table->gap;
    }
    *out = (kvern_row){.table = table,
                       .length = from->length,
                       .held = from->held,
                       .kept = from->kept,
                       .converted = from->converted};
    add_room(pool, pages, (kvern_page *)list, memory, out);
    add_pages(pool, from, table, out);
    KVERN_ASSERT(kvern_row_is_sound(out) && kvern_row_is_open(out, from->length + count));
}

void kvern_block_row_end(kvern_table *table)
{
    KVERN_ASSERT(kvern_table_is_exclusive(table));
    for (size_t i = 0; i < table->count; i++) {
        if (table->pages[i]->arena)
            kvern_page_release(table->pages[i]);
    }
}
