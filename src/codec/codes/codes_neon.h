// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODES_CODES_NEON_H
#define KVERN_CODEC_CODES_CODES_NEON_H

// Thirty-two registers, four for 16 lanes.
#include "src/math/lanes_neon.h"

#include <stdbool.h>

// The code that begins at bit `shift` of each word.
LANES_INLINE lanes codes_as_floats(int bits, lanes_int words, int shift)
{
    const lanes_int mask = lanes_int_set((1 << bits) - 1);
    return lanes_from_int(lanes_int_and(lanes_int_shr_logical(words, shift), mask));
}

#define CODES_MULTIPLY kvern_codes_multiply_neon
#define CODES_MOST 4
#define CODES_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define CODES_FEW 8
#define CODES_FEW_WIDE(r) ((r) <= 2 ? 2 : 1)

#endif
