// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LITTLE_ENDIAN_H
#define KVERN_ENGINE_LITTLE_ENDIAN_H

// Numbers as model files store them: little-endian, at any address. Written byte by byte, so that
// they are right on every machine; compilers turn each into one load where the machine allows it.

#include <stdint.h>
#include <string.h>

static inline uint16_t engine_load_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t engine_load_u32(const unsigned char *bytes)
{
    return engine_load_u16(bytes) | (uint32_t)engine_load_u16(bytes + 2) << 16;
}

static inline uint64_t engine_load_u64(const unsigned char *bytes)
{
    return engine_load_u32(bytes) | (uint64_t)engine_load_u32(bytes + 4) << 32;
}

static inline float engine_load_f32(const unsigned char *bytes)
{
    uint32_t bits = engine_load_u32(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double engine_load_f64(const unsigned char *bytes)
{
    uint64_t bits = engine_load_u64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
