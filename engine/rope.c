// SPDX-License-Identifier: MIT
#include "engine/rope.h"

#include <kvern/math.h>

#include <stdlib.h>

kvern_status engine_rope_create(engine_rope *rope, float base, size_t dim, float scale,
                                const float *factors)
{
    *rope = (engine_rope){.dim = dim, .scale = scale};
    rope->frequency = malloc((dim / 2 > 0 ? dim / 2 : 1) * sizeof *rope->frequency);
    if (!rope->frequency) {
        return KVERN_ERR_MEMORY;
    }
    for (size_t i = 0; i < dim / 2; i++) {
        rope->frequency[i] = kvern_pow(base, -(float)(2 * i) / (float)dim);
        if (factors) {
            rope->frequency[i] = rope->frequency[i] / factors[i];
        }
    }
    return KVERN_OK;
}

void engine_rope_destroy(engine_rope *rope)
{
    free(rope->frequency);
    *rope = (engine_rope){0};
}

size_t engine_rope_row(const engine_rope *rope)
{
    return 2 * rope->dim;
}

void engine_rope_fill(const engine_rope *rope, int64_t position, float *row)
{
    float *cosines = row;
    float *sines = row + rope->dim;
    for (size_t i = 0; i < rope->dim / 2; i++) {
        float angle = (float)position / rope->scale * rope->frequency[i];
        float sine = kvern_sin(angle);
        cosines[2 * i] = cosines[2 * i + 1] = kvern_cos(angle);
        sines[2 * i] = -sine;
        sines[2 * i + 1] = sine;
    }
}
