// SPDX-License-Identifier: MIT
#include "tests/support/stored.h"

#include "tests/support/rounding.h"

#include <math.h>

static void affine_group(const kvern_codec *codec, const float *x, float *codes,
                         float *stored_scale, float *stored_bias)
{
    const float steps = (float)((1u << codec->bits) - 1);
    float values[128], lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < codec->group; i++) {
        values[i] = rounded(codec->scales, x[i]);
        lo = fminf(lo, values[i]);
        hi = fmaxf(hi, values[i]);
    }
    const int below = fabsf(lo) > fabsf(hi);
    const float edge = below ? lo : hi;
    float scale = fmaxf((hi - lo) / steps, 1e-7f), bias = 0;
    scale = below ? scale : -scale;
    const float r = rintf(edge / scale);
    if (r != 0) {
        scale = edge / r;
        bias = edge;
    }
    for (size_t i = 0; i < codec->group; i++)
        codes[i] = fminf(fmaxf(rintf((values[i] - bias) / scale), 0), steps);
    *stored_scale = rounded(codec->scales, scale);
    *stored_bias = rounded(codec->scales, bias);
}

void stored_codes(const kvern_codec *codec, const float *x, size_t dim, float *codes, float *scales,
                  float *biases)
{
    for (size_t g = 0; g < dim / codec->group; g++)
        affine_group(codec, x + g * codec->group, codes + g * codec->group, &scales[g], &biases[g]);
}

void stored_values(const kvern_codec *codec, const float *x, size_t dim, float *out)
{
    if (codec->kind == KVERN_CODEC_AFFINE) {
        float scales[KVERN_MAX_HEAD_DIM / 32], biases[KVERN_MAX_HEAD_DIM / 32];
        stored_codes(codec, x, dim, out, scales, biases);
        for (size_t d = 0; d < dim; d++)
            out[d] = fmaf(scales[d / codec->group], out[d], biases[d / codec->group]);
        return;
    }
    for (size_t d = 0; d < dim; d++)
        out[d] = rounded((kvern_type)codec->kind, x[d]);
}

// The bias is a value of its group, the one with code 0, or 0; |scale * code| <= |value| + |bias|.
void stored_sizes(const kvern_codec *codec, const float *stored, size_t dim, double *sizes)
{
    const size_t group = codec->kind == KVERN_CODEC_AFFINE ? codec->group : dim;
    for (size_t first = 0; first < dim; first += group) {
        double largest = 0;
        for (size_t d = first; d < first + group; d++)
            largest = fmax(largest, fabs((double)stored[d]));
        for (size_t d = first; d < first + group; d++)
            sizes[d] =
                fabs((double)stored[d]) + (codec->kind == KVERN_CODEC_AFFINE ? 2 * largest : 0);
    }
}
