// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_MLX_FORGE_H
#define KVERN_TESTS_SUPPORT_MLX_FORGE_H

// Prompt caches with something wrong in them: files of tests/golden/mlx, changed and written to the
// test's folder.

#include <stddef.h>
#include <stdint.h>

typedef struct mlx_forgery {
    unsigned char *data; // from malloc
    size_t bytes;
} mlx_forgery;

// "states-kv.safetensors"
mlx_forgery mlx_forge(const char *golden);
void mlx_forgery_free(mlx_forgery *forgery);

// Replaces the first `old` in the header, which has it, by `new`.
void mlx_forge_text(mlx_forgery *forgery, const char *old, const char *new);

// Replaces number `at` of a tensor of 32-bit integers.
void mlx_forge_number(mlx_forgery *forgery, const char *tensor, size_t at, int32_t value);

// Writes it, and frees it; the path is good for as long as folder_path's.
const char *mlx_forge_write(mlx_forgery *forgery);

#endif
