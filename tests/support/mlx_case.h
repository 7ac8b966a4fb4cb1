// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_MLX_CASE_H
#define KVERN_TESTS_SUPPORT_MLX_CASE_H

// The prompt caches of tests/golden/mlx: what their layers are here, and which numbers are in them.

#include <kvern/kvern.h>

#include <stdbool.h>

enum { MLX_MOST_LAYERS = 5, MLX_MOST_ROWS = 3 };

typedef enum mlx_stream { MLX_KEYS, MLX_VALUES, MLX_CONV, MLX_STATE, MLX_INDEX } mlx_stream;

typedef struct mlx_case {
    const char *name; // of the file, behind its layout
    size_t rows;
    int64_t lengths[MLX_MOST_ROWS];
    size_t layers;
    kvern_layer layer[MLX_MOST_LAYERS];
    bool only_states;    // has no file in the older layout
    bool no_conv;        // the slot of a convolution is None
    bool has_dropped;    // columns of a chunk, which the older layout does not write
    const size_t *lists; // as its export names them; NULL: none
    size_t list_count;
} mlx_case;

extern const size_t mlx_case_count;
mlx_case mlx_case_at(size_t index);
mlx_case mlx_case_named(const char *name);

// The number of a place, which bf16, f16 and f32 have exactly.
float mlx_number(uint64_t seed, size_t layer, mlx_stream stream, size_t row, size_t head,
                 int64_t position, size_t dim);

kvern_composition *mlx_case_composition(kvern_context *context, const mlx_case *c);

// Whether rows can be filled by appends: there is no recurrent layer.
bool mlx_case_appends(const mlx_case *c);

// Appends all rows' positions, in steps of up to `chunk` tokens.
void mlx_case_fill(const mlx_case *c, uint64_t seed, kvern_state *state, int64_t chunk);

// Fails the test unless the rows are those of the case, bit for bit, in what a query can see; codes
// are those of `appended`, a cache that was filled by appends (NULL: the layer has no codes).
void mlx_case_check(const mlx_case *c, uint64_t seed, const kvern_state *state);
void mlx_case_check_cache(const mlx_case *c, uint64_t seed, size_t layer, const kvern_cache *cache,
                          const kvern_cache *appended);

#endif
