// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_INDEX_SCAN_H
#define KVERN_ATTEND_INDEX_SCAN_H

// Selecting positions by index keys: scores of all positions that queries see, and the best of
// them, split over threads (docs/arithmetic.md, "Selected positions").
//
// A tile is a few queries of one row, which read its keys together. Tiles are cut into chunks of
// positions; whoever scores the last chunk of a tile makes its selections. A tile keeps its order
// keys in scratch until then, so tiles are taken in rounds, two for every thread.

#include "src/attend/selection.h"

// Selects for checked queries; counts, first and start of *queries are not NULL and agree with the
// rows. Every row with queries has an index stream. Fills in the lists, and nothing on failure.
// Errors: KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_index_scan(kvern_context *context, kvern_reservation *reservation,
                                          const kvern_view *view,
                                          const kvern_index_queries *queries,
                                          const kvern_selection *selection);

// Scratch that it takes at most for up to `queries` queries in each of `rows` rows of up to
// `positions` positions. SIZE_MAX when it does not fit.
size_t kvern_index_scan_scratch_bytes(const kvern_context *context, const kvern_geometry *geometry,
                                      size_t rows, int64_t queries, size_t heads,
                                      int64_t positions);

#endif
