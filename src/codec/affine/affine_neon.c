// SPDX-License-Identifier: MIT
// Thirty-two registers, four for 16 lanes.
#include "src/math/lanes_neon.h"

#include <stdbool.h>

// The code that begins at bit `shift` of each word.
LANES_INLINE lanes affine_code(int bits, lanes_int words, int shift)
{
    const lanes_int mask = lanes_int_set((1 << bits) - 1);
    return lanes_from_int(lanes_int_and(lanes_int_shr_logical(words, shift), mask));
}

#define AFFINE_SUFFIX neon
#define AFFINE_MOST 4
#define AFFINE_FEW 8
#define AFFINE_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define AFFINE_FEW_WIDE(r) ((r) <= 2 ? 2 : 1)
#include "src/codec/affine/affine_tmpl.h"
