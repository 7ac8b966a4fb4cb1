// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_AFFINE_AFFINE_H
#define KVERN_CODEC_AFFINE_AFFINE_H

// The affine codec: a code of 2, 3, 4, 5, 6 or 8 bits per value, and a scale and a bias for every
// group of 32, 64 or 128 values of a slot (docs/arithmetic.md, "Affine codes").
//
// Layout of a block, made so that a kernel reads it from front to back with vector lanes that are
// slots (for keys) or dimensions (for values):
//
//   scales and biases, in the codec's type
//       [dim / group][scale, bias][64 slots]
//   codes, in columns of 32: 32 consecutive dims of a slot (keys), or 32 slots of a dim (values).
//   A column takes `bits` words of 32 bits
//       keys:    [dim / 32][bits words][64 slots]
//       values:  panels of 64 dims, the last one with what is left (w dims); in each panel
//                [2 halves of 32 slots][bits words][w dims]
//
// In a column every word holds floor(32 / bits) codes one after the other, low bits first, so that
// a vector of words gives that many vectors of codes, each by a shift. Where 32 / bits is not whole
// (3, 5, 6 bits), two codes and the two upper bits of every word are left: these bits, two of each
// word in order of the words, are code 30 and then code 31.

#include "src/codec/codec_type.h"
#include "src/math/element.h"

#include <math.h>
#include <string.h>

// Codes of a column.
#define KVERN_AFFINE_COLUMN 32

// Dims of a full panel of values.
#define KVERN_AFFINE_PANEL 64

// Groups of a slot at most.
#define KVERN_AFFINE_MOST_GROUPS (KVERN_MAX_HEAD_DIM / 32)

// ---- Where things are ----

// Scales and biases of a block.
static inline size_t kvern_affine_sides(const kvern_codec *codec, size_t dim)
{
    return 2 * (dim / codec->group) * KVERN_PAGE_POSITIONS;
}

// Which of them is the scale of a slot and group, and which is its bias.
static inline size_t kvern_affine_scale_at(size_t slot, size_t group)
{
    return 2 * group * KVERN_PAGE_POSITIONS + slot;
}

static inline size_t kvern_affine_bias_at(size_t slot, size_t group)
{
    return kvern_affine_scale_at(slot, group) + KVERN_PAGE_POSITIONS;
}

// The words of codes behind them.
static inline uint32_t *kvern_affine_words(const kvern_codec *codec, const void *block, size_t dim)
{
    return (uint32_t *)((char *)block +
                        kvern_affine_sides(codec, dim) * kvern_type_bytes(codec->scales));
}

// Width in dims of the panel that starts at dim `first`.
static inline size_t kvern_affine_panel_width(size_t dim, size_t first)
{
    return dim - first < KVERN_AFFINE_PANEL ? dim - first : KVERN_AFFINE_PANEL;
}

// First word of the columns of a panel and half; the words of a column are a panel's width apart.
static inline size_t kvern_affine_panel_at(uint32_t bits, size_t dim, size_t first, size_t half)
{
    return bits * (2 * first + half * kvern_affine_panel_width(dim, first));
}

// ---- Codes in a column ----

// Some bits of a code: `width` bits from bit `shift` on of a word of the column.
typedef struct kvern_affine_piece {
    uint32_t word, shift, width;
} kvern_affine_piece;

// The piece that holds bit `from` of code `row`, and as many of the following ones as it has.
static inline kvern_affine_piece kvern_affine_piece_at(uint32_t bits, uint32_t row, uint32_t from)
{
    const uint32_t per_word = 32 / bits, whole = bits * per_word;
    if (row < whole)
        return (kvern_affine_piece){row / per_word, row % per_word * bits, bits};
    const uint32_t at = (row - whole) * bits + from, left = bits - from;
    return (kvern_affine_piece){at / 2, 30 + at % 2, (at % 2 || left == 1) ? 1 : 2};
}

// One code of a column whose words are `stride` words apart.
static inline uint32_t kvern_affine_code(uint32_t bits, const uint32_t *words, size_t stride,
                                         uint32_t row)
{
    uint32_t code = 0;
    for (uint32_t from = 0; from < bits;) {
        const kvern_affine_piece p = kvern_affine_piece_at(bits, row, from);
        code |= (words[p.word * stride] >> p.shift & ((1u << p.width) - 1)) << from;
        from += p.width;
    }
    return code;
}

