// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_CACHE_H
#define KVERN_STATE_CACHE_H

// The inside of a cache, and the parts of an append that a state's step does at different times.

#include "src/attend/read.h"
#include "src/rows/convert.h"
#include "src/rows/row.h"
#include "src/rows/undo.h"
#include "src/state/composition.h"

#include <kvern/state.h>

// Memory for rows (src/state/row_block.h).
typedef struct kvern_row_block {
    size_t caches;
    size_t capacity; // rows of each
    void *memory;
    kvern_row *spare;          // per row, for the length of a call
    bool *named;               // likewise
    int64_t *lengths, *counts; // per row of a state: its length, and its tokens in the open step
    int64_t *round_begin;      // its length when the open round began
    int64_t *round_most;       // tokens that it may receive in that round
} kvern_row_block;

struct kvern_cache {
    kvern_composition *composition;
    size_t layer;
    const kvern_state *owner; // only its steps and row operations change the cache; NULL: none
    kvern_row_block *block;   // the cache's own, or its owner's
    size_t row_count;
    kvern_row *rows;
    kvern_row_change *changes;     // one per row, for the length of a call
    kvern_conversion *conversions; // likewise
    kvern_row_undo *undos;         // one per row, for the length of a round; else zero
};

// What sizes the tokens of callers have.
extern const kvern_sized kvern_tokens_sizes;

// What the pages of a row look like, and where they come from.
typedef struct kvern_form {
    const kvern_geometry *geometry;
    kvern_pool *pool;
} kvern_form;

kvern_form kvern_cache_form(const kvern_cache *cache, const kvern_row *row);

// What attends of the cache work with, rows aside.
kvern_view kvern_cache_view(const kvern_cache *cache);

static inline const kvern_planned_layer *kvern_cache_planned(const kvern_cache *cache)
{
    return &cache->composition->layers[cache->layer];
}

static inline kvern_context *kvern_cache_context(const kvern_cache *cache)
{
    return cache->composition->context;
}

// Checks the counts of an append in the phase that allows at most `most` tokens per row.
KVERN_CHECK kvern_status kvern_cache_check_counts(const kvern_cache *cache, const int64_t *counts,
                                                  int64_t most);

// Prepares every row to receive counts[r] tokens (NULL: none) and, in row `reserve_row`, to hold
// `reserve_pages`. All or nothing; commit or cancel follows.
KVERN_CHECK kvern_status kvern_cache_prepare(kvern_cache *cache, const int64_t *counts,
                                             size_t reserve_row, size_t reserve_pages);
void kvern_cache_commit(kvern_cache *cache);
void kvern_cache_cancel(kvern_cache *cache);

// The whole append of checked counts: tokens->counts is not looked at. The rows are settled
// afterwards: by the append itself when `settle`, else by the caller.
KVERN_CHECK kvern_status kvern_cache_append(kvern_cache *cache, const kvern_tokens *tokens,
                                            const int64_t *counts, bool settle, kvern_read **read);

// Fills in a read of the rows as they are, whose last counts[r] positions have queries.
void kvern_cache_fill_read(const kvern_cache *cache, const int64_t *counts, kvern_read *read);

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

// Whether the cache belongs to nobody, so that its own calls may change it.
KVERN_CHECK kvern_status kvern_cache_check_alone(const kvern_cache *cache);

// Whether its owner, if it has one, has nothing open; or no round: a step leaves what rows hold as
// it is, while the tokens of a round may never have been.
KVERN_CHECK kvern_status kvern_cache_check_idle(const kvern_cache *cache);
KVERN_CHECK kvern_status kvern_cache_check_no_round(const kvern_cache *cache);

#endif
