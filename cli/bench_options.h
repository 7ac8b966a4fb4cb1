// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_BENCH_OPTIONS_H
#define KVERN_CLI_BENCH_OPTIONS_H

// Options that the measurements of `kvern bench` share.

#include "cli/number_list.h"
#include "cli/options.h"

#include "bench/measure/peer.h"

#include <kvern/composition.h>

#define BENCH_MOST_NAMES 8
#define BENCH_NAME_BYTES 16

// "f16,q8_0".
typedef struct name_list {
    size_t count;
    char name[BENCH_MOST_NAMES][BENCH_NAME_BYTES];
} name_list;

typedef struct bench_options {
    cli_options common;
    number_list threads;
    uint64_t runs; // 0: not given
    const char *peer;
    name_list peer_storages;
} bench_options;

// -t, --runs; and --peer, --peer-storage. The input of both is a bench_options.
extern const struct argp bench_repeat_argp;

// -t and --runs of what runs at one number of threads; the command refuses a list.
extern const struct argp bench_repeat_once_argp;
extern const struct argp bench_peer_argp;

// For parsers: a list of names that are neither empty nor longer than fits; anything else is wrong
// usage.
void bench_names(const struct argp_state *state, const char *name, const char *text,
                 name_list *list);

// The same for names of codecs, which are put into `codecs` too.
void bench_storages(const struct argp_state *state, const char *name, const char *text,
                    name_list *list, kvern_codec codecs[BENCH_MOST_NAMES]);

// Takes the next digit of a cell's number in a grid: an index below `count`.
size_t bench_index(size_t *number, size_t count);

// Starts the peer once for each of its storages; the processes are in peers[0] to [count - 1]. A
// failure is reported, and none runs then. Returns an exit code.
int bench_start_peers(const bench_options *options, peer_process *peers[], size_t count);

#endif
