// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_SELECTED_H
#define KVERN_ATTEND_SELECTED_H

// Attending selected positions. Each query gets a compact row: pages in scratch that hold what is
// stored at its selected positions, one after the other and nothing else. Compact rows are attended
// like any others, so the arithmetic of a selected read is that of a dense one over the compact
// row. Of a query that selects all that it sees, the compact row is the row itself.
//
// Queries are taken in rounds, as many at a time as scratch has room for.

#include "src/attend/selection.h"

#include <kvern/latent.h>

// Attends checked queries with a checked selection; with weights by a materialized read, else
// (NULL) as positions are stored. Errors: KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET;
// then nothing was written.
KVERN_CHECK kvern_status kvern_attend_selected(kvern_context *context,
                                               kvern_reservation *reservation,
                                               const kvern_view *view, const kvern_queries *queries,
                                               const kvern_selection *selection,
                                               const kvern_latent_weights *weights);

// Scratch that such an attend takes at most, with up to `queries` queries of `vectors` query heads
// altogether in rows of up to `positions` positions, of which each query selects `selected` at
// most. view->rows is not looked at. `dims`: also of materialized reads with weights of these dims;
// or NULL. SIZE_MAX when it does not fit.
size_t kvern_selected_scratch_bytes(const kvern_context *context, const kvern_view *view,
                                    size_t queries, size_t vectors, int64_t positions,
                                    int64_t selected, const kvern_latent_weights *dims);

#endif
