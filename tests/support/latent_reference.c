// SPDX-License-Identifier: MIT
#include "tests/support/latent_reference.h"

#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

// A dot product and the sum of its terms' sizes.
typedef struct sized {
    double sum, size;
} sized;

static sized dot(const float *a, const float *b, size_t count)
{
    sized s = {0, 0};
    for (size_t i = 0; i < count; i++) {
        s.sum += (double)a[i] * (double)b[i];
        s.size += fabs((double)a[i] * (double)b[i]);
    }
    return s;
}

static sized score_of(const latent_head *h, int64_t position)
{
    const float *c = h->latents + (size_t)position * h->latent;
    sized s = dot(h->q + h->nope, h->ropes + (size_t)position * h->rope, h->rope);
    for (size_t n = 0; n < h->nope; n++) {
        const sized key = dot(h->key_rows + n * h->latent, c, h->latent);
        s.sum += (double)h->q[n] * key.sum;
        s.size += fabs((double)h->q[n]) * key.size;
    }
    return s;
}

// A score is off by `size` times one unit for each of its roundings (made keys and scaled products,
// or the absorbed query and its products), a weight by twice that and what exp and the sums of
// weights add; results by that and the roundings of their own sums. docs/arithmetic.md, "Error".
static double tolerance_of(const latent_head *h, int64_t count, double score_size,
                           double value_size)
{
    const double u = 0x1p-24;
    const double score = (double)(h->latent + h->nope + h->rope + 4) * u * score_size;
    const double sums = (double)h->latent + 64 + 16 + (double)count / 1024;
    return 1.1 * value_size * (2 * score + 2 * sums * u);
}

latent_result latent_reference(const latent_head *h, const int64_t *positions, int64_t count)
{
    latent_result r = {.value_size = 0};
    double *weight = malloc((size_t)count * sizeof *weight), most = -INFINITY, sum = 0;
    double score_size = 0;
    assert_non_null(weight);
    for (int64_t i = 0; i < count; i++) {
        const sized s = score_of(h, positions ? positions[i] : i);
        weight[i] = s.sum * h->scale;
        score_size = fmax(score_size, s.size * h->scale);
        most = fmax(most, weight[i]);
    }
    for (int64_t i = 0; i < count; i++)
        sum += weight[i] = exp(weight[i] - most);
    for (size_t v = 0; v < h->value; v++) {
        double size = 0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t p = positions ? positions[i] : i;
            const sized made =
                dot(h->value_rows + v * h->latent, h->latents + (size_t)p * h->latent, h->latent);
            r.out[v] += weight[i] / sum * made.sum;
            size += weight[i] / sum * made.size;
        }
        r.value_size = fmax(r.value_size, size);
    }
    r.tolerance = tolerance_of(h, count, score_size, r.value_size);
    free(weight);
    return r;
}
