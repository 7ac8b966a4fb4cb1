// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_FORK_H
#define KVERN_STORE_FORK_H

// Forks of rows that are to be written somewhere, with those of their checkpoints that serve what
// the row does not.

#include "src/state/checkpoint.h"
#include "src/state/kept_row.h"

// A row of a state.
typedef struct kvern_fork_source {
    const kvern_state *state;
    size_t row;
    size_t count;  // its length
    int64_t floor; // set by kvern_fork_check
} kvern_fork_source;

// Whether anybody may reuse the row at all: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_fork_check(kvern_fork_source *source);

// Checkpoints that are of use, the largest position first; `checkpoint`: the first one to look at.
const kvern_checkpoint *kvern_fork_first(const kvern_fork_source *source);
const kvern_checkpoint *kvern_fork_next(const kvern_fork_source *source,
                                        const kvern_checkpoint *checkpoint);

int64_t kvern_fork_floor(const kvern_composition *composition, const kvern_checkpoint *checkpoint);

// A state of one row, with these checkpoints. On failure *out may be there in part, and is the
// caller's to destroy. Errors: KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_fork_make(const kvern_fork_source *source, kvern_state **out);

#endif
