// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_STATE_H
#define KVERN_STATE_STATE_H

// The inside of a state.

#include "src/state/cache.h"

#include <kvern/state.h>

struct kvern_state {
    kvern_composition *composition;
    kvern_batch batch;    // of all its caches
    kvern_cache caches[]; // one per layer
};

// Whether nothing is open: KVERN_ERR_BUSY says what is.
KVERN_CHECK kvern_status kvern_state_check_idle(const kvern_state *state);

// Prepares all layers for counts[r] tokens in every row (NULL: none) and, in row `row`, for
// `tokens` positions. All or nothing; every cache is committed or cancelled afterwards.
KVERN_CHECK kvern_status kvern_state_prepare(kvern_state *state, const int64_t *counts, size_t row,
                                             int64_t tokens);

// Bytes of a state without what its rows hold.
size_t kvern_state_memory(const kvern_composition *composition, size_t rows);

// Makes a state whose rows are empty.
KVERN_CHECK kvern_status kvern_state_make(kvern_composition *composition, size_t rows,
                                          kvern_state **out);

#endif
