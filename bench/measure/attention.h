// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_ATTENTION_H
#define KVERN_BENCH_ATTENTION_H

// Timing of attention reads through the public interface: one layer, rows enough that a decode
// reads from memory and not from a cache, the machine's limits measured in between, and a peer
// beside it when there is one.

#include "bench/measure/peer.h"
#include "bench/measure/roofline.h"

#include <kvern/kvern.h>

// One cell of the table.
typedef struct attention_case {
    const char *phase; // "decode": new_tokens is 1; "window"
    kvern_codec storage;
    size_t head_dim;
    // Absorbed reads of latents (kvern/latent.h) of head_dim numbers, with rotated keys of rope_dim
    // beside them; one KV head, and no peer.
    bool latent;
    size_t rope_dim; // 0 without latents
    size_t query_heads, kv_heads;
    int64_t positions; // stored before the new tokens
    int64_t new_tokens;
    size_t threads;
} attention_case;

// Seconds of timed runs: the median and the quartiles.
typedef struct attention_times {
    double median, low, high;
} attention_times;

// A peer that runs the same geometry, storing in its own way. One process each.
typedef struct attention_peer {
    peer_process process;
    char storage[PEER_TEXT_BYTES];

    // Results of a cell. Not measured: the peer refused it (process.refusal says why).
    bool measured;
    attention_times times;
    // How far its results are from ours: the norm of the difference over the norm of ours.
    double difference;
} attention_peer;

#define ATTENTION_MOST_PEERS 8

typedef struct attention_result {
    attention_times times;
    double bytes, fma;  // that one attend needs
    roofline limits;    // medians of this cell's own measurements
    size_t cache_bytes; // of the last-level cache; 0: not known
    // The last-level cache holds all rows, and the timed attends are short, so that each follows
    // another one: the bandwidth of memory is no limit. False where cache_bytes is 0.
    bool from_cache;
    double share; // of the roofline, at the median; from_cache: of the multiply-adds alone
} attention_result;

// What went wrong when a cell could not be measured.
typedef enum attention_fault {
    ATTENTION_FINE = 0,
    ATTENTION_LIBRARY, // kvern_error_detail says more
    ATTENTION_MEMORY,
    ATTENTION_PEER_GONE,
    ATTENTION_PEER_DIFFERS // some peer's results are not ours: it does not compute the same thing
} attention_fault;

// Measures one cell: `runs` timed attends, interleaved with those of `count` peers and with the
// machine's limits. `buffer` is what the bandwidth is read from. A peer whose results differ by
// more than ATTENTION_MOST_DIFFERENCE is a fault.
attention_fault attention_measure(const attention_case *cell, size_t runs,
                                  const roofline_buffer *buffer, size_t cold_bytes,
                                  attention_peer *peers, size_t count, attention_result *result);

// Few bits per value may be 0.1 and more from the exact result; a wrong stride is beyond 1.
#define ATTENTION_MOST_DIFFERENCE 0.5

#endif
