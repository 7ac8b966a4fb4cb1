// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_HALF_H
#define KVERN_MATH_HALF_H

// The two 16-bit float types, as bit patterns in uint16_t. These functions are the definition; the
// lanes headers convert with instructions that give the same bits. Integer arithmetic only, so no
// rounding mode and no denormal flag of the caller reaches them.
//
// bf16: 1 sign, 8 exponent, 7 fraction bits: the upper half of a float.
// f16:  1 sign, 5 exponent, 10 fraction bits (IEEE binary16), subnormals included.

#include "src/base/assert.h"
#include "src/math/strict.h"

#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "IEEE 754 binary32 and binary64");

static inline uint32_t kvern_bits_from_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float kvern_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float kvern_f32_from_bf16(uint16_t half)
{
    return kvern_f32_from_bits((uint32_t)half << 16);
}

// To nearest, ties to even. A NaN keeps its sign and upper fraction bits and becomes quiet.
static inline uint16_t kvern_bf16_from_f32(float x)
{
    uint32_t bits = kvern_bits_from_f32(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Exact. A NaN keeps its sign and fraction bits and becomes quiet, as VCVTPH2PS does.
static inline float kvern_f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0x1f) {
        uint32_t quiet = fraction ? 0x400000u : 0;
        return kvern_f32_from_bits(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent != 0) {
        return kvern_f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    }
    // Subnormal: fraction * 2^-24, a normal float unless it is zero.
    uint32_t magnitude = kvern_bits_from_f32((float)(int32_t)fraction);
    return kvern_f32_from_bits(sign | (fraction ? magnitude - (24u << 23) : 0));
}

// value >> shift to nearest, ties to even; shift from 1 to 31.
static inline uint32_t kvern_shift_to_even_(uint32_t value, uint32_t shift)
{
    KVERN_ASSERT(shift >= 1 && shift <= 31);
    uint32_t half_minus_one = (1u << (shift - 1)) - 1;
    return (value + half_minus_one + (value >> shift & 1)) >> shift;
}

// To nearest, ties to even; overflow gives infinity, small values become subnormal. A NaN keeps its
// sign and upper fraction bits and becomes quiet, as VCVTPS2PH does.
static inline uint16_t kvern_f16_from_f32(float x)
{
    uint32_t bits = kvern_bits_from_f32(x);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    }
    if (magnitude >= 0x47800000u) { // 2^16; from 65520 up the rounding below carries into infinity
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude >= 0x38800000u) { // 2^-14, the smallest normal f16
        return (uint16_t)(sign | kvern_shift_to_even_(magnitude - (112u << 23), 13));
    }
    if (magnitude < 0x33000000u) { // 2^-25, half of the smallest subnormal
        return (uint16_t)sign;
    }
    uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | kvern_shift_to_even_(significand, 126 - (magnitude >> 23)));
}

#endif
