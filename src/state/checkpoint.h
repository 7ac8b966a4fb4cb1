// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_CHECKPOINT_H
#define KVERN_STATE_CHECKPOINT_H

// Checkpoints of rows (kvern/checkpoint.h): what the batch keeps of them, and where they go.

#include "src/state/state.h"

// One checkpoint of a row, in all layers.
struct kvern_checkpoint {
    kvern_checkpoint *below; // of the same row, at a smaller position
    int64_t position;
    uint64_t age;     // the smaller, the older
    uint64_t bytes;   // that it counts with
    kvern_row sets[]; // of rows (src/state/batch.h): they share the pages that the row had
};

// Drops the checkpoints of a row behind `position`; behind -1, all of them.
void kvern_checkpoints_drop(kvern_cache *caches, size_t row, int64_t position);

// Drops checkpoints until the rest fits the batch's budget; `kept` (NULL: none) stays.
void kvern_checkpoints_fit(kvern_cache *caches, const kvern_checkpoint *kept);

// Makes a checkpoint of row `row` at a position, whose sets are empty, for the caller to fill; then
// it is linked, or given up.
KVERN_CHECK kvern_status kvern_checkpoint_make(kvern_state *state, int64_t position,
                                               kvern_checkpoint **out);
void kvern_checkpoint_give_up(kvern_state *state, kvern_checkpoint *made);

// Adds a checkpoint to a row that has none at its position; it is the newest. The budget is not
// looked at.
void kvern_checkpoint_link(kvern_state *state, size_t row, kvern_checkpoint *made);

// Of the pages of a row in one layer, those that a checkpoint keeps for itself at most. `planned`:
// they are in the planned form.
size_t kvern_checkpoint_pages(const kvern_planned_layer *layer, bool planned, size_t pages);

// What a checkpoint takes besides pages, with tables for up to `most_pages`.
uint64_t kvern_checkpoint_rest_bytes(const kvern_composition *composition, size_t most_pages);

// The first thing about a row's checkpoints that does not hold, in words; NULL: all is well. Adds
// their bytes.
const char *kvern_checkpoints_walk(const kvern_cache *caches, size_t row, uint64_t *bytes);

#endif
