// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MLX_SINK_H
#define KVERN_FILE_MLX_SINK_H

// Where an export goes: a file that is described first and written then, by the same calls in the
// same order, in a layout of mlx-lm's.

#include "src/file/safetensors/writer.h"

#include <kvern/mlx_cache.h>
#include <stdbool.h>

#define KVERN_MLX_PATH_BYTES 64

typedef struct kvern_mlx_sink {
    kvern_safetensors_writer writer;
    kvern_mlx_layout layout;
    bool describing;
    size_t scalars; // numbers, strings and Nones that were named
} kvern_mlx_sink;

// Where a cache is: in the names of tensors, and in those of metadata.
typedef struct kvern_mlx_place {
    char tensors[KVERN_MLX_PATH_BYTES], infos[KVERN_MLX_PATH_BYTES];
} kvern_mlx_place;

// Adds metadata, while describing.
KVERN_CHECK kvern_status kvern_mlx_say(kvern_mlx_sink *sink, const char *value, const char *format,
                                       ...) __attribute__((format(printf, 3, 4)));

// Describes the tensor PLACE.LEAF; where that is done already nothing happens, and its data come
// by kvern_mlx_put.
KVERN_CHECK kvern_status kvern_mlx_describe(kvern_mlx_sink *sink, const kvern_mlx_place *at,
                                            const char *leaf, kvern_dtype dtype, size_t dims,
                                            const uint64_t *shape);
KVERN_CHECK kvern_status kvern_mlx_put(kvern_mlx_sink *sink, const void *data, size_t bytes);
KVERN_CHECK kvern_status kvern_mlx_put_zeros(kvern_mlx_sink *sink, size_t bytes);

// A number: a tensor in the newer layout, metadata in the older. A leaf that is NULL: that layout
// does not have it. Errors: KVERN_ERR_RANGE (mlx-lm's numbers have 32 bits).
KVERN_CHECK kvern_status kvern_mlx_number(kvern_mlx_sink *sink, const kvern_mlx_place *at,
                                          const char *leaf, const char *info, int64_t value);

// The newer layout's alone.
KVERN_CHECK kvern_status kvern_mlx_flag(kvern_mlx_sink *sink, const kvern_mlx_place *at,
                                        const char *leaf, bool value);
KVERN_CHECK kvern_status kvern_mlx_string(kvern_mlx_sink *sink, const kvern_mlx_place *at,
                                          const char *leaf, const char *text);
KVERN_CHECK kvern_status kvern_mlx_none(kvern_mlx_sink *sink, const kvern_mlx_place *at,
                                        const char *leaf);

// A number per row.
KVERN_CHECK kvern_status kvern_mlx_numbers(kvern_mlx_sink *sink, const kvern_mlx_place *at,
                                           const char *leaf, size_t rows, const int64_t *values);

#endif
