// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_SELECTION_H
#define KVERN_BENCH_SELECTION_H

// Timing of sparse attention through the public interface: one query selects the best positions of
// a row by its index keys, and attends them; beside it the dense read of all positions, and the
// machine's limits.

#include "bench/measure/roofline.h"
#include "bench/measure/timed_peer.h"

#include <kvern/kvern.h>

typedef struct selection_case {
    kvern_codec storage; // of all lanes
    int64_t positions, top_k;
    size_t index_heads, index_dim;
    size_t heads, latent_dim, rope_dim;
    size_t threads;
} selection_case;

typedef struct selection_result {
    quartiles select; // scores of all positions, and the best of them
    quartiles pick;   // the same by 8 heads of 8 numbers, in a cache: little else than the choice
    quartiles attend; // the selected positions
    quartiles dense;  // all positions
    roofline limits;
    double score_fma;   // that the scores need
    double score_share; // of the peak of multiply-adds that `select` reached
} selection_result;

// Measures a cell: `runs` timed calls of each kind, in turns with those of `count` peers, which
// select. What is compared is which positions are selected.
measure_fault selection_measure(const selection_case *cell, size_t runs,
                                const roofline_buffer *buffer, timed_peer *peers, size_t count,
                                selection_result *result);

#endif
