// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_VECTOR_H
#define KVERN_ATTEND_VECTOR_H

// The first and the last steps of one query vector (docs/arithmetic.md, steps 1 and 6), which are
// the same however its positions are read.

#include "src/attend/softmax.h"
#include "src/rows/geometry.h"

#include <kvern/read.h>

// Loads the vector at element `at` of the caller's queries, scaled.
void kvern_vector_load(const kvern_softmax_kernels *kernels, const kvern_queries *queries,
                       int64_t at, size_t dim, float *to);

// Adds the sink of the query head, if there is one, divides, and writes the result, rounded, at
// element `at` of the caller's outputs. m, l and acc (softmax.h) are used up. `values`: the stream
// whose blocks were added up by its kernels, which say what the sums still need; NULL: it was
// decoded first, and they need nothing.
void kvern_vector_finish(const kvern_softmax_kernels *kernels, const kvern_stream_plan *values,
                         const kvern_queries *queries, size_t query_head, int64_t at, size_t dim,
                         float m, float l, float *acc);

#endif
