// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_APPEND_H
#define KVERN_STATE_APPEND_H

// Appends: the part that a cache and a step have in common.

#include "src/base/sized.h"
#include "src/state/state.h"

// What sizes the tokens of callers have.
extern const kvern_sized kvern_tokens_sizes;

// The lanes of keys and values, in an append of that phase.
kvern_lane_views kvern_tokens_views(const kvern_tokens *tokens, kvern_phase phase);

// Stores tokens of checked counts. The rows are settled afterwards: by the append itself when
// `settle`, else by the caller.
KVERN_CHECK kvern_status kvern_cache_store(kvern_cache *cache, const kvern_lane_views *views,
                                           const int64_t *counts, bool settle, kvern_read **read);

// The whole append to a cache that stands alone (kvern_cache_check_alone).
KVERN_CHECK kvern_status kvern_cache_append_lanes(kvern_cache *cache, kvern_phase phase,
                                                  const kvern_lane_views *views,
                                                  const int64_t *counts, kvern_read **read);

// Whether the layer can append in the open step, tokens that it stores in that lane among others;
// counts NULL: the step's.
KVERN_CHECK kvern_status kvern_step_check_append(const kvern_state *state, size_t layer,
                                                 kvern_lane lane, const int64_t *counts);

// The whole append to a layer of the open step.
KVERN_CHECK kvern_status kvern_step_append_lanes(kvern_state *state, size_t layer,
                                                 const kvern_lane_views *views, kvern_read **read);

// Fills in a read of the rows as they are, the cache's or others in their place, whose last
// counts[r] positions have queries.
void kvern_cache_fill_read(const kvern_cache *cache, const kvern_layer_rows *rows,
                           const int64_t *counts, kvern_read *read);

#endif
