// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_CACHE_H
#define KVERN_STATE_CACHE_H

// The inside of a cache: what one layer stores of the rows of a batch.

#include "src/attend/read.h"
#include "src/state/batch.h"
#include "src/state/composition.h"

#include <kvern/recurrent.h>

struct kvern_cache {
    kvern_composition *composition;
    size_t layer;       // in the composition
    kvern_batch *batch; // the cache's own, or its state's
    size_t number;      // among the caches that share it
    size_t coded_set;   // of rows in it: what is not precise; 0: none
    kvern_row *rows;    // in it
    bool appended;      // in the open step
};

// Finds the rows in the batch.
void kvern_cache_find_rows(kvern_cache *cache);

static inline const kvern_planned_layer *kvern_cache_planned(const kvern_cache *cache)
{
    return &cache->composition->layers[cache->layer];
}

static inline kvern_context *kvern_cache_context(const kvern_cache *cache)
{
    return cache->composition->context;
}

// What operations of the layer work on.
static inline kvern_layer_rows kvern_cache_layer_rows(const kvern_cache *cache)
{
    kvern_layer_rows rows = kvern_batch_rows(cache->batch, cache->number);
    if (cache->coded_set) {
        const kvern_layer_rows coded = kvern_batch_rows(cache->batch, cache->coded_set);
        rows.coded = coded.rows;
        rows.coded_changes = coded.changes;
        rows.coded_undos = coded.undos;
    }
    return rows;
}

// Empties a row and gives up its reserved room.
void kvern_cache_reset_row(kvern_cache *cache, size_t row);

// Prepares the rows to receive counts[r] tokens (NULL: none) and row `reserve_row` to reach
// `reserve_tokens` positions. All or nothing; commit or cancel follows.
KVERN_CHECK kvern_status kvern_cache_prepare(kvern_cache *cache, const int64_t *counts,
                                             size_t reserve_row, int64_t reserve_tokens);
void kvern_cache_commit(kvern_cache *cache);
void kvern_cache_cancel(kvern_cache *cache);

// Whether a row can be cut by `tokens` positions.
KVERN_CHECK kvern_status kvern_cache_check_trim(const kvern_cache *cache, size_t row,
                                                int64_t tokens);

// The empty row of a recurrent layer becomes one of `length` positions with that state, all parts
// of which are there; also in a cache of a state. Its walk is the caller's. On failure nothing
// changed.
KVERN_CHECK kvern_status kvern_cache_fill_recurrent(kvern_cache *cache, size_t row, int64_t length,
                                                    const kvern_recur_state *content);

// Whether the cache belongs to no state, so that its own calls may change it.
KVERN_CHECK kvern_status kvern_cache_check_alone(const kvern_cache *cache);

// Whether nothing is open in the batch (kvern_batch_check_idle).
KVERN_CHECK kvern_status kvern_cache_check_idle(const kvern_cache *cache);

#endif
