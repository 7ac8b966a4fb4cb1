// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_TURBO_TURBO_H
#define KVERN_CODEC_TURBO_TURBO_H

// The TurboQuant codec: a vector is rotated, so that its numbers are about normally distributed
// whatever they were, and each becomes a code of 1 to 6 bits for the nearest of 2^bits centroids,
// those with the least mean squared error for a normal distribution. One scale per vector
// (docs/arithmetic.md, "Turbo codes").
//
// Layout of a block:
//
//   scales in f16     [64 slots]
//   codes             in columns of words: src/codec/codes/codes.h
//
// Reads stay in the rotated space: queries are rotated to it, and results back.

#include "src/codec/codes/codes.h"
#include "src/math/half.h"

#include <math.h>
#include <stdbool.h>

// Of what the centroids and boundaries are: names carry it.
#define KVERN_TURBO_CODEBOOK_VERSION(bits) ((bits) == 6 ? 2 : 1)

#define KVERN_TURBO_MOST_BITS 6

// The quantizer of Lloyd and Max for a normal distribution of variance 1, by bits: what codes mean
// before their scale. Up to 4 bits they are there once more for indices with other bits above a
// code's, so that there are 16. Those of 6 bits are rounded to bf16, which makes their error 0.3%
// larger, and the table that a kernel looks into half as long.
static const float kvern_turbo_levels[KVERN_TURBO_MOST_BITS + 1][64] = {
    [1] = {-0.797884560803f, 0.797884560803f, -0.797884560803f, 0.797884560803f, -0.797884560803f,
           0.797884560803f, -0.797884560803f, 0.797884560803f, -0.797884560803f, 0.797884560803f,
           -0.797884560803f, 0.797884560803f, -0.797884560803f, 0.797884560803f, -0.797884560803f,
           0.797884560803f},
    [2] = {-1.510417608500f, -0.452780034636f, 0.452780034636f, 1.510417608500f, -1.510417608500f,
           -0.452780034636f, 0.452780034636f, 1.510417608500f, -1.510417608500f, -0.452780034636f,
           0.452780034636f, 1.510417608500f, -1.510417608500f, -0.452780034636f, 0.452780034636f,
           1.510417608500f},
    [3] = {-2.151945704540f, -1.343909278500f, -0.756005281206f, -0.245094178944f, 0.245094178944f,
           0.756005281206f, 1.343909278500f, 2.151945704540f, -2.151945704540f, -1.343909278500f,
           -0.756005281206f, -0.245094178944f, 0.245094178944f, 0.756005281206f, 1.343909278500f,
           2.151945704540f},
    [4] = {-2.732589571000f, -2.069017226530f, -1.618046386020f, -1.256231197350f, -0.942340456487f,
           -0.656759118532f, -0.388048299490f, -0.128395029851f, 0.128395029851f, 0.388048299490f,
           0.656759118532f, 0.942340456487f, 1.256231197350f, 1.618046386020f, 2.069017226530f,
           2.732589571000f},
    [5] = {-3.260732493401f, -2.691119577377f, -2.317739404195f, -2.028728399396f, -1.787233217703f,
           -1.576228078612f, -1.386340339587f, -1.211804380609f, -1.048783319923f, -0.894565117388f,
           -0.747135703688f, -0.604933624009f, -0.466699522977f, -0.331378305760f, -0.198051829669f,
           -0.065889659771f, 0.065889659771f,  0.198051829669f,  0.331378305760f,  0.466699522977f,
           0.604933624009f,  0.747135703688f,  0.894565117388f,  1.048783319923f,  1.211804380609f,
           1.386340339587f,  1.576228078612f,  1.787233217703f,  2.028728399396f,  2.317739404195f,
           2.691119577377f,  3.260732493401f},
    [6] = {-3.750000000000f, -3.234375000000f, -2.921875000000f, -2.671875000000f, -2.468750000000f,
           -2.296875000000f, -2.140625000000f, -2.015625000000f, -1.882812500000f, -1.765625000000f,
           -1.656250000000f, -1.554687500000f, -1.460937500000f, -1.367187500000f, -1.273437500000f,
           -1.187500000000f, -1.109375000000f, -1.023437500000f, -0.945312500000f, -0.871093750000f,
           -0.796875000000f, -0.722656250000f, -0.648437500000f, -0.578125000000f, -0.507812500000f,
           -0.439453125000f, -0.371093750000f, -0.302734375000f, -0.234375000000f, -0.166992187500f,
           -0.100097656250f, -0.033447265625f, 0.033447265625f,  0.100097656250f,  0.166992187500f,
           0.234375000000f,  0.302734375000f,  0.371093750000f,  0.439453125000f,  0.507812500000f,
           0.578125000000f,  0.648437500000f,  0.722656250000f,  0.796875000000f,  0.871093750000f,
           0.945312500000f,  1.023437500000f,  1.109375000000f,  1.187500000000f,  1.273437500000f,
           1.367187500000f,  1.460937500000f,  1.554687500000f,  1.656250000000f,  1.765625000000f,
           1.882812500000f,  2.015625000000f,  2.140625000000f,  2.296875000000f,  2.468750000000f,
           2.671875000000f,  2.921875000000f,  3.234375000000f,  3.750000000000f},
};

