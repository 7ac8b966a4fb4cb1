// SPDX-License-Identifier: MIT
// Thirty-two registers, four for 16 lanes.
#include "src/math/lanes_neon.h"

#include <stdbool.h>

// What turns the codes of a group into values.
typedef struct affine_grid {
    lanes scale, bias;
} affine_grid;

LANES_INLINE affine_grid affine_grid_of(int bits, lanes scale, lanes bias)
{
    (void)bits;
    return (affine_grid){scale, bias};
}

// The value of the code that begins at bit `shift` of each word. `plain`: the code itself.
LANES_INLINE lanes affine_value(int bits, bool plain, affine_grid grid, lanes_int words, int shift)
{
    const lanes_int mask = lanes_int_set((1 << bits) - 1);
    const lanes code = lanes_from_int(lanes_int_and(lanes_int_shr_logical(words, shift), mask));
    return plain ? code : lanes_fma(grid.scale, code, grid.bias);
}

#define AFFINE_SUFFIX neon
#define AFFINE_MOST 4
#define AFFINE_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define AFFINE_FEW_WIDE(r) ((r) <= 2 ? 2 : 1)
#include "src/codec/affine/affine_tmpl.h"
