// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_SETTLE_H
#define KVERN_STATE_SETTLE_H

// Settling: what appends leave to do for the rows that they gave tokens (kvern_layer_ops), in one
// cache or in all of a state together. Preparing takes all that can fail, for all of them or none;
// commit or cancel follows.

#include "src/state/cache.h"

typedef struct kvern_settling {
    kvern_cache *caches;
    size_t count; // of caches
    const int64_t *counts;
    size_t conversions; // rows of all caches that will be converted
} kvern_settling;

// `pending`: the append has been prepared, but not committed. `shared`: a read of it will be open.
// counts[r]: tokens that row r received, which must stay as they are until the end.
KVERN_CHECK kvern_status kvern_settling_prepare(kvern_cache *caches, size_t count,
                                                const int64_t *counts, bool pending, bool shared,
                                                kvern_settling *out);
// Rows are converted on all threads of the context.
void kvern_settling_commit(kvern_settling *settling);
void kvern_settling_cancel(kvern_settling *settling);

#endif
