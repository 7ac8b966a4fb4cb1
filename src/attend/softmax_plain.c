// SPDX-License-Identifier: MIT
// The definition of the softmax kernels (docs/arithmetic.md, steps 1 and 3 to 6).
#include "src/attend/softmax.h"

#include "src/base/assert.h"
#include "src/math/exp.h"
#include "src/math/sum.h"
#include "src/math/tanh.h"

#include <math.h>

#define SLOTS 64

static float cap_score(float s, float softcap)
{
    return softcap > 0 ? softcap * plain_tanh(s / softcap) : s;
}

static float largest_visible(const float *s, uint64_t visible, float m)
{
    KVERN_ASSERT(visible);
    for (int p = 0; p < SLOTS; p++) {
        if (visible >> p & 1)
            m = s[p] > m ? s[p]
                         : m; // a NaN never becomes the largest; its weight is NaN all the same
    }
    return m;
}

// The sum of the 64 weights: four tiles are added lane by lane, then the tree of 16.
static float sum_weights(const float *w)
{
    float lane[16];
    for (int i = 0; i < 16; i++)
        lane[i] = ((w[i] + w[16 + i]) + w[32 + i]) + w[48 + i];
    return kvern_sum16(lane);
}

// What is subtracted from a score before exp: the largest one, or 0 while that is -infinity.
static float base_of(float m)
{
    return m == -INFINITY ? 0 : m;
}

static void softmax_one(float *w, uint64_t visible, float softcap, float *m, float *l, float *acc,
                        size_t dim)
{
    for (int p = 0; p < SLOTS; p++) {
        if (visible >> p & 1)
            w[p] = cap_score(w[p], softcap);
    }
    const float largest = largest_visible(w, visible, *m);
    if (largest > *m) {
        const float c = plain_exp(*m - largest);
        *l *= c;
        for (size_t d = 0; d < dim; d++)
            acc[d] *= c;
        *m = largest;
    }
    // While all scores so far are -infinity, any finite base gives them the weight zero.
    const float base = base_of(*m);
    for (int p = 0; p < SLOTS; p++)
        w[p] = visible >> p & 1 ? plain_exp(w[p] - base) : 0;
    *l += sum_weights(w);
}

static void softmax(size_t n, float *weights, const uint64_t *visible, float softcap, float *m,
                    float *l, float *acc, size_t dim)
{
    for (size_t i = 0; i < n; i++)
        softmax_one(weights + i * SLOTS, visible[i], softcap, m + i, l + i, acc + i * dim, dim);
}

static void merge_one(float *m, float *l, float *acc, float m_part, float l_part,
                      const float *acc_part, size_t dim)
{
    const float larger = m_part > *m ? m_part : *m;
    const float a = plain_exp(*m - base_of(larger)), b = plain_exp(m_part - base_of(larger));
    *l = fmaf(l_part, b, *l * a);
    for (size_t d = 0; d < dim; d++)
        acc[d] = fmaf(acc_part[d], b, acc[d] * a);
    *m = larger;
}

static void merge(size_t n, float *m, float *l, float *acc, const float *m_part,
                  const float *l_part, const float *acc_part, size_t dim)
{
    KVERN_ASSERT(dim % 8 == 0);
    for (size_t i = 0; i < n; i++)
        merge_one(m + i, l + i, acc + i * dim, m_part[i], l_part[i], acc_part + i * dim, dim);
}

static void scale(size_t dim, const float *from, float factor, float *to)
{
    for (size_t d = 0; d < dim; d++)
        to[d] = from[d] * factor;
}

static void divide(size_t dim, const float *from, float divisor, float *to)
{
    for (size_t d = 0; d < dim; d++)
        to[d] = from[d] / divisor;
}

const kvern_softmax_kernels kvern_softmax_plain = {softmax, merge, scale, divide};
