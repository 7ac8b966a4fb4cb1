// SPDX-License-Identifier: MIT
// The definition of the kernels of latents (docs/arithmetic.md, "Latents").
#include "src/attend/latent_kernels.h"

#include "src/base/assert.h"
#include "src/math/strict.h"

#include <math.h>

#define SLOTS 64
#define GROUP 4

static void score(const kvern_latent_score *s)
{
    for (size_t i = 0; i < s->groups * GROUP; i++) {
        const float *q = s->q + i / GROUP * s->dim * GROUP + i % GROUP;
        for (size_t p = 0; p < SLOTS; p++) {
            float sum = s->begin ? s->scores[i * SLOTS + p] : 0;
            for (size_t d = s->begin; d < s->end; d++)
                sum = fmaf(q[d * GROUP], s->keys[(d - s->begin) * SLOTS + p], sum);
            s->scores[i * SLOTS + p] = sum;
        }
    }
}

static void sum(const kvern_latent_sum *s)
{
    const size_t count = s->strips * KVERN_LATENT_STRIP;
    KVERN_ASSERT(s->begin <= s->end && s->end <= SLOTS && s->strips <= 2 && count <= s->width);
    for (size_t d = 0; d < s->dim; d++) {
        float *sums = s->sums + d * s->width;
        for (size_t i = 0; i < count; i++) {
            if (s->factors)
                sums[i] *= s->factors[i];
            for (size_t p = s->begin; p < s->end && s->vectors >> i & 1; p++)
                sums[i] = fmaf(s->weights[p * s->width + i], s->values[d * SLOTS + p], sums[i]);
        }
    }
}

static void turn(size_t rows, size_t columns, const float *from, size_t from_stride, float *to,
                 size_t to_stride)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++)
            to[c * to_stride + r] = from[r * from_stride + c];
    }
}

const kvern_latent_kernels kvern_latent_plain = {GROUP, score, sum, turn};
