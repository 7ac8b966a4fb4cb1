// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_SELECTION_H
#define KVERN_ATTEND_SELECTION_H

// Selections of positions, as callers hand them over.

#include "src/attend/attend.h"

#include <kvern/select.h>

// Copies a struct of the caller (see kvern_sized_read).
KVERN_CHECK kvern_status kvern_selection_read(const kvern_selection *given, kvern_selection *known);

// Whether the queries of a view, which are complete and fit it, can attend the selection. Errors:
// those of kvern_read_attend.
KVERN_CHECK kvern_status kvern_selection_check(const kvern_selection *selection,
                                               const kvern_view *view,
                                               const kvern_queries *queries);

// Query number `n` of a call: query `index` of row `row`.
typedef struct kvern_query_number {
    size_t n, row;
    int64_t index;
} kvern_query_number;

// Steps through the queries of a call, row by row; begin with *at all zero. False: there is none.
static inline bool kvern_query_number_find(const kvern_view *view, const int64_t *counts,
                                           kvern_query_number *at)
{
    while (at->row < view->row_count && at->index == counts[at->row]) {
        at->row++;
        at->index = 0;
    }
    return at->row < view->row_count;
}

static inline void kvern_query_number_step(kvern_query_number *at)
{
    at->n++;
    at->index++;
}

#endif
