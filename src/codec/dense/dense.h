// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_DENSE_DENSE_H
#define KVERN_CODEC_DENSE_DENSE_H

// Dense codecs: f32, bf16 and f16, every value stored by itself.
//
// Layout of a block, made so that a kernel reads it from front to back with vector lanes that are
// slots (for keys) or dimensions (for values):
//
//   keys,   f32 and f16:  [dim][64 slots]
//   keys,   bf16:         [dim / 2][64 slots][2 dims]        two dims of a slot share a 32-bit word
//   values: panels of 64 dims, the last one with what is left (w dims); in each panel
//           f32 and f16:  [64 slots][w dims]
//           bf16:         [32 slot pairs][w dims][2 slots]   two slots of a dim share a 32-bit word
//
// A pair of bf16 in a 32-bit word gives two f32 vectors by one shift and one mask.
//
// Both kernels are one and the same: c[i][lane] += sum over r of a[i][r] * b[r][lane], where a row
// r of b is a dimension (scores) or a slot (values).

#include "src/base/assert.h"
#include "src/codec/codec_type.h"

#include <string.h>

// Dims of a full panel of values.
#define KVERN_DENSE_PANEL 64

_Static_assert(KVERN_PAGE_POSITIONS % 2 == 0, "slots are paired");
_Static_assert(KVERN_DENSE_PANEL % 16 == 0, "a full panel is whole vectors");

// Offset in elements of a value in a block of keys.
static inline size_t kvern_dense_k_offset(kvern_type type, size_t slot, size_t d)
{
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS);
    if (type == KVERN_BF16)
        return ((d / 2) * KVERN_PAGE_POSITIONS + slot) * 2 + d % 2;
    return d * KVERN_PAGE_POSITIONS + slot;
}

// Width in dims of the panel that starts at dim `first`.
static inline size_t kvern_dense_panel_width(size_t dim, size_t first)
{
    KVERN_ASSERT(first < dim && first % KVERN_DENSE_PANEL == 0);
    return dim - first < KVERN_DENSE_PANEL ? dim - first : KVERN_DENSE_PANEL;
}

// Offset in elements of a value in a block of values.
static inline size_t kvern_dense_v_offset(kvern_type type, size_t dim, size_t slot, size_t d)
{
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS && d < dim);
    const size_t first = d - d % KVERN_DENSE_PANEL;
    const size_t width = kvern_dense_panel_width(dim, first);
    const size_t panel = first * KVERN_PAGE_POSITIONS;
    if (type == KVERN_BF16)
        return panel + ((slot / 2) * width + (d - first)) * 2 + slot % 2;
    return panel + slot * width + (d - first);
}

// Puts the values of a slot, which have their stored type already, into a block: the offsets above,
// walked by stride.
static inline void kvern_dense_place_k(kvern_type type, void *block, size_t dim, size_t slot,
                                       const void *stored)
{
    if (type != KVERN_F16) { // words: a float, or a pair of bf16
        const size_t words = type == KVERN_BF16 ? dim / 2 : dim;
        for (size_t i = 0; i < words; i++)
            memcpy((char *)block + (i * KVERN_PAGE_POSITIONS + slot) * 4,
                   (const char *)stored + i * 4, 4);
        return;
    }
    for (size_t d = 0; d < dim; d++)
        ((uint16_t *)block)[d * KVERN_PAGE_POSITIONS + slot] = ((const uint16_t *)stored)[d];
}

static inline void kvern_dense_place_v(kvern_type type, void *block, size_t dim, size_t slot,
                                       const void *stored)
{
    const size_t element = type == KVERN_F32 ? 4 : 2;
    for (size_t first = 0; first < dim; first += KVERN_DENSE_PANEL) {
        const size_t width = kvern_dense_panel_width(dim, first);
        char *to = (char *)block + kvern_dense_v_offset(type, dim, slot, first) * element;
        const char *from = (const char *)stored + first * element;
        if (type != KVERN_BF16) {
            memcpy(to, from, width * element);
            continue;
        }
        for (size_t d = 0; d < width;
             d++) // every other half word: the pair's partner is another slot
            memcpy(to + 4 * d, from + 2 * d, 2);
    }
}

static inline void kvern_dense_place(kvern_type type, kvern_stream stream, void *block, size_t dim,
                                     size_t slot, const void *stored)
{
    if (stream == KVERN_STREAM_K)
        kvern_dense_place_k(type, block, dim, slot, stored);
    else
        kvern_dense_place_v(type, block, dim, slot, stored);
}

// The kernels of each instruction set, by type.
#define KVERN_DENSE_DECLARE(set)                                                                   \
    extern const kvern_codec_kernels kvern_dense_f32_##set, kvern_dense_bf16_##set,                \
        kvern_dense_f16_##set;
KVERN_DENSE_DECLARE(plain)
KVERN_DENSE_DECLARE(avx2)
KVERN_DENSE_DECLARE(avx512)
KVERN_DENSE_DECLARE(neon)
#undef KVERN_DENSE_DECLARE

#endif
