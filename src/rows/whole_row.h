// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_WHOLE_ROW_H
#define KVERN_ROWS_WHOLE_ROW_H

// Whole rows: one page holds what a row is, whatever its length (recurrent layers). There are no
// positions in it, so nothing can be cut off; what was before is there only while its page is.
//
// Whoever changes such a row turns it to another page, writes there, and keeps the old page for as
// long as the change may be taken back: row->before until an open step ends, an undo
// (src/rows/undo.h) until a round ends. Forks hold the page itself.

#include "src/rows/row.h"

// Prepares that the row has as much room; commit or kvern_row_cancel follows. Of room->pages one is
// the row's own, unless it is empty. On failure nothing changed.
KVERN_CHECK kvern_status kvern_whole_row_prepare(kvern_row *row, const kvern_row_room *room,
                                                 kvern_row_change *change);
void kvern_whole_row_commit(kvern_row *row, kvern_row_change *change);

// The row's page; NULL while it is empty.
kvern_page *kvern_whole_row_page(const kvern_row *row);

// Whether nobody else can see the page of a row that is not empty.
bool kvern_whole_row_is_exclusive(const kvern_row *row);

// The row gets another page in place of its own, whose content is undefined. `page` is given to
// the row; the old page is the caller's, NULL where the row is empty. The row's table is its own.
kvern_page *kvern_whole_row_exchange(kvern_row *row, kvern_page *page);

#endif
