// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_SOFTMAX_H
#define KVERN_ATTEND_SOFTMAX_H

// The part of a read that is not a codec's: turning the scores of a block into weights, and merging
// partial results. Steps 3 to 6 of docs/arithmetic.md.

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

// to[d] = fma(from[d], b, to[d] * a)
typedef void kvern_blend_fn(size_t dim, float *to, float a, const float *from, float b);

typedef struct kvern_softmax_kernels {
    kvern_softmax_fn *softmax;
    kvern_blend_fn *blend;
} kvern_softmax_kernels;

// The best kernels within `features`.
kvern_softmax_kernels kvern_softmax_kernels_of(uint32_t features);

kvern_softmax_kernels kvern_softmax_kernels_plain(void);
kvern_softmax_kernels kvern_softmax_kernels_avx2(void);
kvern_softmax_kernels kvern_softmax_kernels_avx512(void);
kvern_softmax_kernels kvern_softmax_kernels_neon(void);

#endif
