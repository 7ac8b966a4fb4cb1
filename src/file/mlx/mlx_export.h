// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MLX_EXPORT_H
#define KVERN_FILE_MLX_EXPORT_H

// The inside of an export.

#include "src/file/mlx/mlx_file.h"
#include "src/file/mlx/mlx_sink.h"

typedef struct kvern_mlx_exporter {
    kvern_mlx_export_options options;
    const kvern_state *state; // of the rows that are written, no others
    size_t rows;
    int64_t *lengths; // per row
    int64_t *held;    // positions that the layer holds, per row
    int64_t *numbers; // room for a number per row
    kvern_mlx_sink sink;
} kvern_mlx_exporter;

// Of a layer with index keys there are two caches.
typedef enum kvern_mlx_part { KVERN_MLX_WHOLE, KVERN_MLX_INDEX_KEYS } kvern_mlx_part;

// The class that a layer becomes. Errors: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_mlx_export_class(const kvern_mlx_exporter *x, size_t layer,
                                                kvern_mlx_class *class);

// Describes or writes a layer's cache, which is of that class.
KVERN_CHECK kvern_status kvern_mlx_export_cache(kvern_mlx_exporter *x, size_t layer,
                                                kvern_mlx_part part, kvern_mlx_class class,
                                                const kvern_mlx_place *at);

// Those of recurrent layers: mlx_export_slots.c.
KVERN_CHECK kvern_status kvern_mlx_export_slots(kvern_mlx_exporter *x, const kvern_cache *cache,
                                                const kvern_mlx_place *at);

#endif
