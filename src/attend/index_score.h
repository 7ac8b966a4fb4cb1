// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_INDEX_SCORE_H
#define KVERN_ATTEND_INDEX_SCORE_H

// Index scores: how much a query wants a position, by an indexer with a few small heads
// (docs/arithmetic.md, "Selection"). A codec's score kernel makes the products of all heads with
// the keys of a block; what is here adds them up and turns the sums into numbers that sort.

#include <stddef.h>
#include <stdint.h>

// An order key: of two scores the larger one has the larger key, -0 and +0 have the same, and NaN
// has the least one, whatever its sign and payload.
#define KVERN_ORDER_KEY_NAN 0u

// The keys of one query in one block, from the products of its heads with the block's positions:
//     s = +0; for h ascending: s = fma(weights[h], relu(dots[h * 64 + p]), s)
// where relu(x) is 0 if x < 0, else x: NaN stays NaN. keys[p] is the order key of s, p from 0 to
// count - 1, count from 1 to 64. keys has room for 64; those behind `count` are unspecified, as
// dots may be there.
typedef void kvern_index_score_fn(size_t heads, const float *weights, const float *dots,
                                  size_t count, uint32_t *keys);

// The best kernel within `features` (bits of kvern/cpu.h).
kvern_index_score_fn *kvern_index_score_of(uint32_t features);

kvern_index_score_fn kvern_index_score_plain;
kvern_index_score_fn kvern_index_score_avx2;
kvern_index_score_fn kvern_index_score_avx512;
kvern_index_score_fn kvern_index_score_neon;

#endif
