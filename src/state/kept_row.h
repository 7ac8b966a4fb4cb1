// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_KEPT_ROW_H
#define KVERN_STATE_KEPT_ROW_H

// Rows of all layers that are kept outside of a batch: those of checkpoints, and of entries of a
// store. They share pages with the row that they come from, as a fork does.

#include "src/state/state.h"

// Where a row of all sets (src/state/batch.h) lies: in a batch, or kept.
typedef struct kvern_row_source {
    const kvern_batch *batch;
    size_t row;
    const kvern_row *kept; // NULL: in the batch
} kvern_row_source;

const kvern_row *kvern_row_source_set(const kvern_row_source *source, size_t set);

// The length from which on a row may be cut to any length and reused, and the layer that it is for;
// NULL where that is nothing: kvern_state_min_reusable, and what cuts no positions in two that see
// each other both ways.
int64_t kvern_row_source_floor(const kvern_composition *composition, const kvern_row_source *source,
                               const kvern_planned_layer **layer);

// Row `row` of the state becomes what was kept in `kept`, a row of each set of equal signatures, in
// all layers; NULL: it becomes empty. Its room stays. Takes no memory; the caller sees to lengths
// and checkpoints.
void kvern_kept_row_take(kvern_state *state, size_t row, const kvern_row *kept);

// The row `to`, which is all zero, becomes what `from` is, with the same table: what it had counted
// with is counted once. A row without one may have reached its start.
void kvern_kept_row_share(const kvern_row *from, kvern_row *to);

// The empty row of an idle state becomes the first `positions` positions of a kept row of
// `kept_positions`, which may be cut there.
void kvern_kept_row_lend(kvern_state *state, size_t row, const kvern_row *kept,
                         int64_t kept_positions, int64_t positions);

// Whether a row of this context with these tokens may be kept. Errors: KVERN_ERR_BUSY (a step or a
// round is open), KVERN_ERR_ARGUMENT (another context), KVERN_ERR_RANGE (row; it is empty, or has
// not `count` positions).
KVERN_CHECK kvern_status kvern_kept_row_check(const kvern_context *context,
                                              const kvern_state *state, size_t row, size_t count);

#endif
