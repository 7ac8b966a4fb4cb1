// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_BENCH_PEERS_H
#define KVERN_BENCH_BENCH_PEERS_H

// Peers of the measurements of one layer: a process for each storage of --peer-storage.

#include "bench/measure/timed_peer.h"
#include "bench/program/bench_options.h"

#include <jansson.h>

typedef struct bench_peers {
    timed_peer of[BENCH_MOST_NAMES];
    size_t count; // that run
} bench_peers;

// Starts those that the options ask for, if any. A failure is reported, and none runs then. Returns
// an exit code.
int bench_peers_start(const bench_options *options, bench_peers *peers);
void bench_peers_stop(bench_peers *peers);

// Reports why a cell could not be measured; returns an exit code.
int bench_peers_report(const bench_options *options, const bench_peers *peers, measure_fault fault);

// What they call themselves; "" without any.
const char *bench_peers_name(const bench_peers *peers);

// The results of a cell: {"storage", "ms", "ms_low", "ms_high", "difference"} each, or {"storage",
// "refused"}.
json_t *bench_peers_json(const bench_peers *peers);

// The columns of a table: their head, and those of one peer beside our `seconds`. All end a line.
void bench_peers_print_head(const bench_peers *peers);
void bench_peers_print(const timed_peer *peer, double seconds);

#endif
