// SPDX-License-Identifier: MIT
#include "src/rows/row.h"

#include "src/base/size.h"
#include "src/rows/undo.h"

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

kvern_status kvern_table_create(kvern_pool *pool, size_t capacity, kvern_table **out)
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
    table->kept = table->gap = 0;
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

bool kvern_table_is_shared(const kvern_table *table)
{
    return table && atomic_load(&table->references) != 1;
}

bool kvern_table_is_exclusive(const kvern_table *table)
{
    return table && !kvern_table_is_shared(table);
}

size_t kvern_table_used(const kvern_table *table, int64_t length)
{
    const size_t pages = kvern_pages_of(length);
    return table && pages > table->kept ? pages - table->gap : pages;
}

// Pages behind the kept ones of which no position is held.
static size_t dead_pages(const kvern_row *row, size_t kept)
{
    const size_t first = kept + (row->table ? row->table->gap : 0);
    const size_t held = (size_t)(row->held / KVERN_PAGE_POSITIONS);
    return held > first ? held - first : 0;
}

static void reverse(kvern_page **pages, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        kvern_page *page = pages[i];
        pages[i] = pages[count - 1 - i];
        pages[count - 1 - i] = page;
    }
}

// Puts the `dead` pages behind the kept ones to the end, where they are room. For an exclusive
// table.
static void recycle(kvern_table *table, size_t kept, size_t dead)
{
    if (!dead)
        return;
    kvern_page **pages = table->pages + kept;
    const size_t count = table->count - kept;
    reverse(pages, dead);
    reverse(pages + dead, count - dead);
    reverse(pages, count);
    table->kept = kept;
    table->gap += dead;
}

