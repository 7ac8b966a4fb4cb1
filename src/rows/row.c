// SPDX-License-Identifier: MIT
#include "src/rows/row.h"

#include "src/base/assert.h"
#include "src/base/size.h"
#include "src/rows/undo.h"
#include "src/rows/whole_row.h"

#include <kvern/composition.h>
#include <string.h>

// Tables start with room for this many pages (512 positions) and double.
#define LEAST_CAPACITY 8

size_t kvern_pages_of(int64_t positions)
{
    return ((size_t)positions + KVERN_PAGE_POSITIONS - 1) / KVERN_PAGE_POSITIONS;
}

size_t kvern_table_bytes(size_t capacity)
{
    return sizeof(kvern_table) + kvern_max_size(capacity, LEAST_CAPACITY) * sizeof(kvern_page *);
}

kvern_status kvern_table_create(kvern_pool *pool, size_t capacity, kvern_table **out)
{
    void *block;
    *out = NULL;
    kvern_status status = kvern_heap_take(
        &kvern_pool_context(pool)->heap, kvern_table_bytes(capacity), KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_table *table = block;
    kvern_pool_retain(pool);
    table->references = 1;
    table->pool = pool;
    table->stored = 0;
    table->capacity = capacity;
    table->count = 0;
    table->kept = table->gap = 0;
    table->whole = false;
    *out = table;
    return KVERN_OK;
}

// Frees the table itself; its pages have been released or moved.
static void free_table(kvern_table *table)
{
    kvern_pool *pool = table->pool;
    KVERN_ASSERT(table->stored == 0);
    kvern_heap_give(&kvern_pool_context(pool)->heap, table, kvern_table_bytes(table->capacity),
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
    if (table && table->whole)
        return length > 0;
    return table && pages > table->kept ? pages - table->gap : pages;
}

// ---- Room ----

static void push_room(kvern_row *row, kvern_page *page)
{
    KVERN_ASSERT(kvern_page_is_exclusive(page));
    page->next = row->room;
    row->room = page;
    row->room_count++;
}

static kvern_page *pop_room(kvern_row *row)
{
    kvern_page *page = row->room;
    KVERN_ASSERT(row->room_count > 0);
    row->room = page->next;
    row->room_count--;
    return page;
}

static void trim_room(kvern_row *row, size_t most)
{
    while (row->room_count > most)
        kvern_page_release(pop_room(row));
}

void kvern_row_drop_room(kvern_row *row)
{
    trim_room(row, 0);
}

kvern_page *kvern_row_take_later(kvern_row *row)
{
    kvern_page *page = row->later;
    if (!page)
        return NULL;
    row->later = page->next;
    row->later_count--;
    return page;
}

static void trim_later(kvern_row *row, size_t most)
{
    while (row->later_count > most)
        kvern_page_release(kvern_row_take_later(row));
}

void kvern_row_change_form(kvern_row *row)
{
    kvern_row_drop_room(row);
    row->room = row->later;
    row->room_count = row->later_count;
    if (row->reserved_later)
        row->reserved = row->reserved_later;
    row->later = NULL;
    row->later_count = row->reserved_later = row->passing = 0;
}

// Pages that the row is to have at least, once `passed` more of those that pass have been left.
static size_t promised_after(const kvern_row *row, size_t passed)
{
    const size_t passing = row->passing - kvern_min_size(row->passing, passed);
    const size_t step = kvern_max_size(row->promised, row->spare);
    return kvern_max_size(row->reserved + passing, step);
}

static size_t promised_pages(const kvern_row *row)
{
    return promised_after(row, 0);
}

// Pages go that the window has passed and that others hold: what was reserved to stand in for them
// is in use now.
static void leave_passed(kvern_row *row, size_t pages)
{
    row->passing -= kvern_min_size(row->passing, pages);
}

// ---- Giving back ----

// Pages of the table, behind the kept ones, of which no position is held.
static size_t dead_pages(const kvern_row *row)
{
    if (!row->table || row->held == 0)
        return 0;
    const size_t first = row->kept + row->table->gap;
    const size_t held = (size_t)(row->held / KVERN_PAGE_POSITIONS);
    return held > first ? held - first : 0;
}

// Pages of the table that the row needs.
static size_t needed_pages(const kvern_row *row)
{
    return kvern_table_used(row->table, row->length) - dead_pages(row);
}

// Whether the table has pages that the row does not need.
static bool has_surplus(const kvern_row *row)
{
    return row->table && row->table->count > needed_pages(row);
}

// A page that leaves the table becomes one of `most` pages of room, if nobody else can see it.
static void drop_page(kvern_row *row, kvern_page *page, size_t most)
{
    if (row->room_count < most && kvern_page_is_exclusive(page))
        push_room(row, page);
    else
        kvern_page_release(page);
}

// For a table that nobody else holds. The newest pages go first, so that room is used in the order
// in which it lies in memory.
static void drop_surplus(kvern_row *row, size_t most_room)
{
    kvern_table *table = row->table;
    const size_t dead = dead_pages(row), used = kvern_table_used(table, row->length);
    while (table->count > used)
        drop_page(row, table->pages[--table->count], most_room);
    if (dead == 0)
        return;
    kvern_page **first = table->pages + row->kept;
    for (size_t i = dead; i-- > 0;) {
        leave_passed(row, !kvern_page_is_exclusive(first[i]));
        drop_page(row, first[i], most_room);
    }
    memmove(first, first + dead, (table->count - row->kept - dead) * sizeof first[0]);
    table->count -= dead;
    table->kept = row->kept;
    table->gap += dead;
}

// The pages of a table apart from `dropped` ones behind the kept ones, for another table too.
static void copy_pages(const kvern_table *from, size_t kept, size_t dropped, kvern_table *to,
                       size_t count)
{
    const size_t front = dropped ? kept : count;
    memcpy(to->pages, from->pages, front * sizeof to->pages[0]);
    memcpy(to->pages + front, from->pages + front + dropped, (count - front) * sizeof to->pages[0]);
    for (size_t i = 0; i < count; i++)
        kvern_page_retain(to->pages[i]);
    to->count = count;
}

// A table for the pages that the row needs, still without them.
static kvern_status create_next(kvern_pool *pool, const kvern_row *row, size_t dropped,
                                size_t capacity, kvern_table **out)
{
    kvern_status status = kvern_table_create(pool, capacity, out);
    if (!status && row->table) {
        (*out)->kept = dropped ? row->kept : row->table->kept;
        (*out)->gap = row->table->gap + dropped;
        (*out)->whole = row->table->whole;
    }
    return status;
}

// Page number `index` of those that the row does not need.
static kvern_page *surplus_page(const kvern_row *row, size_t index)
{
    const size_t dead = dead_pages(row);
    const size_t at = index < dead ? row->kept : kvern_table_used(row->table, row->length) - dead;
    return row->table->pages[at + index];
}

// Leaves a table that others hold too for one that has `extra` pages of the surplus. A row whose
// pages have all been passed keeps one without pages, which counts them.
static void leave_surplus(kvern_row *row, size_t extra)
{
    kvern_table *old = row->table, *table = NULL;
    const size_t needed = needed_pages(row), dead = dead_pages(row), count = needed + extra;
    if (count > 0 || row->length > 0) {
        const size_t capacity =
            kvern_max_size(count + row->room_count, LEAST_CAPACITY); // what is promised
        if (create_next(old->pool, row, dead, capacity, &table))
            return;
        copy_pages(old, row->kept, dead, table, needed);
        for (size_t i = 0; i < extra; i++) {
            table->pages[table->count] = surplus_page(row, i);
            kvern_page_retain(table->pages[table->count++]);
        }
    }
    leave_passed(row, dead - kvern_min_size(dead, extra));
    row->table = table;
    kvern_table_release(old);
}

// Gives back all but `total` pages, those with positions among them. Surplus that is to become room
// waits in the table: it does when nobody else sees it.
static void give_back(kvern_row *row, size_t total)
{
    const size_t needed = needed_pages(row);
    const size_t room = total > needed ? total - needed : 0;
    const size_t lacking = room > row->room_count ? room - row->room_count : 0;
    if (has_surplus(row)) {
        if (kvern_table_is_exclusive(row->table))
            drop_surplus(row, room);
        else if (row->table->count > needed + lacking)
            leave_surplus(row, lacking);
    }
    trim_room(row, room);
    trim_later(row, row->reserved_later);
}

kvern_page *kvern_row_take_room(kvern_row *row)
{
    return pop_room(row);
}

void kvern_row_return_page(kvern_row *row, kvern_page *page)
{
    const size_t total = promised_pages(row), needed = needed_pages(row);
    leave_passed(row, !kvern_page_is_exclusive(page));
    drop_page(row, page, total > needed ? total - needed : 0);
}

static void add_later(kvern_row *row, kvern_page *page)
{
    page->next = row->later;
    row->later = page;
    row->later_count++;
}

void kvern_row_add_pages(kvern_row *row, kvern_page *room, kvern_page *later)
{
    while (room) {
        kvern_page *page = room;
        room = page->next;
        push_room(row, page);
    }
    while (later) {
        kvern_page *page = later;
        later = page->next;
        add_later(row, page);
    }
}

void kvern_row_give_back(kvern_row *row)
{
    give_back(row, promised_pages(row));
}

void kvern_row_settle(kvern_row *row, int64_t keep, int64_t held)
{
    KVERN_ASSERT(held <= row->length);
    if (held > row->held) {
        row->held = held;
        row->kept = kvern_pages_of(keep);
    }
    kvern_row_give_back(row);
    KVERN_ASSERT(kvern_row_is_sound(row));
}

// An empty row starts anew: nothing of it is dropped.
static void restart(kvern_row *row)
{
    if (kvern_table_is_shared(row->table)) {
        kvern_table_release(row->table);
        row->table = NULL;
    } else {
        row->table->kept = row->table->gap = 0;
    }
}

// Drops the ranges behind the row's length.
static void cut_ranges(kvern_row *row)
{
    if (!row->ranges)
        return;
    while (row->range_count && row->ranges->list[row->range_count - 1].end > row->length)
        row->range_count--;
    if (row->range_count == 0) {
        kvern_ranges_release(row->ranges);
        row->ranges = NULL;
    }
}

void kvern_row_commit_ranges(kvern_row *row, kvern_row_change *change)
{
    if (!change->ranges)
        return;
    kvern_ranges_release(row->ranges);
    row->ranges = change->ranges;
    row->range_count = change->ranges->count;
    change->ranges = NULL;
    KVERN_ASSERT(kvern_row_is_sound(row));
}

void kvern_row_truncate(kvern_row *row, int64_t length)
{
    KVERN_ASSERT(length <= row->length && (length == 0 || length >= row->held));
    row->length = length;
    cut_ranges(row);
    if (length == 0)
        row->held = 0;
    if (length == 0 && row->table && row->table->gap)
        restart(row);
    kvern_row_give_back(row);
    KVERN_ASSERT(kvern_row_is_sound(row));
}

// ---- Changes ----

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

// Pages of the row that were dropped, or can be.
static size_t gap_of(const kvern_row *row)
{
    return row->table ? row->table->gap + dead_pages(row) : 0;
}

// Pages that the row is to have when it can be written up to `new_length`, and has left `passed`
// pages to others.
static size_t total_pages(const kvern_row *row, int64_t new_length, size_t passed)
{
    const size_t gap = gap_of(row);
    KVERN_ASSERT(gap == 0 || kvern_pages_of(new_length) > gap);
    return kvern_max_size(kvern_pages_of(new_length) - gap, promised_after(row, passed));
}

size_t kvern_row_foresee(const kvern_row *row, int64_t new_length)
{
    const size_t dead = dead_pages(row);
    size_t own = 0; // of these, pages that become room
    if (dead && kvern_table_is_exclusive(row->table)) {
        for (size_t i = 0; i < dead; i++)
            own += kvern_page_is_exclusive(row->table->pages[row->kept + i]);
    }
    const size_t total = total_pages(row, new_length, dead - own);
    const size_t held = needed_pages(row) + row->room_count + own;
    return (total > held ? total - held : 0) + has_shared_tail(row, kvern_pages_of(new_length));
}

bool kvern_row_is_open(const kvern_row *row, int64_t new_length)
{
    const size_t pages = kvern_pages_of(new_length);
    if (!kvern_table_is_exclusive(row->table) || has_shared_tail(row, pages))
        return false;
    const size_t used = kvern_table_used(row->table, new_length);
    return used <= row->table->capacity && used <= row->table->count + row->room_count;
}

// The table of the change: the row's own where nobody else holds it and it is large enough.
static kvern_status choose_table(kvern_pool *pool, const kvern_row *row, bool exclusive,
                                 size_t least, kvern_row_change *change)
{
    const kvern_table *old = row->table;
    change->table = row->table;
    if (exclusive && old->capacity >= least)
        return KVERN_OK;
    size_t capacity = LEAST_CAPACITY;
    if (old)
        capacity = exclusive ? 2 * old->capacity : old->capacity;
    return create_next(pool, row, change->dropped, kvern_max_size(capacity, least), &change->table);
}

static kvern_status take_fresh(kvern_pool *pool, const kvern_row *row, kvern_row_change *change)
{
    const size_t needed = needed_pages(row), held = needed + row->room_count;
    const size_t fresh = change->total > held ? change->total - held : 0;
    kvern_status status = kvern_pool_take(pool, fresh, change->table->pages + needed);
    change->fresh_begin = needed;
    change->fresh_end = needed + (status ? 0 : fresh);
    return status;
}

// One by one, for they become a list; they are taken as a whole all the same.
static kvern_status take_later(const kvern_row *row, const kvern_row_room *room,
                               kvern_row_change *change)
{
    for (size_t left = room->later; left > row->later_count; left--) {
        kvern_page *page;
        kvern_status status =
            kvern_pool_take_first(room->later_pool, left - row->later_count, &page);
        if (status)
            return status;
        page->next = change->later;
        change->later = page;
    }
    return KVERN_OK;
}

static kvern_status prepare(kvern_pool *pool, kvern_row *row, int64_t new_length,
                            const kvern_row_room *room, kvern_row_change *change)
{
    KVERN_ASSERT(new_length >= row->length);
    memset(change, 0, sizeof *change);
    // Asked once: another thread may let go of the table at any moment.
    const bool exclusive = kvern_table_is_exclusive(row->table);
    const size_t gap = gap_of(row);
    const size_t most = kvern_max_size(total_pages(row, new_length, 0), room->pages);
    if (exclusive)
        drop_surplus(row, most - kvern_min_size(most, needed_pages(row)));
    else
        change->dropped = dead_pages(row);
    change->total = kvern_max_size(total_pages(row, new_length, change->dropped), room->pages);
    const size_t least =
        kvern_max_size(change->total, kvern_max_size(room->later, row->reserved_later));
    const size_t written = new_length > row->length ? kvern_pages_of(new_length) : 0;
    kvern_status status = choose_table(pool, row, exclusive, least, change);
    if (!status)
        status = take_fresh(pool, row, change);
    if (!status && has_shared_tail(row, kvern_max_size(written, room->pages + gap)))
        status = kvern_pool_take(pool, 1, &change->copy);
    if (!status)
        status = take_later(row, room, change);
    if (status)
        kvern_row_cancel(row, change);
    return status;
}

kvern_status kvern_row_prepare(kvern_pool *pool, kvern_row *row, int64_t new_length, size_t reserve,
                               kvern_row_change *change)
{
    const kvern_row_room room = {.pages = reserve};
    return prepare(pool, row, new_length, &room, change);
}

kvern_status kvern_row_prepare_room(kvern_row *row, const kvern_row_room *room,
                                    kvern_row_change *change)
{
    if (room->whole)
        return kvern_whole_row_prepare(row, room, change);
    return prepare(room->pool, row, row->length, room, change);
}

size_t kvern_row_shared_pages(const kvern_row *row)
{
    const bool all = kvern_table_is_shared(row->table);
    size_t count = 0;
    for (size_t i = 0; row->table && i < row->table->count; i++)
        count += all || !kvern_page_is_exclusive(row->table->pages[i]);
    return count;
}

static void release_list(kvern_page *first)
{
    while (first) {
        kvern_page *page = first;
        first = page->next;
        kvern_page_release(page);
    }
}

void kvern_row_cancel(kvern_row *row, kvern_row_change *change)
{
    for (size_t i = change->fresh_begin; i < change->fresh_end; i++)
        kvern_page_release(change->table->pages[i]);
    if (change->copy)
        kvern_page_release(change->copy);
    release_list(change->later);
    release_list(change->room);
    kvern_ranges_release(change->ranges);
    if (change->table && change->table != row->table)
        free_table(change->table);
    memset(change, 0, sizeof *change);
}

// Lets go of the table that a row leaves, or keeps it for the end of the round: a table that others
// hold too, when the round first changes the row.
static void leave_table(kvern_table *old, kvern_row_undo *undo)
{
    if (undo && !undo->begun && kvern_table_is_shared(old))
        undo->table = old;
    else
        kvern_table_release(old);
}

// The copy takes the place of the shared, partly filled page. A table that is kept for the end of
// the round has that page itself.
static void replace_tail(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo)
{
    kvern_table *table = change->table;
    kvern_page **tail = &table->pages[kvern_table_used(table, row->length) - 1];
    memcpy(change->copy->data, (*tail)->data, kvern_page_bytes(change->copy));
    if (undo && !undo->begun && !undo->table)
        undo->tail = *tail;
    else
        kvern_page_release(*tail);
    *tail = change->copy;
}

void kvern_row_commit(kvern_row *row, kvern_row_change *change, kvern_row_undo *undo)
{
    kvern_table *old = row->table, *table = change->table;
    for (size_t i = change->fresh_end; i-- > change->fresh_begin;)
        push_room(row, table->pages[i]);
    if (table != old) {
        if (old)
            copy_pages(old, row->kept, change->dropped, table, needed_pages(row));
        row->table = table;
        leave_passed(row, change->dropped);
        leave_table(old, undo);
    }
    if (change->copy)
        replace_tail(row, change, undo);
    trim_room(row, change->total - kvern_min_size(change->total, table->count));
    kvern_row_add_pages(row, NULL, change->later);
    change->later = NULL;
    if (undo)
        undo->begun = true;
    KVERN_ASSERT(kvern_row_is_sound(row));
}

void kvern_row_extend(kvern_row *row, int64_t new_length)
{
    KVERN_ASSERT(kvern_row_is_open(row, new_length));
    kvern_table *table = row->table;
    const size_t used = kvern_table_used(table, new_length);
    while (table->count < used)
        table->pages[table->count++] = pop_room(row);
}

// ---- Whole rows ----

void kvern_row_reset(kvern_row *row)
{
    if (row->before)
        kvern_page_release(row->before);
    kvern_table_release(row->table);
    kvern_ranges_release(row->ranges);
    trim_room(row, 0);
    trim_later(row, 0);
    memset(row, 0, sizeof *row);
}

void kvern_row_share(const kvern_row *from, kvern_row *to)
{
    kvern_table_retain(from->table);
    kvern_ranges_retain(from->ranges);
    *to = *from;
    to->room = to->later = NULL;
    to->room_count = to->later_count = 0;
    to->reserved = to->passing = to->promised = to->reserved_later = to->spare = 0;
    KVERN_ASSERT(!to->before);
    kvern_row_give_back(to);
}

uint64_t kvern_row_bytes(const kvern_row *row)
{
    uint64_t bytes = 0;
    for (size_t i = 0; row->table && i < row->table->count; i++)
        bytes += kvern_page_bytes(row->table->pages[i]);
    for (const kvern_page *page = row->room; page; page = page->next)
        bytes += kvern_page_bytes(page);
    for (const kvern_page *page = row->later; page; page = page->next)
        bytes += kvern_page_bytes(page);
    return row->before ? bytes + kvern_page_bytes(row->before) : bytes;
}

static bool is_sound_table(const kvern_row *row)
{
    const kvern_table *table = row->table;
    if (!table)
        return row->length == 0;
    return table->count <= table->capacity &&
           table->count >= kvern_table_used(table, row->length) &&
           (table->gap == 0 ||
            (table->kept == row->kept &&
             (table->kept + table->gap) * KVERN_PAGE_POSITIONS <= (size_t)row->held));
}

static bool is_sound_ranges(const kvern_row *row)
{
    if (!row->ranges)
        return row->range_count == 0;
    return row->range_count > 0 && row->range_count <= row->ranges->count &&
           row->ranges->list[row->range_count - 1].end <= row->length;
}

static bool is_sound_list(const kvern_page *first, size_t count)
{
    size_t found = 0;
    for (const kvern_page *page = first; page; page = page->next, found++) {
        if (!kvern_page_is_exclusive(page))
            return false;
    }
    return found == count;
}

bool kvern_row_is_sound(const kvern_row *row)
{
    return is_sound_list(row->room, row->room_count) &&
           is_sound_list(row->later, row->later_count) &&
           (row->later_count == 0 || !row->converted) && row->held <= row->length &&
           is_sound_table(row) && is_sound_ranges(row);
}
