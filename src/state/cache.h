// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_CACHE_H
#define KVERN_STATE_CACHE_H

// The inside of a cache: what one layer stores of the rows of a batch.

#include "src/attend/read.h"
#include "src/state/batch.h"
#include "src/state/composition.h"

struct kvern_cache {
    kvern_composition *composition;
    size_t layer;
    kvern_batch *batch; // the cache's own, or its state's
    bool appended;      // in the open step
    kvern_row *rows;    // these four: see kvern_batch_rows
    kvern_row_change *changes;
    kvern_conversion *conversions;
    kvern_row_undo *undos;
};

// Finds the rows in the batch, of whose caches this is number `index`.
void kvern_cache_find_rows(kvern_cache *cache, size_t index);

// What the pages of a row look like, and where they come from.
typedef struct kvern_form {
    const kvern_geometry *geometry;
    kvern_pool *pool;
} kvern_form;

// Query vectors of an attend that fill whole KV heads: at least `query_vectors`.
static inline size_t kvern_whole_heads(const kvern_geometry *g, size_t query_vectors)
{
    const size_t rest = query_vectors % g->kv_heads;
    return rest && query_vectors <= SIZE_MAX - g->kv_heads ? query_vectors + g->kv_heads - rest
                                                           : query_vectors;
}

kvern_form kvern_cache_form(const kvern_cache *cache, const kvern_row *row);

// What attends of a layer, or of a cache, work with, rows aside.
kvern_view kvern_planned_view(const kvern_planned_layer *layer, size_t row_count);
kvern_view kvern_cache_view(const kvern_cache *cache);

static inline const kvern_planned_layer *kvern_cache_planned(const kvern_cache *cache)
{
    return &cache->composition->layers[cache->layer];
}

static inline kvern_context *kvern_cache_context(const kvern_cache *cache)
{
    return cache->composition->context;
}

// Prepares every row to receive counts[r] tokens (NULL: none) and, in row `reserve_row`, to hold
// `reserve_pages`. All or nothing; commit or cancel follows.
KVERN_CHECK kvern_status kvern_cache_prepare(kvern_cache *cache, const int64_t *counts,
                                             size_t reserve_row, size_t reserve_pages);
void kvern_cache_commit(kvern_cache *cache);
void kvern_cache_cancel(kvern_cache *cache);

// Whether a row would be converted when an append leaves it with `length` positions.
bool kvern_cache_is_due(const kvern_cache *cache, const kvern_row *row, int64_t length);

// Settling is what an append leaves to do for the rows that it gave tokens: positions fall out of
// windows, and rows that have reached their start are converted. Preparing takes all that can fail;
// commit or cancel follows.
// `pending`: the append has been prepared, but not committed. `shared`: a read of it will be open.
KVERN_CHECK kvern_status kvern_cache_prepare_settling(kvern_cache *cache, const int64_t *counts,
                                                      bool pending, bool shared);
void kvern_cache_commit_settling(kvern_cache *cache, const int64_t *counts);
void kvern_cache_cancel_settling(kvern_cache *cache);

// Converts a row whose conversion is prepared, in the library's floating-point environment.
void kvern_cache_convert(const kvern_cache *cache, kvern_row *row, kvern_conversion *conversion);

// Whether a row can be cut to `length` positions.
KVERN_CHECK kvern_status kvern_cache_check_trim(const kvern_cache *cache, size_t row,
                                                int64_t tokens);

// Whether the cache belongs to no state, so that its own calls may change it.
KVERN_CHECK kvern_status kvern_cache_check_alone(const kvern_cache *cache);

// Whether nothing is open in the batch (kvern_batch_check_idle).
KVERN_CHECK kvern_status kvern_cache_check_idle(const kvern_cache *cache);

#endif
