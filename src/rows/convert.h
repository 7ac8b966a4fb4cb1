// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_CONVERT_H
#define KVERN_ROWS_CONVERT_H

// The change of a row from the codecs that it had before `start` (bf16) to the planned ones, once.
//
// Pages are converted one by one, and each old page is given back before the next new one is
// taken: above the row in bf16, which is the larger form, memory holds at most two pages of the
// planned form, the one that is written and a spare one. That must not fail halfway: when no
// further page can be had although the old ones went, a page's new form, which is never the
// larger one, is put where its old form was. Pages that somebody else can see, a read or a fork,
// stay for them; then all new ones are taken beforehand.

#include "src/rows/geometry.h"
#include "src/rows/row.h"

typedef struct kvern_conversion {
    kvern_table *table; // of the row afterwards; NULL: no conversion
    size_t taken;       // pages of it that have been taken beforehand: all, or none
    kvern_page *spare;  // when none: where a page is encoded that has to stay where it is
} kvern_conversion;

// Takes all that converting the row can fail for, which will have `count` pages then. `shared`:
// somebody else will hold its table besides those who do now. `pool`: of pages in the planned form.
KVERN_CHECK kvern_status kvern_conversion_prepare(kvern_pool *pool, const kvern_row *row,
                                                  size_t count, bool shared,
                                                  kvern_conversion *conversion);

// Converts the row, which has the pages that were prepared for.
void kvern_conversion_commit(const kvern_geometry *from, const kvern_geometry *to, kvern_row *row,
                             kvern_conversion *conversion);
void kvern_conversion_cancel(kvern_conversion *conversion);

#endif
