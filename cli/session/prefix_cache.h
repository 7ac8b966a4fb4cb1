// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_PREFIX_CACHE_H
#define KVERN_CLI_PREFIX_CACHE_H

// Where a command keeps prompts and answers that have ended, so that a prompt which begins as one
// of them need not be computed again: in memory (kvern/store.h), with --cache in a directory
// (kvern/disk_store.h), and with --store at a server that machines share (kvern/remote_store.h).

#include "cli/session/model_fingerprint.h"
#include "cli/session/model_loading.h"

#include <kvern/disk_store.h>
#include <kvern/remote_store.h>

typedef struct prefix_cache {
    kvern_store *store;         // NULL: nothing is kept
    kvern_disk_store *disk;     // NULL: not in a directory
    kvern_remote_store *remote; // NULL: not at a server
    kvern_store_field fields[3];
    kvern_store_key key;                // the model, this program's version and its arithmetic
    char model[MODEL_FINGERPRINT_TEXT]; // a digest of all its bytes
} prefix_cache;

// Bytes that are kept in memory at most; a request that needs the memory takes it. In a directory.
#define PREFIX_CACHE_BYTES (UINT64_C(1) << 30)
#define PREFIX_CACHE_DISK_BYTES (UINT64_C(4) << 30)

// Opens one for a model, unless the options say --no-cache. Files of the directory that are no
// entries are moved aside and reported on standard error, as a server that does not answer is.
// Errors: KVERN_ERR_ARGUMENT and KVERN_ERR_UNSUPPORTED (of a server's URL), KVERN_ERR_IO,
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET; *out keeps nothing then. It must stay where it is while it is
// used.
KVERN_CHECK kvern_status prefix_cache_open(const cli_options *options, const loaded_model *loaded,
                                           prefix_cache *out, engine_error *error);

// Writes what waits to be written. All zero is permitted. Rows that were lent live on.
// Whether the server of --store answers; asks it, and waits for that.
bool prefix_cache_reaches_server(prefix_cache *cache, kvern_composition *composition);

void prefix_cache_close(prefix_cache *cache);

#endif
