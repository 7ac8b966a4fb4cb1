// SPDX-License-Identifier: MIT
#include "engine/kernels/rope.h"

#include <kvern/math.h>

#include <stdlib.h>

kvern_status engine_rope_create(engine_rope *rope, float base, const float *divisors)
{
    const size_t dim = rope->dim;
    rope->frequency = malloc((dim / 2 > 0 ? dim / 2 : 1) * sizeof *rope->frequency);
    if (!rope->frequency) {
        return KVERN_ERR_MEMORY;
    }
    for (size_t i = 0; i < dim / 2; i++) {
        rope->frequency[i] = kvern_pow(base, -(float)(2 * i) / (float)dim);
        if (divisors) {
            rope->frequency[i] = rope->frequency[i] / divisors[i];
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
    return rope->style == ENGINE_ROPE_PAIRS ? 2 * rope->dim : rope->dim;
}

void engine_rope_fill(const engine_rope *rope, int64_t position, float *row)
{
    float *sines = row + engine_rope_row(rope) / 2;
    for (size_t i = 0; i < rope->dim / 2; i++) {
        float angle = (float)position / rope->scale * rope->frequency[i];
        float cosine = kvern_cos(angle) * rope->magnitude;
        float sine = kvern_sin(angle) * rope->magnitude;
        if (rope->style == ENGINE_ROPE_PAIRS) {
            row[2 * i] = row[2 * i + 1] = cosine;
            sines[2 * i] = -sine;
            sines[2 * i + 1] = sine;
        } else {
            row[i] = cosine;
            sines[i] = sine;
        }
    }
}
