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
//   codes, in columns of words: src/codec/codes/codes.h

#include "src/base/assert.h"
#include "src/codec/codes/codes.h"
#include "src/math/element.h"

#include <math.h>
#include <string.h>

// Groups of a slot at most.
#define KVERN_AFFINE_MOST_GROUPS (KVERN_MAX_STREAM_DIM / 32)

_Static_assert(KVERN_MAX_STREAM_DIM % 32 == 0, "the smallest groups fill the largest head");

// ---- Where things are ----

// Scales and biases of a block.
static inline size_t kvern_affine_sides(const kvern_codec *codec, size_t dim)
{
    KVERN_ASSERT(dim % codec->group == 0);
    return 2 * (dim / codec->group) * KVERN_PAGE_POSITIONS;
}

// Which of them is the scale of a slot and group, and which is its bias.
static inline size_t kvern_affine_scale_at(size_t slot, size_t group)
{
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS && group < KVERN_AFFINE_MOST_GROUPS);
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

// Puts the line of a group of a slot into its block.
static inline void kvern_affine_place_line(const kvern_codec *codec, void *block, size_t slot,
                                           size_t group, kvern_affine_line line)
{
    kvern_store_element(codec->scales, block, kvern_affine_scale_at(slot, group), line.scale);
    kvern_store_element(codec->scales, block, kvern_affine_bias_at(slot, group), line.bias);
}

// ---- What codecs of affine codes share (codec_type.h) ----

bool kvern_affine_exists(const kvern_codec *codec);
bool kvern_affine_parse(const char *text, uint32_t group, kvern_codec *out); // "q4", "q4g32"
size_t kvern_affine_dim_unit(const kvern_codec *codec);
size_t kvern_affine_block_bytes(const kvern_codec *codec, size_t dim);
size_t kvern_affine_query_floats(const kvern_codec *codec, size_t dim);
void kvern_affine_prepare(const kvern_codec *codec, size_t dim, float *q);
void kvern_affine_decode(const kvern_codec *codec, kvern_stream stream, const void *block,
                         size_t dim, size_t slot, float *values);
void kvern_affine_gather(const kvern_codec *codec, kvern_stream stream, size_t dim,
                         const void *block, const uint8_t *slots, size_t count, void *to,
                         size_t at);
extern const kvern_affine_access kvern_affine_access_of_codes;

// ---- The kernels of each instruction set, by bits ----

// The plain ones are the same for all widths.
extern const kvern_codec_kernels kvern_affine_plain;
extern const kvern_codec_kernels kvern_rotated_plain; // of rotated vectors

#define KVERN_AFFINE_DECLARE(set)                                                                  \
    extern const kvern_codec_kernels kvern_affine_2_##set, kvern_affine_3_##set,                   \
        kvern_affine_4_##set, kvern_affine_5_##set, kvern_affine_6_##set, kvern_affine_8_##set;    \
    extern const kvern_codec_kernels kvern_rotated_2_##set, kvern_rotated_3_##set,                 \
        kvern_rotated_4_##set, kvern_rotated_5_##set, kvern_rotated_6_##set,                       \
        kvern_rotated_8_##set;
KVERN_AFFINE_DECLARE(avx2)
KVERN_AFFINE_DECLARE(avx512)
KVERN_AFFINE_DECLARE(neon)
#undef KVERN_AFFINE_DECLARE

#endif
