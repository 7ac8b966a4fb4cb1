// SPDX-License-Identifier: MIT
// The definition of the weighted sums of latents (docs/arithmetic.md, "Latents").
#include "src/attend/latent_sum.h"

#include "src/base/assert.h"

#include <math.h>

#define SLOTS 64

void kvern_latent_sum_plain(const kvern_latent_sum *s)
{
    KVERN_ASSERT(s->begin <= s->end && s->end <= SLOTS && s->width <= 32);
    for (size_t d = 0; d < s->dim; d++) {
        float *sums = s->sums + d * s->width;
        for (size_t i = 0; i < s->width; i++) {
            if (s->factors)
                sums[i] *= s->factors[i];
            for (size_t p = s->begin; p < s->end && s->vectors >> i & 1; p++)
                sums[i] = fmaf(s->weights[p * s->width + i], s->values[d * SLOTS + p], sums[i]);
        }
    }
}
