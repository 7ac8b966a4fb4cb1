// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_ATTENTION_H
#define KVERN_BENCH_ATTENTION_H

// Timing of attention reads through the public interface: one layer, rows enough that a decode
// reads from memory and not from a cache, the machine's limits measured in between, and a peer
// beside it when there is one.

#include "bench/measure/roofline.h"

#include <kvern/kvern.h>

// One cell of the table.
typedef struct attention_case {
    const char *phase; // "decode": new_tokens is 1; "window"
    kvern_type storage;
    size_t head_dim;
    size_t query_heads, kv_heads;
    int64_t positions; // stored before the new tokens
    int64_t new_tokens;
    size_t threads;
} attention_case;

typedef struct attention_result {
    double ms, ms_low, ms_high; // median and quartiles
    double bytes, fma;          // that one attend needs
    roofline limits;            // medians of this cell's own measurements
    double share;               // of the roofline, at the median
    double peer_ms;             // median; 0 without a peer
} attention_result;

// A peer runs the same geometry somewhere else and says how many seconds it took; negative: it
// cannot.
typedef struct attention_peer {
    void *user;
    const char *name;
    bool (*open)(void *user, const attention_case *cell); // false: not supported
    double (*run)(void *user);
    void (*close)(void *user);
} attention_peer;

// Measures one cell: `runs` timed attends, interleaved with the peer's (NULL: none) and with the
// machine's limits. `buffer` is what the bandwidth is read from. On failure the library's detail
// text says why.
KVERN_CHECK kvern_status attention_measure(const attention_case *cell, size_t runs,
                                           const roofline_buffer *buffer, size_t cold_bytes,
                                           const attention_peer *peer, attention_result *result);

#endif
