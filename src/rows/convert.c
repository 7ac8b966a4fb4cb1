// SPDX-License-Identifier: MIT
#include "src/rows/convert.h"

#include "src/base/assert.h"
#include "src/base/size.h"
#include "src/rows/convert_page.h"

#include <kvern/composition.h>
#include <string.h>

// ---- Prepare ----

// Pages of a table that somebody else holds too. They may become fewer at any time, but not more
// while nobody else holds the table.
static size_t count_shared(const kvern_table *table)
{
    size_t count = 0;
    for (size_t i = 0; table && i < table->count; i++)
        count += !kvern_page_is_exclusive(table->pages[i]);
    return count;
}

static kvern_status take_pages(kvern_pool *pool, size_t count, kvern_table **out)
{
    kvern_status status = kvern_table_create(pool, count, out);
    if (status)
        return status;
    status = kvern_pool_take(pool, count, (*out)->pages);
    (*out)->count = status ? 0 : count;
    return status;
}

kvern_status kvern_conversion_prepare(kvern_pool *pool, const kvern_row *row, size_t count,
                                      bool shared, kvern_conversion *conversion)
{
    memset(conversion, 0, sizeof *conversion);
    const bool all = shared || kvern_table_is_shared(row->table);
    const bool enough = !all && row->later_count >= count;
    const size_t seen = all ? count : kvern_min_size(count, count_shared(row->table));
    kvern_status status = KVERN_OK;
    if (seen > 0 && !enough)
        status = take_pages(pool, seen, &conversion->taken);
    conversion->own = seen < count || enough;
    if (!status && conversion->own && row->later_count == 0)
        status = kvern_pool_take_first(pool, 1, &conversion->fresh);
    if (status)
        kvern_conversion_cancel(conversion);
    else
        conversion->pool = pool;
    return status;
}

void kvern_conversion_cancel(kvern_conversion *conversion)
{
    kvern_table_release(conversion->taken);
    if (conversion->fresh)
        kvern_page_release(conversion->fresh);
    memset(conversion, 0, sizeof *conversion);
}

// ---- Commit ----

// Positions in page number `page` of `count`, the last of which may be filled in part.
static size_t slots_of(const kvern_row *row, size_t page, size_t count)
{
    const size_t rest = (size_t)row->length % KVERN_PAGE_POSITIONS;
    return page + 1 == count && rest ? rest : (size_t)KVERN_PAGE_POSITIONS;
}

// The row gets another table, and the old one stays for those who hold it.
static void convert_to_taken(const kvern_geometry *from, const kvern_geometry *to, kvern_row *row,
                             kvern_conversion *conversion)
{
    kvern_table *old = row->table, *table = conversion->taken;
    KVERN_ASSERT(table->count == kvern_table_used(old, row->length));
    for (size_t i = 0; i < table->count; i++)
        kvern_convert_page(from, to, old->pages[i]->data, table->pages[i]->data,
                           slots_of(row, i, table->count));
    table->kept = old->kept;
    table->gap = old->gap;
    row->table = table;
    conversion->taken = NULL;
    kvern_table_release(old);
}

// The conversion of a table that nobody else holds.
typedef struct own_work {
    const kvern_geometry *from, *to;
    kvern_row *row;
    kvern_conversion *conversion;
    size_t given; // bytes of old pages that were given back, less those of the new ones
    size_t left;  // pages to convert
} own_work;

// A page for the new form of `old`; NULL: it has to stay where it is, and nobody else can see it.
static kvern_page *next_page(own_work *work, const kvern_page *old)
{
    kvern_conversion *conversion = work->conversion;
    if (!kvern_page_is_exclusive(old) && conversion->taken)
        return conversion->taken->pages[--conversion->taken->count];
    kvern_page *page = kvern_row_take_later(work->row);
    if (page)
        return page;
    KVERN_ASSERT(kvern_page_is_exclusive(old));
    page = conversion->fresh;
    conversion->fresh = NULL;
    const size_t most = 1 + work->given / work->to->page_bytes;
    if (!page && kvern_pool_take_first(conversion->pool, kvern_min_size(most, work->left), &page))
        return NULL;
    return page;
}

static void convert_one(own_work *work, kvern_page **page, size_t slots)
{
    kvern_page *fresh = next_page(work, *page);
    if (!fresh) {
        kvern_convert_in_place(work->from, work->to, (*page)->data, slots);
        return;
    }
    kvern_convert_page(work->from, work->to, (*page)->data, fresh->data, slots);
    if (kvern_page_is_exclusive(*page))
        work->given += work->from->page_bytes - work->to->page_bytes;
    kvern_page_release(*page);
    *page = fresh;
}

static void change_pool(kvern_table *table, kvern_pool *pool)
{
    kvern_pool_retain(pool);
    kvern_pool_release(table->pool);
    table->pool = pool;
}

static void convert_own_table(const kvern_geometry *from, const kvern_geometry *to, kvern_row *row,
                              kvern_conversion *conversion)
{
    kvern_table *table = row->table;
    own_work work = {from, to, row, conversion, 0, table->count};
    KVERN_ASSERT(table->count == kvern_table_used(table, row->length));
    for (size_t i = 0; i < table->count; i++, work.left--)
        convert_one(&work, &table->pages[i], slots_of(row, i, table->count));
    change_pool(table, conversion->pool);
}

void kvern_conversion_commit(const kvern_geometry *from, const kvern_geometry *to, kvern_row *row,
                             kvern_conversion *conversion)
{
    kvern_row_drop_room(row); // of the old form
    if (conversion->own)
        convert_own_table(from, to, row, conversion);
    else
        convert_to_taken(from, to, row, conversion);
    row->converted = true;
    kvern_row_change_form(row);
    kvern_conversion_cancel(conversion); // what turned out not to be needed
    KVERN_ASSERT(kvern_row_is_sound(row));
}
