// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_RECURRENT_TIMING_H
#define KVERN_BENCH_RECURRENT_TIMING_H

// Timing of recurrent layers through the public interface: one layer, states enough that a decode
// reads and writes memory and not a cache, the machine's limits measured in between, and plain
// loops beside it.

#include "bench/measure/roofline.h"
#include "bench/measure/timed_peer.h"

#include <kvern/kvern.h>

typedef struct recurrent_case {
    const char *kind; // of `layer`, in the words of peer.h
    kvern_layer layer;
    int64_t new_tokens; // 1: a decode, of another row each time
    size_t threads;
} recurrent_case;

typedef struct recurrent_result {
    quartiles times;   // all of it: convolution, norms, gates, steps
    quartiles naive;   // the same by plain loops, on the same threads
    double difference; // of their results: norm of the difference over the norm of ours
    // What one run needs. Bytes: S once from memory and once back. Multiply-adds: for every token
    // and every number of S one for each thing that is done to it: the decay, m (delta), the outer
    // product, y.
    double bytes, fma;
    roofline limits; // its bytes are read and written, in place, as those of S are
    double share;    // of the roofline, at the median
} recurrent_result;

// Results further apart are not the same computation.
#define RECURRENT_MOST_DIFFERENCE 1e-3

// Measures a cell: `runs` timed calls of each kind, in turns with those of `count` peers. Decodes
// cycle through `cold_bytes` of states. The first tokens of an empty row are what is compared.
measure_fault recurrent_measure(const recurrent_case *cell, size_t runs,
                                const roofline_buffer *buffer, size_t cold_bytes, timed_peer *peers,
                                size_t count, recurrent_result *result);

// A speculative round of `new_tokens` tokens, of which all but the last stay.
typedef struct rollback_result {
    quartiles rollback;
    quartiles again; // the same tokens as a window, without results
    quartiles copy;  // one copy of the matrices
} rollback_result;

// Times the end of such rounds, `runs` of each kind in turns. Errors: those of the library,
// KVERN_ERR_MEMORY.
kvern_status recurrent_measure_rollback(const recurrent_case *cell, size_t runs,
                                        rollback_result *result);

#endif
