// SPDX-License-Identifier: MIT
#include "tests/support/stored.h"

#include "tests/support/rounding.h"

#include <math.h>
#include <string.h>

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

// ---- Rotated vectors: docs/arithmetic.md, written out ----

static void negate(size_t dim, uint64_t stage, size_t n, float *x)
{
    uint64_t state = 2 * (uint64_t)dim + stage, word = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 64 == 0) {
            state += 0x9e3779b97f4a7c15;
            word = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
            word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
            word ^= word >> 31;
        }
        if (word >> (i % 64) & 1)
            x[i] = -x[i];
    }
}

static void transform(size_t n, float *x)
{
    const float factor = (float)(1 / sqrt((double)n));
    for (size_t step = 1; step < n; step *= 2) {
        for (size_t first = 0; first < n; first += 2 * step) {
            for (size_t i = first; i < first + step; i++) {
                const float sum = x[i] + x[i + step], difference = x[i] - x[i + step];
                x[i] = sum;
                x[i + step] = difference;
            }
        }
    }
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void rotate(size_t dim, float *x)
{
    const size_t n = (size_t)exp2(floor(log2((double)dim)));
    negate(dim, 0, n, x);
    transform(n, x);
    if (n == dim)
        return;
    negate(dim, 1, n, x + dim - n);
    transform(n, x + dim - n);
}

static void rotate_back(size_t dim, float *x)
{
    const size_t n = (size_t)exp2(floor(log2((double)dim)));
    if (n < dim) {
        transform(n, x + dim - n);
        negate(dim, 1, n, x + dim - n);
    }
    transform(n, x);
    negate(dim, 0, n, x);
}

static float sum_of_products(size_t dim, const float *a, const float *b)
{
    float sums[16] = {0};
    for (size_t d = 0; d < dim; d++)
        sums[d % 16] = fmaf(a[d], b[d], sums[d % 16]);
    for (size_t step = 8; step; step /= 2)
        for (size_t i = 0; i < step; i++)
            sums[i] += sums[i + step];
    return sums[0];
}

// The nearest level to y; half way between two, the larger one.
static float level_of(uint32_t bits, float y)
{
    static const double levels[6][32] = {
        {0.797884560803},
        {0.452780034636, 1.510417608500},
        {0.245094178944, 0.756005281206, 1.343909278500, 2.151945704540},
        {0.128395029851, 0.388048299490, 0.656759118532, 0.942340456487, 1.256231197350,
         1.618046386020, 2.069017226530, 2.732589571000},
        {0.065889659771, 0.198051829669, 0.331378305760, 0.466699522977, 0.604933624009,
         0.747135703688, 0.894565117388, 1.048783319923, 1.211804380609, 1.386340339587,
         1.576228078612, 1.787233217703, 2.028728399396, 2.317739404195, 2.691119577377,
         3.260732493401},
        {0.033447265625, 0.100097656250, 0.166992187500, 0.234375000000, 0.302734375000,
         0.371093750000, 0.439453125000, 0.507812500000, 0.578125000000, 0.648437500000,
         0.722656250000, 0.796875000000, 0.871093750000, 0.945312500000, 1.023437500000,
         1.109375000000, 1.187500000000, 1.273437500000, 1.367187500000, 1.460937500000,
         1.554687500000, 1.656250000000, 1.765625000000, 1.882812500000, 2.015625000000,
         2.140625000000, 2.296875000000, 2.468750000000, 2.671875000000, 2.921875000000,
         3.234375000000, 3.750000000000}};
    const double *level = levels[bits - 1];
    size_t best = 0;
    while (best + 1 < (size_t)1 << (bits - 1) &&
           fabsf(y) >= (float)((level[best] + level[best + 1]) / 2))
        best++;
    return copysignf((float)level[best], y);
}

static void turbo_values(const kvern_codec *codec, bool key, const float *x, size_t dim, float *out)
{
    float largest = 0, z[KVERN_MAX_LATENT_DIM], c[KVERN_MAX_LATENT_DIM];
    bool finite = true;
    for (size_t d = 0; d < dim; d++) {
        finite = finite && isfinite(x[d]);
        largest = fmaxf(largest, fabsf(x[d]));
    }
    if (!finite || largest == 0) {
        for (size_t d = 0; d < dim; d++)
            z[d] = finite ? -0.0f : NAN; // codes of 0 are below 0
    } else {
        int exponent;
        frexpf(largest, &exponent);
        const int power = exponent - 1 < -100 ? -100 : exponent - 1 > 126 ? 126 : exponent - 1;
        for (size_t d = 0; d < dim; d++)
            z[d] = ldexpf(x[d], -power);
        rotate(dim, z);
        const float zz = sum_of_products(dim, z, z), unit = sqrtf((float)dim / zz);
        for (size_t d = 0; d < dim; d++)
            c[d] = level_of(codec->bits, z[d] * unit);
        const float zc = sum_of_products(dim, z, c), cc = sum_of_products(dim, c, c);
        const float scale =
            rounded(KVERN_F16, fminf(ldexpf(key ? zz / zc : zc / cc, power), 65504));
        for (size_t d = 0; d < dim; d++)
            z[d] = scale * c[d];
    }
    rotate_back(dim, z);
    memcpy(out, z, dim * sizeof *out);
}

static void rotated_values(const kvern_codec *codec, const float *x, size_t dim, float *out)
{
    kvern_codec affine = *codec;
    affine.kind = KVERN_CODEC_AFFINE;
    float z[KVERN_MAX_LATENT_DIM];
    memcpy(z, x, dim * sizeof *z);
    rotate(dim, z);
    stored_values(&affine, true, z, dim, out);
    rotate_back(dim, out);
}

bool is_rotated(const kvern_codec *codec)
{
    return codec->kind == KVERN_CODEC_ROTATED || codec->kind == KVERN_CODEC_TURBO;
}

// ---- Any codec ----

void stored_values(const kvern_codec *codec, bool key, const float *x, size_t dim, float *out)
{
    if (codec->kind == KVERN_CODEC_TURBO) {
        turbo_values(codec, key, x, dim, out);
        return;
    }
    if (codec->kind == KVERN_CODEC_ROTATED) {
        rotated_values(codec, x, dim, out);
        return;
    }
    if (codec->kind == KVERN_CODEC_AFFINE) {
        float scales[KVERN_MAX_LATENT_DIM / 32], biases[KVERN_MAX_LATENT_DIM / 32];
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
    if (is_rotated(codec)) {
        double square = 0;
        for (size_t d = 0; d < dim; d++)
            square += (double)stored[d] * (double)stored[d];
        const bool affine = codec->kind == KVERN_CODEC_ROTATED;
        for (size_t d = 0; d < dim; d++)
            sizes[d] = sqrt(square) * (affine ? 1 + 2 * sqrt((double)codec->group) : 1);
        return;
    }
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
