// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_ATTEND_H
#define KVERN_ATTEND_ATTEND_H

// Attending queries against rows of pages: the arithmetic of docs/arithmetic.md, split over
// threads.
//
// The work is cut into tiles of query vectors: a vector is one query head of one query, and the
// vectors of a tile share a row, or rows that share pages, so that they read the same pages: of one
// KV head, or of several where a head has few vectors. When there are fewer tiles than threads
// want, tiles are cut further by spans of positions, whose partial results are merged afterwards.
// The arithmetic has the spans anyway, so how the work is cut changes no bit.

#include "src/attend/visibility.h"
#include "src/base/context.h"

#include <kvern/read.h>

// What is attended: rows of one layer. The rows' own geometries differ from `geometry` in nothing
// but the codecs.
typedef struct kvern_view {
    const kvern_geometry *geometry; // the planned one, of what is read in the first pass, too
    size_t query_floats;            // the largest of all geometries
    kvern_window window;
    const kvern_read_row *rows;
    size_t row_count;
} kvern_view;

// Attends checked queries (see kvern_read_attend). q_start, out_start, counts and first of *queries
// are not NULL and agree with the rows. `order`: working memory, two numbers per row. Scratch comes
// from the reservation (NULL: none) if it has enough.
KVERN_CHECK kvern_status kvern_attend(kvern_context *context, kvern_reservation *reservation,
                                      const kvern_view *view, const kvern_queries *queries,
                                      uint32_t *order);

// The same with the caller's scratch, aligned to a cache line; queries may have one query per row.
// `room`: its bytes, at least what kvern_attend_scratch_bytes says of such an attend.
KVERN_CHECK kvern_status kvern_attend_within(kvern_context *context, const kvern_view *view,
                                             const kvern_queries *queries, uint32_t *order,
                                             void *scratch, size_t room);

// Scratch that an attend of one query per row takes at most, with `query_heads` heads and rows of
// up to `positions` positions; what a reservation sets aside. view->rows is not looked at. 0 for no
// heads; SIZE_MAX when it does not fit.
size_t kvern_attend_scratch_bytes(const kvern_context *context, const kvern_view *view,
                                  size_t query_heads, int64_t positions);

#endif
