// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_LATENT_SUM_H
#define KVERN_ATTEND_LATENT_SUM_H

// Weighted sums of values that are stored as keys: latents, which are both. In a block of keys the
// slots of a dim follow each other, and those are what a sum goes over; so here the lanes of a
// vector are query vectors, and a value is one number for all of them. Nothing of the block has to
// be turned: the sums are, [dim][vectors], and that once per span.

#include <stddef.h>
#include <stdint.h>

// What one call does, for every dim d, of step 4 of docs/arithmetic.md:
//     sums[d][i] = sums[d][i] * factors[i]                      for all `width` vectors i
//     for slots p in [begin, end) ascending:
//         sums[d][i] = fma(weights[p][i], values[d][p], sums[d][i])  for the vectors i in `vectors`
typedef struct kvern_latent_sum {
    const float *values; // [dim][64 slots]
    size_t dim;          // a multiple of 8
    size_t begin, end;
    size_t width;         // 16 or 32
    uint32_t vectors;     // a bit each
    const float *weights; // [64 slots][width]
    const float *factors; // [width]; NULL: 1 for all
    float *sums;          // [dim][width]
    // Memory that is read after this, `next_row` bytes of it for every dim; NULL: none is known.
    const char *next;
    size_t next_row;
} kvern_latent_sum;

typedef void kvern_latent_sum_fn(const kvern_latent_sum *sum);

// The best kernel within `features` (bits of kvern/cpu.h).
kvern_latent_sum_fn *kvern_latent_sum_of(uint32_t features);

kvern_latent_sum_fn kvern_latent_sum_plain;
kvern_latent_sum_fn kvern_latent_sum_avx2;
kvern_latent_sum_fn kvern_latent_sum_avx512;
kvern_latent_sum_fn kvern_latent_sum_neon;

#endif
