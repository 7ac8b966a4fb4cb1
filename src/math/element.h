// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_ELEMENT_H
#define KVERN_MATH_ELEMENT_H

// One element of a tensor, of any of the types that tensors have. These are the scalar definition;
// where vectors of elements are loaded or stored, the lanes headers do it to the same bits.

#include "src/math/half.h"

#include <kvern/composition.h>

// Element `at` of the ones at `from`, exactly. Strides may be negative, so may be `at`.
static inline float kvern_load_element(kvern_type type, const void *from, int64_t at)
{
    uint16_t half;
    float value;
    if (type == KVERN_F32) {
        memcpy(&value, (const char *)from + at * (int64_t)sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)from + at * (int64_t)sizeof half, sizeof half);
    return type == KVERN_BF16 ? kvern_f32_from_bf16(half) : kvern_f32_from_f16(half);
}

// Element `at` of the ones at `to` becomes `value`, rounded once.
static inline void kvern_store_element(kvern_type type, void *to, int64_t at, float value)
{
    if (type == KVERN_F32) {
        memcpy((char *)to + at * (int64_t)sizeof value, &value, sizeof value);
        return;
    }
    const uint16_t half =
        type == KVERN_BF16 ? kvern_bf16_from_f32(value) : kvern_f16_from_f32(value);
    memcpy((char *)to + at * (int64_t)sizeof half, &half, sizeof half);
}

// What `value` becomes when it is stored.
static inline float kvern_round_element(kvern_type type, float value)
{
    if (type == KVERN_F32)
        return value;
    return type == KVERN_BF16 ? kvern_f32_from_bf16(kvern_bf16_from_f32(value))
                              : kvern_f32_from_f16(kvern_f16_from_f32(value));
}

// "f32", "bf16", "f16"; "?" for an unknown type.
const char *kvern_type_name(kvern_type type);

#endif
