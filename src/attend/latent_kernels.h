// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_LATENT_KERNELS_H
#define KVERN_ATTEND_LATENT_KERNELS_H

// The two products of a block of latents, and what they need, with the query vectors of a tile. The
// block lies as keys of f32 do, [dim][64 slots]; it is the key and, as far as it is latents, the
// value.
//
// A block is larger than a first-level cache, and is read more than once. So the kernels go through
// it part by part, all vectors over each, and ask for what comes next in small steps. (Many
// requests at once would hold up the loads behind them.)

#include <stddef.h>
#include <stdint.h>

// Memory that is read after a call, and is fetched on the way: at once after it, to the first-level
// cache, or later, to the second-level one. NULL: none is known. With `soon` the sums take it that
// their own block is in the first-level cache already; without, they ask for its next dims.
typedef struct kvern_latent_next {
    const char *soon, *later;
    size_t soon_bytes, later_bytes;
} kvern_latent_next;

// Step 2 of docs/arithmetic.md for some groups of vectors and all slots p, g the vectors of a group
// (kvern_latent_kernels.group), i one of them:
//     scores[i * 64 + p] = sum over d ascending of q[i / g][d][i % g] * keys[d][p], by fma from +0
// in one call for all dims, or in several, in order, for some of them each. Slots that were never
// stored give unspecified scores, but never a trap.
typedef struct kvern_latent_score {
    const float *keys; // [end - begin][64 slots]
    size_t begin, end; // dims of this call: even; it goes on with `scores` unless begin is 0
    size_t dim;        // of all, a multiple of 8
    size_t groups;
    const float *q; // [groups][dim][g]
    float *scores;  // [groups * g][64]
    kvern_latent_next next;
} kvern_latent_score;

typedef void kvern_latent_score_fn(const kvern_latent_score *score);

// Query vectors that are the lanes of a vector: a strip of them.
#define KVERN_LATENT_STRIP 16

// The weighted sums of step 4. In a block of keys the slots of a dim follow each other, and those
// are what a sum goes over; so the lanes of a vector are query vectors here, and a value is one
// number for all of them. Nothing of the block has to be turned: the sums are, and that once per
// span. Arrays begin with the first strip that takes part. For every dim d:
//     sums[d][i] = sums[d][i] * factors[i]                      for all vectors i of the strips
//     for slots p in [begin, end) ascending:
//         sums[d][i] = fma(weights[p][i], values[d][p], sums[d][i])  for the vectors i in `vectors`
typedef struct kvern_latent_sum {
    const float *values; // [dim][64 slots]
    size_t dim;          // a multiple of 8
    size_t begin, end;
    size_t strips;        // that take part: 1 or 2
    size_t width;         // of a row: 16 or 32, at least the strips
    uint32_t vectors;     // a bit each
    const float *weights; // [64 slots][width]
    const float *factors; // [strips * 16]; NULL: 1 for all
    float *sums;          // [dim][width]
    kvern_latent_next next;
} kvern_latent_sum;

typedef void kvern_latent_sum_fn(const kvern_latent_sum *sum);

// to[c * to_stride + r] = from[r * from_stride + c]
typedef void kvern_turn_fn(size_t rows, size_t columns, const float *from, size_t from_stride,
                           float *to, size_t to_stride);

typedef struct kvern_latent_kernels {
    size_t group; // vectors that are scored together: 4 or 8
    kvern_latent_score_fn *score;
    kvern_latent_sum_fn *sum;
    kvern_turn_fn *turn;
} kvern_latent_kernels;

// The best kernels within `features` (bits of kvern/cpu.h).
const kvern_latent_kernels *kvern_latent_kernels_of(uint32_t features);

extern const kvern_latent_kernels kvern_latent_plain;
extern const kvern_latent_kernels kvern_latent_avx2;
extern const kvern_latent_kernels kvern_latent_avx512;
extern const kvern_latent_kernels kvern_latent_neon;

#endif
