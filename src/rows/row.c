// SPDX-License-Identifier: MIT
#include "src/rows/row.h"

#include "src/base/size.h"

#include <kvern/composition.h>
#include <string.h>

// Tables start with room for this many pages (512 positions) and double.
#define LEAST_CAPACITY 8

size_t kvern_pages_of(int64_t positions)
{
    return ((size_t)positions + KVERN_PAGE_POSITIONS - 1) / KVERN_PAGE_POSITIONS;
}

static size_t table_bytes(size_t capacity)
{
    return sizeof(kvern_table) + capacity * sizeof(kvern_page *);
}

static kvern_status create_table(kvern_pool *pool, size_t capacity, kvern_table **out)
{
    void *block;
    *out = NULL;
    kvern_status status = kvern_heap_take(&kvern_pool_context(pool)->heap, table_bytes(capacity),
                                          KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_table *table = block;
    kvern_pool_retain(pool);
    table->references = 1;
    table->pool = pool;
    table->capacity = capacity;
    table->count = 0;
    *out = table;
    return KVERN_OK;
}

// Frees the table itself; its pages have been released or moved.
static void free_table(kvern_table *table)
{
    kvern_pool *pool = table->pool;
    kvern_heap_give(&kvern_pool_context(pool)->heap, table, table_bytes(table->capacity),
                    KVERN_HEAP_ALIGNMENT);
    kvern_pool_release(pool);
}

void kvern_table_retain(kvern_table *table)
{
    if (table)
        atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
}

void kvern_table_release(kvern_table *table)
{
    if (!table || atomic_fetch_sub(&table->references, 1) != 1)
        return;
    for (size_t i = 0; i < table->count; i++)
        kvern_page_release(table->pages[i]);
    free_table(table);
}

static bool is_exclusive(const kvern_table *table)
{
    return table && atomic_load(&table->references) == 1;
}

// Pages behind the length stay only as far as they are reserved and nobody else can see them. For
// an exclusive table: while it is shared nothing can be dropped, and the next change makes a table
// without them.
static void drop_spare(kvern_row *row)
{
    kvern_table *table = row->table;
    const size_t room = kvern_max_size(row->reserved, row->promised);
    const size_t used = kvern_pages_of(row->length);
    size_t kept = used;
    for (size_t i = used; i < table->count; i++) {
        kvern_page *page = table->pages[i];
        if (kept < room && kvern_page_is_exclusive(page))
            table->pages[kept++] = page;
        else
            kvern_page_release(page);
    }
    table->count = kept < table->count ? kept : table->count;
}

// Whether the partly filled page has to be copied: `pages` pages are to be writable, and somebody
// else may see that one.
static bool has_shared_tail(const kvern_row *row, size_t pages)
{
    const size_t at = (size_t)row->length / KVERN_PAGE_POSITIONS;
    if (row->length % KVERN_PAGE_POSITIONS == 0 || pages <= at)
        return false;
    return !is_exclusive(row->table) || !kvern_page_is_exclusive(row->table->pages[at]);
}

static kvern_status choose_table(kvern_pool *pool, const kvern_row *row, bool exclusive,
                                 size_t needed, kvern_row_change *change)
{
    kvern_table *table = row->table;
    const size_t begin = exclusive ? table->count : kvern_pages_of(row->length);
    const size_t end = kvern_max_size(needed, begin);
    change->table = table;
    if (!exclusive || table->capacity < needed) {
        const size_t doubled = table ? 2 * table->capacity : LEAST_CAPACITY;
        const size_t capacity =
            kvern_max_size(end, exclusive || !table ? doubled : table->capacity);
        kvern_status status = create_table(pool, capacity, &change->table);
        if (status)
            return status;
    }
    change->fresh_begin = begin;
    change->fresh_end = end;
    return KVERN_OK;
}

kvern_status kvern_row_prepare(kvern_pool *pool, kvern_row *row, int64_t new_length, size_t reserve,
                               kvern_row_change *change)
{
    memset(change, 0, sizeof *change);
    // Asked once: another thread may let go of the table at any moment, and a table that was shared
    // while its spare pages were looked at must not count as exclusive afterwards.
    const bool exclusive = is_exclusive(row->table);
    if (exclusive)
        drop_spare(row);
    const size_t written = new_length > row->length ? kvern_pages_of(new_length) : 0;
    const size_t needed =
        kvern_max_size(kvern_pages_of(new_length), kvern_max_size(row->reserved, reserve));
    kvern_status status = choose_table(pool, row, exclusive, needed, change);
    if (status)
        return status;
    const size_t fresh = change->fresh_end - change->fresh_begin;
    status = kvern_pool_take(pool, fresh, change->table->pages + change->fresh_begin);
    if (status)
        change->fresh_end = change->fresh_begin;
    else if (has_shared_tail(row, kvern_max_size(written, reserve)))
        status = kvern_pool_take(pool, 1, &change->copy);
    if (status)
        kvern_row_cancel(row, change);
    return status;
}

void kvern_row_cancel(kvern_row *row, kvern_row_change *change)
{
    for (size_t i = change->fresh_begin; i < change->fresh_end; i++)
        kvern_page_release(change->table->pages[i]);
    if (change->copy)
        kvern_page_release(change->copy);
    if (change->table && change->table != row->table)
        free_table(change->table);
    memset(change, 0, sizeof *change);
}

// Moves or shares the pages that stay into the new table.
static void adopt_pages(kvern_row *row, kvern_row_change *change)
{
    kvern_table *old = row->table;
    if (!old)
        return;
    const size_t kept = change->fresh_begin;
    memcpy(change->table->pages, old->pages, kept * sizeof old->pages[0]);
    if (is_exclusive(old)) {
        for (size_t i = kept; i < old->count; i++) // it may have been shared until a moment ago
            kvern_page_release(old->pages[i]);
        free_table(old);
        return;
    }
    for (size_t i = 0; i < kept; i++)
        kvern_page_retain(change->table->pages[i]);
    kvern_table_release(old);
}

void kvern_row_commit(kvern_row *row, kvern_row_change *change)
{
    kvern_table *table = change->table;
    if (table != row->table)
        adopt_pages(row, change);
    if (change->copy) {
        kvern_page **tail = &table->pages[row->length / KVERN_PAGE_POSITIONS];
        memcpy(change->copy->data, (*tail)->data, kvern_pool_page_bytes(table->pool));
        kvern_page_release(*tail);
        *tail = change->copy;
    }
    table->count = change->fresh_end;
    row->table = table;
}

void kvern_row_truncate(kvern_row *row, int64_t length)
{
    row->length = length;
    if (is_exclusive(row->table))
        drop_spare(row);
}

void kvern_row_reset(kvern_row *row)
{
    kvern_table_release(row->table);
    memset(row, 0, sizeof *row);
}

void kvern_row_share(const kvern_row *from, kvern_row *to)
{
    kvern_table_retain(from->table);
    to->table = from->table;
    to->length = from->length;
    to->reserved = to->promised = 0;
}

uint64_t kvern_row_bytes(const kvern_row *row)
{
    if (!row->table)
        return 0;
    return (uint64_t)row->table->count * kvern_pool_page_bytes(row->table->pool);
}
