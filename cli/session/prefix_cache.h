// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_PREFIX_CACHE_H
#define KVERN_CLI_PREFIX_CACHE_H

// Where a command keeps prompts and answers that have ended, so that a prompt which begins as one
// of them need not be computed again (kvern/store.h).

#include "cli/session/model_loading.h"

#include <kvern/store.h>

typedef struct prefix_cache {
    kvern_store *store;      // NULL: nothing is kept
    kvern_store_field model; // what it is kept under
    kvern_store_key key;
} prefix_cache;

// Bytes that are kept in memory at most; a request that needs the memory takes it.
#define PREFIX_CACHE_BYTES (UINT64_C(1) << 30)

// Opens one for a model, unless the options say --no-cache. Errors: KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET; *out keeps nothing then. It must stay where it is while it is used.
KVERN_CHECK kvern_status prefix_cache_open(const cli_options *options, const loaded_model *loaded,
                                           prefix_cache *out, engine_error *error);

// All zero is permitted. Rows that it lent live on.
void prefix_cache_close(prefix_cache *cache);

#endif
