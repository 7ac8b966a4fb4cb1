// SPDX-License-Identifier: MIT
// The definition of index scores (docs/arithmetic.md, "Selection").
#include "src/attend/index_score.h"

#include "src/math/strict.h"

#include <math.h>
#include <string.h>

#define SLOTS 64

static float relu(float x)
{
    return x < 0 ? 0 : x;
}

static uint32_t order_key(float s)
{
    uint32_t bits;
    if (isnan(s))
        return KVERN_ORDER_KEY_NAN;
    s += 0.0f; // -0 becomes +0
    memcpy(&bits, &s, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
}

void kvern_index_score_plain(size_t heads, const float *weights, const float *dots, size_t count,
                             uint32_t *keys)
{
    for (size_t p = 0; p < count; p++) {
        float s = 0;
        for (size_t h = 0; h < heads; h++)
            s = fmaf(weights[h], relu(dots[h * SLOTS + p]), s);
        keys[p] = order_key(s);
    }
}
