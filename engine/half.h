// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_HALF_H
#define KVERN_ENGINE_HALF_H

// Half-precision types to float32, exactly.

#include <stdint.h>
#include <string.h>

// A NaN keeps its sign and fraction and becomes quiet.
static inline float engine_f16_to_f32(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 0x1f;
    const uint32_t fraction = half & 0x3ff;
    uint32_t bits = (exponent + 112) << 23 | fraction << 13;
    if (exponent == 0x1f) {
        bits = 0x7f800000 | (fraction ? 0x400000 : 0) | fraction << 13;
    } else if (exponent == 0) {
        const float magnitude = (float)fraction * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
    }
    bits |= (uint32_t)(half >> 15) << 31;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float engine_bf16_to_f32(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
