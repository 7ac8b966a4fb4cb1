// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_ATTENTION_H
#define KVERN_BENCH_ATTENTION_H

// Timing of attention reads through the public interface: one layer, rows enough that a decode
// reads from memory and not from a cache, the machine's limits measured in between, and a peer
// beside it when there is one.

#include "bench/measure/roofline.h"
#include "bench/measure/timed_peer.h"

#include <kvern/kvern.h>

// One cell of the table.
typedef struct attention_case {
    const char *phase; // "decode": new_tokens is 1; "window"
    kvern_codec storage;
    size_t head_dim;
    // Absorbed reads of latents (kvern/latent.h) of head_dim numbers, with rotated keys of rope_dim
    // beside them; one KV head.
    bool latent;
    size_t rope_dim; // 0 without latents
    size_t query_heads, kv_heads;
    int64_t positions; // stored before the new tokens
    int64_t new_tokens;
    size_t threads;
} attention_case;

typedef struct attention_result {
    quartiles times;
    double bytes, fma;  // that one attend needs
    roofline limits;    // medians of this cell's own measurements
    size_t cache_bytes; // of the last-level cache; 0: not known
    // The last-level cache holds all rows, and the timed attends are short, so that each follows
    // another one: the bandwidth of memory is no limit. False where cache_bytes is 0.
    bool from_cache;
    double share; // of the roofline, at the median; from_cache: of the multiply-adds alone
} attention_result;

// Measures one cell: `runs` timed attends, interleaved with those of `count` peers and with the
// machine's limits. `buffer` is what the bandwidth is read from. A peer whose results differ by
// more than TIMED_PEER_MOST_DIFFERENCE is a fault.
measure_fault attention_measure(const attention_case *cell, size_t runs,
                                const roofline_buffer *buffer, size_t cold_bytes, timed_peer *peers,
                                size_t count, attention_result *result);

#endif
