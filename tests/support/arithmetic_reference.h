// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_ARITHMETIC_REFERENCE_H
#define KVERN_TESTS_SUPPORT_ARITHMETIC_REFERENCE_H

// docs/arithmetic.md a second time: one query vector over stored values, step by step as the page
// says, without pages, tiles, vectors or threads. The library must give these bits.

#include <stdint.h>

typedef struct reference_query {
    int64_t position; // sees the positions up to this one
    int64_t recent;   // of them the newest `recent` ones, 0: all
    int64_t keep;     // and the first `keep` ones
    int64_t chunk;    // of them those of its own chunk of so many; 0: there are no chunks
    // Per position of the row, which has `length` of them: those of one group that is not 0 see
    // each other; NULL: there are none.
    const int64_t *groups;
    int64_t length;
    int64_t block;  // not 0: of the positions in front of it, the query sees what that one does
    const float *q; // [k_dim]
    float scale, softcap;
    const float *sink; // NULL: none
} reference_query;

// What is stored of the keys or of the values of one KV head, as f32: position p at x + p * stride.
typedef struct reference_stream {
    const float *x;
    int64_t dim, stride;
    int64_t group; // 0: x are the values; else codes, this many of which share a scale and a bias
    const float *scales, *biases; // of position p at p * side_stride
    int64_t side_stride;
} reference_stream;

typedef struct reference_head {
    reference_stream k, v;
} reference_head;

// out[v_dim] before the rounding to the output type.
void reference_attend(const reference_head *head, const reference_query *query, float *out);

#endif
