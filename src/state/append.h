// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_APPEND_H
#define KVERN_STATE_APPEND_H

// Appends: the part that a cache and a step have in common.

#include "src/base/sized.h"
#include "src/state/cache.h"

// What sizes the tokens of callers have.
extern const kvern_sized kvern_tokens_sizes;

// The whole append of checked tokens and counts: tokens->counts is not looked at. The rows are
// settled afterwards: by the append itself when `settle`, else by the caller.
KVERN_CHECK kvern_status kvern_cache_store(kvern_cache *cache, const kvern_tokens *tokens,
                                           const int64_t *counts, bool settle, kvern_read **read);

// Fills in a read of the rows as they are, whose last counts[r] positions have queries.
void kvern_cache_fill_read(const kvern_cache *cache, const int64_t *counts, kvern_read *read);

#endif
