// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_ROTATION_ROTATION_H
#define KVERN_CODEC_ROTATION_ROTATION_H

// The rotation that codecs of rotated vectors store in and read in (docs/arithmetic.md, "Rotated
// vectors"): signs, then a Hadamard transform, of the first n numbers, n being the largest power of
// two that fits; where that is not all of them, once more of the last n. It is orthogonal, but for
// roundings, and spreads what one number holds over all of them.
//
// `dim` is a multiple of 16, at most KVERN_MAX_STREAM_DIM. Nothing but the dim decides the signs,
// so that all layers and heads share one rotation.

#include "src/codec/codec_type.h"

// Of what the rotation is: names of codecs carry it. It changes when a sign or an operation does.
#define KVERN_ROTATION_VERSION 1

// 64 signs, from sign 64 * index on, of stage 0 (the first n numbers) or 1 (the last n): bit i set
// negates. splitmix64, begun with 2 * dim + stage.
static inline uint64_t kvern_rotation_signs(size_t dim, unsigned stage, size_t index)
{
    uint64_t z = 2 * dim + stage + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// The largest power of two that is at most dim.
static inline size_t kvern_rotation_size(size_t dim)
{
    return (size_t)1 << (63 - __builtin_clzll(dim));
}

// Rotate the vector x, and back, in place.
kvern_rotate_fn kvern_rotate_plain, kvern_rotate_avx2, kvern_rotate_avx512, kvern_rotate_neon;
kvern_rotate_fn kvern_rotate_back_plain, kvern_rotate_back_avx2, kvern_rotate_back_avx512,
    kvern_rotate_back_neon;

#endif
