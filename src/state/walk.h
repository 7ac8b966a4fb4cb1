// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_WALK_H
#define KVERN_STATE_WALK_H

// Walks all that a cache or a state is made of and looks whether it agrees: for asserts at the end
// of operations, and for tests after each of them.

#include "src/state/state.h"

// The first thing that does not hold, in words; NULL: all is well.
// `caches`: all that share the batch of the first one, a cache that stands alone by itself.
const char *kvern_caches_walk(const kvern_cache *caches);
const char *kvern_state_walk(const kvern_state *state);

// The same for a row of a layer between calls, with its coded row (src/layer/layer.h) or NULL.
const char *kvern_row_walk(const kvern_planned_layer *layer, const kvern_row *row,
                           const kvern_row *coded);

#endif
