// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_CACHE_DIRECTORY_H
#define KVERN_CLI_CACHE_DIRECTORY_H

// kvern cache list, kvern cache prune: directories of a store on disk (kvern/disk_store.h).

#include <kvern/kvern.h>

#include <stdbool.h>

// Lists the entries of a directory, which it only reads; an exit code. `model` NULL: of all models;
// else those of the model in that file.
int cache_list(kvern_context *context, const char *directory, const char *model, bool json);

// Removes entries until the rest takes at most `bytes` bytes; an exit code.
int cache_prune(kvern_context *context, const char *directory, uint64_t bytes, bool json);

#endif
