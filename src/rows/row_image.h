// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_ROW_IMAGE_H
#define KVERN_ROWS_ROW_IMAGE_H

// A row as data: what an empty row becomes at once when its positions come from elsewhere, from a
// caller's planes or from another row. What the row was told for itself stays: its reservation, and
// the boundary of its conversion.

#include "src/rows/row.h"

typedef struct kvern_row_image {
    kvern_pool *pool;   // of pages in its form
    bool converted;     // see kvern_row, as for floor and held
    bool is_other_form; // not the form of the row's room, which then goes
    int64_t length;     // positions; of those,
    int64_t keep, held; // the ones between the first `keep` and `held` are not there
    int64_t floor;
    kvern_ranges *ranges; // borrowed; NULL: none
    size_t range_count;   // of them
} kvern_row_image;

// Pages that a row of the image has in its table.
size_t kvern_row_image_pages(const kvern_row_image *image);

// Takes all that an empty row needs to become the image; commit or kvern_row_cancel follows. On
// failure nothing changed.
KVERN_CHECK kvern_status kvern_row_image_prepare(kvern_row *row, const kvern_row_image *image,
                                                 kvern_row_change *change);

// The row becomes the image. What its pages hold is undefined, for the caller to fill them.
void kvern_row_image_commit(kvern_row *row, const kvern_row_image *image, kvern_row_change *change);

// The empty row becomes the image with pages that are there already: it shares `table`, which may
// hold more than the image needs; settling the row gives that back. Cannot fail.
void kvern_row_image_share(kvern_row *row, const kvern_row_image *image, kvern_table *table);

#endif
