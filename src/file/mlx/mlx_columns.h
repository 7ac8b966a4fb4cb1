// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MLX_COLUMNS_H
#define KVERN_FILE_MLX_COLUMNS_H

// Which columns of a cache's tensors are positions of a row, and in which order.

#include "src/file/mlx/mlx_file.h"

typedef struct kvern_mlx_columns {
    int64_t offset;           // positions of the row; -1: not known
    int64_t count;            // columns: the sum of
    int64_t begin[3], end[3]; // the parts, oldest position first
} kvern_mlx_columns;

// Checks what the numbers of an item say of its columns: KVERN_ERR_FORMAT.
KVERN_CHECK kvern_status kvern_mlx_check_columns(const kvern_mlx_file *file,
                                                 const kvern_mlx_item *item);

// The columns of a row. `length` is what else is known of its positions, or -1.
kvern_mlx_columns kvern_mlx_columns_of(const kvern_mlx_item *item, size_t row, int64_t length);

#endif
