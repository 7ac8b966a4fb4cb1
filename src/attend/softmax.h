// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_SOFTMAX_H
#define KVERN_ATTEND_SOFTMAX_H

// The part of a read that is not a codec's: scaling queries, turning the scores of a block into
// weights, merging partial results, and dividing. Steps 1 and 3 to 6 of docs/arithmetic.md. `dim`
// is a multiple of 8.

#include <stddef.h>
#include <stdint.h>

// The running result of one query vector over some of its positions: the largest score m, the sum l
// of exp(score - m), and the weighted sum of values acc (dim floats). Empty: m = -infinity, l = 0,
// acc = 0.

// One block for n query vectors. `weights` holds n times 64 scores and receives the weights;
// visible[i] has a bit for each slot that vector i sees (not 0). m, l and acc (n times dim) are
// brought to the new largest score, and l receives the sum of the weights; acc does not yet receive
// its values.
typedef void kvern_softmax_fn(size_t n, float *weights, const uint64_t *visible, float softcap,
                              float *m, float *l, float *acc, size_t dim);

// Merges the results of n vectors over more positions, *_part, into those so far (step 5).
typedef void kvern_merge_fn(size_t n, float *m, float *l, float *acc, const float *m_part,
                            const float *l_part, const float *acc_part, size_t dim);

// to[d] = from[d] * factor; to may be from.
typedef void kvern_scale_fn(size_t dim, const float *from, float factor, float *to);

// to[d] = from[d] / divisor; to may be from.
typedef void kvern_divide_fn(size_t dim, const float *from, float divisor, float *to);

typedef struct kvern_softmax_kernels {
    kvern_softmax_fn *softmax;
    kvern_merge_fn *merge;
    kvern_scale_fn *scale;
    kvern_divide_fn *divide;
} kvern_softmax_kernels;

// The best kernels within `features`.
kvern_softmax_kernels kvern_softmax_kernels_of(uint32_t features);

extern const kvern_softmax_kernels kvern_softmax_plain;
extern const kvern_softmax_kernels kvern_softmax_avx2;
extern const kvern_softmax_kernels kvern_softmax_avx512;
extern const kvern_softmax_kernels kvern_softmax_neon;

#endif
