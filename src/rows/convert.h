// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_CONVERT_H
#define KVERN_ROWS_CONVERT_H

// The change of a row from the codecs that it had before `start` (bf16) to the planned ones, once.
//
// Pages are converted one by one, in the row's own table, and each old page is given back before
// the next new one is taken. So above the row in bf16, which is the larger form, memory holds one
// page of the planned form: under a budget for the allocator, too, where pages of the first form
// are arenas by themselves, and arenas of new ones fit into what has been given back. That must not
// fail halfway: the first new page is taken beforehand, and where a later one cannot be had
// although the old ones went, a page is converted where it lies.
//
// Pages that the row has set aside for later are used first. With enough of them a row that nobody
// else holds takes nothing, and none of its pages is converted where it lies.
//
// Pages that somebody else can see, a read or a fork, stay for them; the new ones in their place
// are all taken beforehand. The same holds for a table that somebody else holds.

#include "src/rows/geometry.h"
#include "src/rows/row.h"

typedef struct kvern_conversion {
    kvern_pool *pool;   // of pages in the planned form; NULL: no conversion
    bool own;           // the row's table stays; otherwise `taken` is to be its table
    kvern_table *taken; // new pages for those that somebody else can see; NULL: there are none
    kvern_page *fresh;  // the first new page for the others; NULL: the row has set it aside
} kvern_conversion;

// Takes all that converting the row can fail for, which will have `count` pages then, at least one.
// `shared`: somebody else will hold its table besides those who do now. `pool`: of pages in the
// planned form.
KVERN_CHECK kvern_status kvern_conversion_prepare(kvern_pool *pool, const kvern_row *row,
                                                  size_t count, bool shared,
                                                  kvern_conversion *conversion);

// Converts the row, which has the pages that were prepared for.
void kvern_conversion_commit(const kvern_geometry *from, const kvern_geometry *to, kvern_row *row,
                             kvern_conversion *conversion);
void kvern_conversion_cancel(kvern_conversion *conversion);

#endif