// Where a level above 0 ends and the next one begins; levels below 0 mirror them. There are
// 2^(bits - 1) - 1, and zeros behind them so that a table that a code can look into (codes_lookup)
// can be loaded from any of the first quarter of them on.
static const float kvern_turbo_edges[KVERN_TURBO_MOST_BITS + 1][40] = {
    [2] = {0.981598821568f},
    [3] = {0.500549730075f, 1.049957279860f, 1.747927491520f},
    [4] = {0.258221664671f, 0.522403709011f, 0.799549787510f, 1.099285826920f, 1.437138791680f,
           1.843531806280f, 2.400803398760f},
    [5] = {0.131970744720f, 0.264715067715f, 0.399038914368f, 0.535816573493f, 0.676034663849f,
           0.820850410538f, 0.971674218656f, 1.130293850266f, 1.299072360098f, 1.481284209099f,
           1.681730648158f, 1.907980808549f, 2.173233901795f, 2.504429490786f, 2.975926035389f},
    [6] = {0.066772460938f, 0.133544921875f, 0.200683593750f, 0.268554687500f, 0.336914062500f,
           0.405273437500f, 0.473632812500f, 0.542968750000f, 0.613281250000f, 0.685546875000f,
           0.759765625000f, 0.833984375000f, 0.908203125000f, 0.984375000000f, 1.066406250000f,
           1.148437500000f, 1.230468750000f, 1.320312500000f, 1.414062500000f, 1.507812500000f,
           1.605468750000f, 1.710937500000f, 1.824218750000f, 1.949218750000f, 2.078125000000f,
           2.218750000000f, 2.382812500000f, 2.570312500000f, 2.796875000000f, 3.078125000000f,
           3.492187500000f},
};

// ---- Where things are ----

#define KVERN_TURBO_SCALE_BYTES (KVERN_PAGE_POSITIONS * sizeof(uint16_t))

static inline uint32_t *kvern_turbo_words(const void *block)
{
    return (uint32_t *)((char *)block + KVERN_TURBO_SCALE_BYTES);
}

static inline float kvern_turbo_scale(const void *block, size_t slot)
{
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS);
    return kvern_f32_from_f16(((const uint16_t *)block)[slot]);
}

// ---- Storing a slot ----

// A power of two, and its inverse, that brings vectors whose largest magnitude this is to where
// their squares neither overflow nor vanish.
typedef struct kvern_turbo_unit {
    float factor, inverse;
} kvern_turbo_unit;

static inline kvern_turbo_unit kvern_turbo_unit_of(float largest)
{
    uint32_t exponent = kvern_bits_from_f32(largest) >> 23;
    exponent = exponent < 27 ? 27 : exponent > 253 ? 253 : exponent;
    return (kvern_turbo_unit){kvern_f32_from_bits((254 - exponent) << 23),
                              kvern_f32_from_bits(exponent << 23)};
}

// The sums over a rotated vector z and the levels c of its codes.
typedef struct kvern_turbo_sums {
    float zz, zc, cc;
} kvern_turbo_sums;

// The scale that is stored: for keys the one that keeps scores free of bias, for values the one
// with the least squared error.
static inline uint16_t kvern_turbo_scale_of(kvern_stream stream, const kvern_turbo_sums *sums,
                                            float inverse)
{
    const float most = 65504; // of f16
    const float scale =
        (stream == KVERN_STREAM_K ? sums->zz / sums->zc : sums->zc / sums->cc) * inverse;
    return kvern_f16_from_f32(scale < most ? scale : most);
}

// The scales of a vector of zeros and of one that is not finite, whose codes are 0.
#define KVERN_TURBO_ZERO 0
#define KVERN_TURBO_NAN 0x7e00

// ---- The kernels of each instruction set, by bits ----

extern const kvern_codec_kernels kvern_turbo_plain; // the same for all widths

#define KVERN_TURBO_DECLARE(set)                                                                   \
    extern const kvern_codec_kernels kvern_turbo_1_##set, kvern_turbo_2_##set,                     \
        kvern_turbo_3_##set, kvern_turbo_4_##set, kvern_turbo_5_##set, kvern_turbo_6_##set;
KVERN_TURBO_DECLARE(avx2)
KVERN_TURBO_DECLARE(avx512)
KVERN_TURBO_DECLARE(neon)
#undef KVERN_TURBO_DECLARE

#endif
