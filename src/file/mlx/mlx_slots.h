// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_MLX_SLOTS_H
#define KVERN_FILE_MLX_SLOTS_H

// What a recurrent layer is in the slots of an ArraysCache: the last inputs of its convolution, in
// one slot or in three, and its state.

#include <kvern/composition.h>
#include <stdbool.h>

// One slot, [rows, shape...].
typedef struct kvern_mlx_slot {
    size_t dims, shape[3];
    size_t channel; // of a convolution: the first of its channels among the layer's
    bool is_state;  // [value_heads, v_dim, k_dim]
} kvern_mlx_slot;

typedef struct kvern_mlx_slot_list {
    size_t count;
    kvern_mlx_slot slots[4];
} kvern_mlx_slot_list;

// `split`: queries, keys and values have slots of their own.
kvern_mlx_slot_list kvern_mlx_slots_of(const kvern_layer *plan, bool split);

size_t kvern_mlx_slot_elements(const kvern_mlx_slot *slot); // of a row

// Floats of a row: those of the convolution, then the state.
size_t kvern_mlx_state_floats(const kvern_layer *plan);

#endif
