// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_PROMPT_CACHE_H
#define KVERN_CLI_PROMPT_CACHE_H

// Prompt caches of mlx-lm and mlx-bun for `kvern cache`.

#include <kvern/mlx_cache.h>
#include <stdbool.h>

// Prints what is in a file; returns the exit code.
int prompt_cache_inspect(const kvern_mlx_file *file, bool json);

#endif
