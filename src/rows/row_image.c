// SPDX-License-Identifier: MIT
#include "src/rows/row_image.h"

#include "src/base/assert.h"

#include <kvern/composition.h>

// Pages that the image does without, behind those of the kept positions.
static size_t gap_of(const kvern_row_image *image)
{
    const size_t kept = kvern_pages_of(image->keep);
    const size_t first = (size_t)(image->held / KVERN_PAGE_POSITIONS);
    return first > kept ? first - kept : 0;
}

size_t kvern_row_image_pages(const kvern_row_image *image)
{
    return kvern_pages_of(image->length) - gap_of(image);
}

static void take_over(kvern_row *row, const kvern_row_image *image)
{
    row->converted = image->converted;
    row->length = image->length;
    row->held = image->held;
    row->kept = kvern_pages_of(image->keep);
    row->floor = image->floor;
    KVERN_ASSERT(!row->ranges);
    kvern_ranges_retain(image->ranges);
    row->ranges = image->ranges;
    row->range_count = image->range_count;
}

// A row of planned pages, trimmed to nothing, may also become one that is not converted.
static void change_form(kvern_row *row, const kvern_row_image *image)
{
    if (image->converted)
        kvern_row_change_form(row);
    else
        kvern_row_drop_room(row);
}

// The row is prepared for as many pages as the image has, from its beginning on.
kvern_status kvern_row_image_prepare(kvern_row *row, const kvern_row_image *image,
                                     kvern_row_change *change)
{
    KVERN_ASSERT(row->length == 0 && image->length > 0 && image->held <= image->length);
    const int64_t positions = (int64_t)kvern_row_image_pages(image) * KVERN_PAGE_POSITIONS;
    kvern_row other = {.reserved = image->converted && row->reserved_later ? row->reserved_later
                                                                           : row->reserved};
    return kvern_row_prepare(image->pool, image->is_other_form ? &other : row, positions, 0,
                             change);
}

void kvern_row_image_commit(kvern_row *row, const kvern_row_image *image, kvern_row_change *change)
{
    if (image->is_other_form) {
        change_form(row, image);
        kvern_table_release(row->table);
        row->table = NULL;
    }
    kvern_row_commit(row, change, NULL);
    kvern_row_extend(row, (int64_t)kvern_row_image_pages(image) * KVERN_PAGE_POSITIONS);
    row->table->kept = kvern_pages_of(image->keep);
    row->table->gap = gap_of(image);
    take_over(row, image);
    KVERN_ASSERT(kvern_row_is_sound(row));
}

void kvern_row_image_share(kvern_row *row, const kvern_row_image *image, kvern_table *table)
{
    KVERN_ASSERT(row->length == 0);
    if (image->is_other_form)
        change_form(row, image);
    kvern_table_retain(table);
    kvern_table_release(row->table);
    row->table = table;
    take_over(row, image);
    KVERN_ASSERT(kvern_row_is_sound(row));
}