// ---- Storing a slot ----

// The line through a group: value = scale * code + bias.
typedef struct kvern_affine_line {
    float scale, bias;
} kvern_affine_line;

// The line for finite values from lo to hi. The end of larger magnitude gets code 0, and zero
// becomes a point of the grid.
static inline kvern_affine_line kvern_affine_line_of(uint32_t bits, float lo, float hi)
{
    const float steps = (float)((1u << bits) - 1), least = 1e-7f;
    const float below = lo < 0 ? -lo : lo, above = hi < 0 ? -hi : hi;
    const float edge = below > above ? lo : hi;
    float scale = (hi - lo) / steps;
    if (scale < least)
        scale = least;
    if (!(below > above))
        scale = -scale;
    const float steps_to_edge = rintf(edge / scale);
    if (steps_to_edge == 0)
        return (kvern_affine_line){scale, 0};
    return (kvern_affine_line){edge / steps_to_edge, edge};
}

// What is stored for a group with a NaN or an infinity, with codes of 0: all of it reads as NaN.
static inline kvern_affine_line kvern_affine_no_line(void)
{
    return (kvern_affine_line){NAN, NAN};
}

// The `bits` words of a column.
static inline void kvern_affine_pack(uint32_t bits, const uint32_t *codes, uint32_t *words,
                                     size_t stride)
{
    const uint32_t per_word = 32 / bits;
    const uint32_t rest = 32 % bits ? codes[30] | codes[31] << bits : 0;
    for (uint32_t w = 0; w < bits; w++) {
        uint32_t word = (rest >> 2 * w & 3) << 30;
        for (uint32_t j = 0; j < per_word; j++)
            word |= codes[w * per_word + j] << j * bits;
        words[w * stride] = word;
    }
}

static inline void kvern_affine_place_k(uint32_t bits, uint32_t *words, size_t dim, size_t slot,
                                        const uint32_t *codes)
{
    for (size_t d = 0; d < dim; d += KVERN_AFFINE_COLUMN)
        kvern_affine_pack(bits, codes + d, words + d * 2 * bits + slot, KVERN_PAGE_POSITIONS);
}

// Slots share words, so these are read, changed and written.
static inline void kvern_affine_place_v(uint32_t bits, uint32_t *words, size_t dim, size_t slot,
                                        const uint32_t *codes)
{
    const size_t half = slot / KVERN_AFFINE_COLUMN;
    for (uint32_t from = 0; from < bits;) {
        const kvern_affine_piece p = kvern_affine_piece_at(bits, slot % KVERN_AFFINE_COLUMN, from);
        const uint32_t mask = ((1u << p.width) - 1) << p.shift;
        for (size_t d = 0; d < dim; d += 16) { // 16 at a time: a loop that compilers vectorize
            const size_t first = d - d % KVERN_AFFINE_PANEL;
            uint32_t *at = words + kvern_affine_panel_at(bits, dim, first, half) +
                           p.word * kvern_affine_panel_width(dim, first) + (d - first);
            for (size_t i = 0; i < 16; i++)
                at[i] = (at[i] & ~mask) | ((codes[d + i] >> from) << p.shift & mask);
        }
        from += p.width;
    }
}

// Puts the line of a group of a slot into its block.
static inline void kvern_affine_place_line(const kvern_codec *codec, void *block, size_t slot,
                                           size_t group, kvern_affine_line line)
{
    kvern_store_element(codec->scales, block, kvern_affine_scale_at(slot, group), line.scale);
    kvern_store_element(codec->scales, block, kvern_affine_bias_at(slot, group), line.bias);
}

// ---- Looking ----

// The code of dim d of a slot.
uint32_t kvern_affine_code_at(const kvern_codec *codec, kvern_stream stream, const void *block,
                              size_t dim, size_t slot, size_t d);

// The kernels of each instruction set, by bits.
kvern_codec_kernels kvern_affine_kernels_plain(void);
kvern_codec_kernels kvern_affine_kernels_avx2(uint32_t bits);
kvern_codec_kernels kvern_affine_kernels_avx512(uint32_t bits);
kvern_codec_kernels kvern_affine_kernels_neon(uint32_t bits);

#endif
