// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_CACHE_CONVERT_H
#define KVERN_CLI_CACHE_CONVERT_H

// kvern cache convert: files of rows (kvern/file.h) to prompt caches of mlx-lm, and back
// (kvern/mlx_cache.h).

#include "cli/options/options.h"

#include <kvern/context.h>

typedef enum convert_target {
    CONVERT_OTHER = 0, // the format that IN is not in
    CONVERT_KVERN,
    CONVERT_MLX,    // as mlx-lm 0.32 has it
    CONVERT_MLX_OLD // as it was up to 0.31
} convert_target;

typedef struct convert_options {
    const cli_options *common; // its model is --model or NULL, its storage that of `kvern run`
    const char *in, *out;
    convert_target to;
    const char *tokens;    // a file with those of the row; NULL: not given
    const char *mlx_model; // what mlx-lm calls the model; NULL: not given
    bool has_storage;      // options of the storage were given
    bool force;            // OUT may be there
    bool recode;           // what is stored otherwise is computed anew from its values
    bool has_row;          // of many one row
    size_t row;
    bool has_pairs; // rotated dims of keys in pairs of neighbours, for whoever has no model
    size_t pairs;
} convert_options;

// Converts, and says what became of it. Returns the exit code; on failure nothing was written.
int cache_convert(kvern_context *context, const convert_options *options);

#endif
