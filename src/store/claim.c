// SPDX-License-Identifier: MIT
#include "src/store/claim.h"

#include "src/base/assert.h"

static void count_page(kvern_claims *claims, kvern_page *page)
{
    if (page->stored++ > 0)
        return;
    claims->page_bytes += kvern_page_bytes(page);
    claims->bytes += kvern_page_bytes(page);
}

static void discount_page(kvern_claims *claims, kvern_page *page)
{
    KVERN_ASSERT(page->stored > 0);
    if (--page->stored > 0)
        return;
    claims->page_bytes -= kvern_page_bytes(page);
    claims->bytes -= kvern_page_bytes(page);
}

static uint64_t ranges_bytes(const kvern_row *row)
{
    return row->ranges ? kvern_ranges_bytes(row->ranges) : 0;
}

void kvern_claim_row(kvern_claims *claims, const kvern_row *row)
{
    kvern_table *table = row->table;
    if (row->ranges && row->ranges->stored++ == 0)
        claims->bytes += ranges_bytes(row);
    if (!table || table->stored++ > 0)
        return;
    claims->bytes += kvern_table_bytes(table->capacity);
    for (size_t p = 0; p < table->count; p++)
        count_page(claims, table->pages[p]);
}

void kvern_unclaim_row(kvern_claims *claims, const kvern_row *row)
{
    kvern_table *table = row->table;
    KVERN_ASSERT((!table || table->stored > 0) && (!row->ranges || row->ranges->stored > 0));
    if (row->ranges && --row->ranges->stored == 0)
        claims->bytes -= ranges_bytes(row);
    if (!table || --table->stored > 0)
        return;
    claims->bytes -= kvern_table_bytes(table->capacity);
    for (size_t p = 0; p < table->count; p++)
        discount_page(claims, table->pages[p]);
}

uint64_t kvern_claim_most(const kvern_row *row)
{
    const kvern_table *table = row->table;
    uint64_t bytes = (table ? kvern_table_bytes(table->capacity) : 0) + ranges_bytes(row);
    for (size_t p = 0; table && p < table->count; p++)
        bytes += kvern_page_bytes(table->pages[p]);
    return bytes;
}
