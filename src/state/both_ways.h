// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_BOTH_WAYS_H
#define KVERN_STATE_BOTH_WAYS_H

// Appends whose tokens see each other both ways: which of them do, as the caller says it, becomes
// ranges of the rows (src/rows/ranges.h). Checking comes first, then what can fail; what was
// prepared goes with the change of its row: kvern_row_cancel, kvern_row_commit_ranges.

#include "src/state/cache.h"

// Checks what the caller says of an append of checked counts; nothing where the phase is another.
KVERN_CHECK kvern_status kvern_both_ways_check(const kvern_cache *cache,
                                               const kvern_both_ways *both, const int64_t *counts);

// Makes the rows' new lists, in their changes, which are prepared already.
KVERN_CHECK kvern_status kvern_both_ways_prepare(kvern_cache *cache, const kvern_both_ways *both,
                                                 const int64_t *counts);

// The tokens are stored.
void kvern_both_ways_commit(kvern_cache *cache, const kvern_both_ways *both);

#endif
