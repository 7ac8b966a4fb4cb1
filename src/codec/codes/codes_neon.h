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

LANES_INLINE uint8x16x4_t codes_sixteen_(const float *table)
{
    const uint8_t *at = (const uint8_t *)table;
    return (uint8x16x4_t){{vld1q_u8(at), vld1q_u8(at + 16), vld1q_u8(at + 32), vld1q_u8(at + 48)}};
}

// Four bytes of the table for each code. A look into 16 of its entries leaves a lane as it is whose
// index, a byte that wraps around, is not among their 64 bytes.
LANES_INLINE float32x4_t codes_lookup_(int bits, const float *table, int32x4_t codes)
{
    const int32x4_t bytes = vmlaq_n_s32(vdupq_n_s32(0x03020100), codes, 0x04040404);
    const uint8x16_t from = vreinterpretq_u8_s32(bytes);
    uint8x16_t found = vqtbl4q_u8(codes_sixteen_(table), from);
    for (int i = 1; i < (1 << bits) / 16; i++)
        found = vqtbx4q_u8(found, codes_sixteen_(table + 16 * i),
                           vsubq_u8(from, vdupq_n_u8((uint8_t)(64 * i))));
    return vreinterpretq_f32_u8(found);
}

// table[code] for the code that begins at bit `shift` of each word, of up to six bits. The table
// has an entry for each, and at least 16.
LANES_INLINE lanes codes_lookup(int bits, const float *table, lanes_int words, int shift)
{
    const lanes_int codes =
        lanes_int_and(lanes_int_shr_logical(words, shift), lanes_int_set((1 << bits) - 1));
    return (lanes){codes_lookup_(bits, table, codes.a), codes_lookup_(bits, table, codes.b),
                   codes_lookup_(bits, table, codes.c), codes_lookup_(bits, table, codes.d)};
}

// count + step where the mask is true.
LANES_INLINE lanes_int codes_add(lanes_int count, lanes_mask mask, int step)
{
    const lanes_int all = {vreinterpretq_s32_u32(mask.a), vreinterpretq_s32_u32(mask.b),
                           vreinterpretq_s32_u32(mask.c), vreinterpretq_s32_u32(mask.d)};
    return lanes_int_add(count, lanes_int_and(all, lanes_int_set(step)));
}

#define CODES_ROTATE kvern_rotate_neon
#define CODES_ROTATE_BACK kvern_rotate_back_neon
#define CODES_MULTIPLY kvern_codes_multiply_neon
#define CODES_MOST 4
#define CODES_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define CODES_FEW 8
#define CODES_FEW_LOOKED_UP(bits) CODES_FEW
#define CODES_FEW_WIDE(r) ((r) <= 2 ? 2 : 1)

#endif
