// SPDX-License-Identifier: MIT
// The definition of the rotation.
#include "src/codec/rotation/rotation.h"

#include "src/base/assert.h"
#include "src/math/strict.h"

#include <math.h>

// ---- The two operations of a stage ----

static void negate(size_t dim, unsigned stage, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++) {
        if (kvern_rotation_signs(dim, stage, i / 64) >> i % 64 & 1)
            x[i] = -x[i];
    }
}

static void transform(size_t n, float *x)
{
    const float factor = sqrtf(1.0f / (float)n);
    for (size_t step = 1; step < n; step *= 2) {
        for (size_t i = 0; i < n; i++) {
            if (i & step)
                continue;
            const float a = x[i], b = x[i + step];
            x[i] = a + b;
            x[i + step] = a - b;
        }
    }
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

// ---- The rotation ----

void kvern_rotate_plain(size_t dim, float *x)
{
    const size_t n = kvern_rotation_size(dim), rest = dim - n;
    KVERN_ASSERT(dim % 16 == 0 && dim > 0 && dim <= KVERN_MAX_STREAM_DIM);
    negate(dim, 0, n, x);
    transform(n, x);
    if (rest == 0)
        return;
    negate(dim, 1, n, x + rest);
    transform(n, x + rest);
}

void kvern_rotate_back_plain(size_t dim, float *x)
{
    const size_t n = kvern_rotation_size(dim), rest = dim - n;
    KVERN_ASSERT(dim % 16 == 0 && dim > 0 && dim <= KVERN_MAX_STREAM_DIM);
    if (rest) {
        transform(n, x + rest);
        negate(dim, 1, n, x + rest);
    }
    transform(n, x);
    negate(dim, 0, n, x);
}
