// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_STATE_H
#define KVERN_STATE_STATE_H

// The inside of a state.

#include "src/state/row_block.h"

#include <kvern/state.h>

struct kvern_state {
    kvern_composition *composition;
    kvern_row_block block; // of all its caches; the rows' lengths are without an open step
    bool *appended;        // [layers], in the open step
    bool step_open;
    kvern_phase phase; // of the open step
    bool round_open;
    kvern_cache caches[]; // [layers], all with the same number of rows
};

// Whether nothing is open: KVERN_ERR_BUSY says what is.
KVERN_CHECK kvern_status kvern_state_check_idle(const kvern_state *state);

// Settles all layers, or prepares to (see kvern_cache_prepare_settling): for counts[r] tokens.
KVERN_CHECK kvern_status kvern_state_prepare_settling(kvern_state *state, const int64_t *counts);
void kvern_state_commit_settling(kvern_state *state, const int64_t *counts);

// Makes a state whose rows are empty.
KVERN_CHECK kvern_status kvern_state_make(kvern_composition *composition, size_t rows,
                                          kvern_state **out);

#endif
