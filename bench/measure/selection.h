// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_SELECTION_H
#define KVERN_BENCH_SELECTION_H

// Timing of sparse attention through the public interface: one query selects the best positions of
// a row by its index keys, and attends them; beside it the dense read of all positions, and the
// machine's limits.

#include "bench/measure/roofline.h"

#include <kvern/kvern.h>

typedef struct selection_case {
    kvern_codec storage; // of all lanes
    int64_t positions, top_k;
    size_t index_heads, index_dim;
    size_t heads, latent_dim, rope_dim;
    size_t threads;
} selection_case;

// Seconds of timed runs: the median and the quartiles.
typedef struct selection_times {
    double median, low, high;
} selection_times;

typedef struct selection_result {
    selection_times select; // scores of all positions, and the best of them
    selection_times pick;   // the same by 8 heads of 8 numbers: little else than picking the best
    selection_times attend; // the selected positions
    selection_times dense;  // all positions
    roofline limits;
    double score_fma;   // that the scores need
    double score_share; // of the peak of multiply-adds that `select` reached
} selection_result;

// Measures a cell: `runs` timed calls of each kind, in turns. Errors: those of the library,
// KVERN_ERR_MEMORY.
kvern_status selection_measure(const selection_case *cell, size_t runs,
                               const roofline_buffer *buffer, selection_result *result);

#endif