// Pages behind the length stay only as far as they are room, and nobody else can see them. For an
// exclusive table: while it is shared nothing can be dropped, and the next change makes a table
// without them.
static void drop_spare(kvern_row *row, size_t room)
{
    kvern_table *table = row->table;
    const size_t used = kvern_table_used(table, row->length);
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

static size_t room_of(const kvern_row *row)
{
    return kvern_max_size(row->reserved, row->promised);
}

// Whether the partly filled page has to be copied: `pages` pages are to be writable, and somebody
// else may see that one.
static bool has_shared_tail(const kvern_row *row, size_t pages)
{
    const size_t at = (size_t)row->length / KVERN_PAGE_POSITIONS;
    if (row->length % KVERN_PAGE_POSITIONS == 0 || pages <= at)
        return false;
    return !kvern_table_is_exclusive(row->table) ||
           !kvern_page_is_exclusive(kvern_table_page(row->table, at));
}

// Puts those of the pages behind `used` that nobody else can see in front, and says where they end.
// For an exclusive table.
static size_t sort_room(kvern_table *table, size_t used)
{
    size_t end = used;
    for (size_t i = used; i < table->count; i++) {
        kvern_page *page = table->pages[i];
        if (!kvern_page_is_exclusive(page))
            continue;
        table->pages[i] = table->pages[end];
        table->pages[end++] = page;
    }
    return end;
}

static kvern_status choose_table(kvern_pool *pool, const kvern_row *row, bool exclusive,
                                 size_t kept, size_t needed, kvern_row_change *change)
{
    kvern_table *table = row->table;
    const size_t used = kvern_table_used(table, row->length) - change->dropped;
    const size_t room = exclusive ? sort_room(table, used) : used;
    const size_t begin = exclusive ? table->count : used;
    const size_t end = begin + (needed > room ? needed - room : 0);
    change->table = table;
    change->surplus_begin = kvern_min_size(room, kvern_max_size(needed, used));
    change->surplus_end = begin;
    if (!exclusive || table->capacity < end) {
        const size_t doubled = table ? 2 * table->capacity : LEAST_CAPACITY;
        const size_t capacity =
            kvern_max_size(end, exclusive || !table ? doubled : table->capacity);
        kvern_status status = kvern_table_create(pool, capacity, &change->table);
        if (status)
            return status;
        change->table->kept = kept;
        change->table->gap = (table ? table->gap : 0) + change->dropped;
    }
    change->fresh_begin = begin;
    change->fresh_end = end;
    return KVERN_OK;
}

// Pages that the table needs to write up to `new_length`, when `dead` more are dropped.
static size_t needed_pages(const kvern_row *row, size_t dead, int64_t new_length)
{
    const size_t gap = (row->table ? row->table->gap : 0) + dead;
    return kvern_max_size(kvern_pages_of(new_length) - gap, room_of(row));
}

static size_t count_exclusive(const kvern_table *table, size_t begin, size_t end)
{
    size_t count = 0;
    for (size_t i = begin; i < end; i++)
        count += kvern_page_is_exclusive(table->pages[i]);
    return count;
}

size_t kvern_row_foresee(const kvern_row *row, int64_t keep, int64_t new_length)
{
    const kvern_table *table = row->table;
    const size_t kept = kvern_pages_of(keep), dead = dead_pages(row, kept);
    const size_t needed = needed_pages(row, dead, new_length);
    const size_t used = kvern_table_used(table, row->length);
    size_t room = used - dead;
    if (kvern_table_is_exclusive(table))
        room +=
            count_exclusive(table, kept, kept + dead) + count_exclusive(table, used, table->count);
    return (needed > room ? needed - room : 0) + has_shared_tail(row, kvern_pages_of(new_length));
}

kvern_status kvern_row_prepare(kvern_pool *pool, kvern_row *row, int64_t keep, int64_t new_length,
                               size_t reserve, kvern_row_change *change)
{
    memset(change, 0, sizeof *change);
    // Asked once: another thread may let go of the table at any moment, and a table that was shared
    // while its spare pages were looked at must not count as exclusive afterwards.
    const bool exclusive = kvern_table_is_exclusive(row->table);
    const size_t kept = kvern_pages_of(keep), dead = dead_pages(row, kept);
    const size_t gap = (row->table ? row->table->gap : 0) + dead;
    const size_t needed = kvern_max_size(needed_pages(row, dead, new_length), reserve);
    if (exclusive)
        recycle(row->table, kept, dead);
    else
        change->dropped = dead;
    const size_t written = new_length > row->length ? kvern_pages_of(new_length) : 0;
    kvern_status status = choose_table(pool, row, exclusive, kept, needed, change);
    if (status)
        return status;
    const size_t fresh = change->fresh_end - change->fresh_begin;
    status = kvern_pool_take(pool, fresh, change->table->pages + change->fresh_begin);
    if (status)
        change->fresh_end = change->fresh_begin;
    else if (has_shared_tail(row, kvern_max_size(written, reserve + gap)))
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

// Whether a round that is taken back will want to see the table that a row is about to leave.
static bool is_wanted(const kvern_row_undo *undo)
{
    return undo && undo->kind == KVERN_UNDO_NOTHING;
}

// Lets go of the table that a row leaves, or keeps it for the end of the round.
static void leave_table(kvern_table *old, kvern_row_undo *undo)
{
    if (!is_wanted(undo)) {
        kvern_table_release(old);
        return;
    }
    undo->kind = old ? KVERN_UNDO_TABLE : KVERN_UNDO_NO_TABLE;
    undo->table = old;
    if (!kvern_table_is_exclusive(old))
        return;
    undo->kind = KVERN_UNDO_EMPTIED; // so that its pages are not shared
    for (size_t i = 0; i < old->count; i++)
        kvern_page_release(old->pages[i]);
    old->count = 0;
}

// Moves or shares the pages that stay into the new table.
static void adopt_pages(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo)
{
    kvern_table *old = row->table, *table = change->table;
    if (!old) {
        leave_table(NULL, undo);
        return;
    }
    const size_t count = change->fresh_begin, dropped = change->dropped;
    const size_t front = dropped ? table->kept : count;
    memcpy(table->pages, old->pages, front * sizeof old->pages[0]);
    memcpy(table->pages + front, old->pages + front + dropped,
           (count - front) * sizeof old->pages[0]);
    for (size_t i = 0; i < count; i++)
        kvern_page_retain(table->pages[i]);
    leave_table(old, undo);
}

// The copy takes the place of the shared, partly filled page. A table that is kept for the end of
// the round has that page itself.
static void replace_tail(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo)
{
    kvern_table *table = change->table;
    kvern_page **tail = &table->pages[kvern_table_used(table, row->length) - 1];
    memcpy(change->copy->data, (*tail)->data, kvern_page_bytes(change->copy));
    if (undo && !undo->begun && undo->kind != KVERN_UNDO_TABLE)
        undo->tail = *tail;
    else
        kvern_page_release(*tail);
    *tail = change->copy;
    if (undo && !undo->begun)
        undo->copied = true;
}

static void note_taken(kvern_row_undo *undo, const kvern_row_change *change)
{
    const size_t fresh = change->fresh_begin - (change->surplus_end - change->surplus_begin);
    undo->begun = true;
    if (change->fresh_begin == change->fresh_end)
        return;
    undo->fresh = undo->took ? kvern_min_size(undo->fresh, fresh) : fresh;
    undo->took = true;
}

static void drop_surplus(kvern_table *table, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        kvern_page_release(table->pages[i]);
    memmove(table->pages + begin, table->pages + end,
            (table->count - end) * sizeof table->pages[0]);
    table->count -= end - begin;
}

void kvern_row_commit(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo)
{
    kvern_table *table = change->table;
    if (table != row->table)
        adopt_pages(row, change, undo);
    if (change->copy)
        replace_tail(row, change, undo);
    table->count = change->fresh_end;
    row->table = table;
    drop_surplus(table, change->surplus_begin, change->surplus_end);
    if (undo)
        note_taken(undo, change);
}

void kvern_row_settle(kvern_row *row, int64_t keep, int64_t held)
{
    row->held = kvern_max_i64(row->held, held);
    const size_t kept = kvern_pages_of(keep), dead = dead_pages(row, kept);
    if (dead == 0 || !kvern_table_is_exclusive(row->table))
        return;
    recycle(row->table, kept, dead);
    drop_spare(row, room_of(row));
}

// An empty row starts anew: nothing of it is dropped.
static void restart(kvern_row *row)
{
    if (kvern_table_is_exclusive(row->table)) {
        row->table->gap = 0;
    } else {
        kvern_table_release(row->table);
        row->table = NULL;
    }
}

void kvern_row_truncate(kvern_row *row, int64_t length)
{
    row->length = length;
    if (length == 0)
        row->held = 0;
    if (length == 0 && row->table && row->table->gap)
        restart(row);
    if (kvern_table_is_exclusive(row->table))
        drop_spare(row, room_of(row));
}

void kvern_row_reset(kvern_row *row)
{
    kvern_table_release(row->table);
    memset(row, 0, sizeof *row);
}

void kvern_row_share(const kvern_row *from, kvern_row *to)
{
    kvern_table_retain(from->table);
    *to = *from;
    to->reserved = to->promised = 0;
}

uint64_t kvern_row_bytes(const kvern_row *row)
{
    uint64_t bytes = 0;
    for (size_t i = 0; row->table && i < row->table->count; i++)
        bytes += kvern_page_bytes(row->table->pages[i]);
    return bytes;
}
