// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MLX_FILL_H
#define KVERN_FILE_MLX_FILL_H

// Rows of one layer from the caches of a file.

#include "src/file/mlx/mlx_columns.h"
#include "src/state/cache.h"

// What a layer is filled from.
typedef struct kvern_mlx_source {
    const kvern_mlx_file *file;
    const kvern_mlx_item *item; // and the one behind it, where the layer has index keys
    const int64_t *lengths;     // per row of the cache
    kvern_mlx_conversion conversion;
    size_t k_pairs; // kvern_mlx_import_options
} kvern_mlx_source;

// Whether the layer has index keys, which are a cache of their own.
bool kvern_mlx_is_indexed(const kvern_planned_layer *layer);

// Fills the empty rows of a cache, of which there are as many as the file has: one that nobody else
// knows yet. On failure it may be filled in part. Errors: those of kvern_mlx_import.
KVERN_CHECK kvern_status kvern_mlx_fill(const kvern_mlx_source *source, kvern_cache *cache);

// The part for recurrent layers: mlx_recurrent.c.
KVERN_CHECK kvern_status kvern_mlx_fill_recurrent(const kvern_mlx_source *source,
                                                  kvern_cache *cache);

// KVERN_ERR_UNSUPPORTED: the layer, with its signature, the cache of the file, and why.
KVERN_CHECK kvern_status kvern_mlx_misfit(const kvern_mlx_source *source, const kvern_cache *cache,
                                          const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
