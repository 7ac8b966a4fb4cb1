// SPDX-License-Identifier: MIT
#include "engine/model/key_balance.h"

#include <math.h>

// Exponents of s beyond this change nothing that a codec could see.
#define MOST 8

// The numbers of pair i, or twice the one that rotates with no other.
typedef struct pair {
    size_t a, b;
} pair;

static pair pair_of(size_t i, size_t rope_dim, engine_rope_style style)
{
    const size_t half = rope_dim / 2;
    if (i >= half) {
        return (pair){i + half, i + half};
    }
    return style == ENGINE_ROPE_PAIRS ? (pair){2 * i, 2 * i + 1} : (pair){i, i + half};
}

static float energy(const float *weights, pair p)
{
    return weights[p.a] * weights[p.a] + weights[p.b] * weights[p.b];
}

// log2 of s, a whole number; by operations that have the same result on every machine. A quarter of
// the logarithm, for these are squares and s is a root.
static int exponent_of(float query, float key)
{
    if (!(key > 0)) {
        return 0; // a key of zeros is stored exactly
    }
    const float ratio = query / key;
    if (!(ratio > 0)) {
        return -MOST; // what the query does not look at may be stored as zero
    }
    int exponent;
    (void)frexpf(ratio, &exponent); // 2^(exponent - 1) <= ratio < 2^exponent
    exponent = (int)floorf((float)(exponent + 1) / 4);
    return exponent < -MOST ? -MOST : exponent > MOST ? MOST : exponent;
}

static void scale(float *weights, pair p, int exponent)
{
    weights[p.a] = ldexpf(weights[p.a], exponent);
    if (p.b != p.a) {
        weights[p.b] = ldexpf(weights[p.b], exponent);
    }
}

void key_balance(float *query_weights, float *key_weights, size_t dim, size_t rope_dim,
                 engine_rope_style style)
{
    for (size_t i = 0; i < dim - rope_dim / 2; i++) {
        const pair p = pair_of(i, rope_dim, style);
        const int exponent = exponent_of(energy(query_weights, p), energy(key_weights, p));
        scale(key_weights, p, exponent);
        scale(query_weights, p, -exponent);
    }
}
