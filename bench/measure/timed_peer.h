// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_TIMED_PEER_H
#define KVERN_BENCH_TIMED_PEER_H

// Peers that do the work of a cell between our own runs, and whose results are compared with ours.

#include "bench/measure/clock.h"
#include "bench/measure/peer.h"

#include <kvern/status.h>

// What went wrong when a cell could not be measured.
typedef enum measure_fault {
    MEASURE_FINE = 0,
    MEASURE_LIBRARY, // kvern_error_detail says more
    MEASURE_MEMORY,
    MEASURE_PEER_GONE,
    MEASURE_PEER_DIFFERS // some peer's results are not ours: it does not compute the same thing
} measure_fault;

measure_fault measure_fault_of(kvern_status status);

// One of them, storing in its own way. One process each.
typedef struct timed_peer {
    peer_process process;
    char storage[PEER_TEXT_BYTES];

    // Results of a cell. Not measured: the peer refused it (process.refusal says why).
    bool measured;
    quartiles times;   // seconds
    double difference; // of the results: the norm of the difference over the norm of ours

    double *samples; // while a cell is open: seconds of each run
    double sums[2];  // so far: |ours - theirs|^2 and |ours|^2
} timed_peer;

#define TIMED_PEERS_MOST 8

// Few bits per value may be 0.1 and more from the exact result; a wrong stride is beyond 1.
#define TIMED_PEER_MOST_DIFFERENCE 0.5

// Opens a cell at each of them, for `runs` runs: the line is `kind`, the peer's storage,
// `geometry`.
measure_fault timed_peers_open(timed_peer *peers, size_t count, size_t runs, const char *kind,
                               const char *geometry);

// One run of each, number `run`. False: one has gone.
bool timed_peers_run(timed_peer *peers, size_t count, size_t run);

// Asks for one head of a new token of the last run, and compares it with ours. False: it has gone.
bool timed_peer_compare(timed_peer *peer, size_t token, size_t head, const float *ours,
                        size_t numbers);

// The differences, from what was compared. One that is no number is one that is too large.
measure_fault timed_peers_check(timed_peer *peers, size_t count);

// Ends the cell; the times are those of `runs` runs.
void timed_peers_close(timed_peer *peers, size_t count, size_t runs);

#endif
