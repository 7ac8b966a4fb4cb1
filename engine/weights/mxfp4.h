// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MXFP4_H
#define KVERN_ENGINE_MXFP4_H

// What the scales and codes of MXFP4 stand for. A block of 32 values has one power of two, as a
// byte, and codes of four bits: a sign and one of 0, 0.5, 1, 1.5, 2, 3, 4, 6. Twice these are whole
// numbers, so the engine multiplies them by half of the scale.

#include <math.h>
#include <stdint.h>
#include <string.h>

// Twice the value of codes 0 to 15, plus MXFP4_ZERO, so that none is negative.
#define MXFP4_ZERO 12
// clang-format off
#define MXFP4_CODES {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}
// clang-format on

// Half of a block's scale: 2^(exponent - 128), no normal number for 0 and 1; 255 is a NaN.
static inline float mxfp4_half_scale(uint8_t exponent)
{
    if (exponent == UINT8_MAX) {
        return NAN;
    }
    const uint32_t bits =
        exponent < 2 ? (uint32_t)0x00200000 << exponent : (uint32_t)(exponent - 1) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

#endif
