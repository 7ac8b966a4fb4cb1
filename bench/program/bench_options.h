// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_BENCH_OPTIONS_H
#define KVERN_BENCH_BENCH_OPTIONS_H

// Options that the measurements of `kvern bench` share.

#include "cli/options/number_list.h"
#include "cli/options/options.h"

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
    number_list threads; // these and `runs` are the defaults before parsing
    uint64_t runs;
    const char *peer;
    name_list peer_storages;
} bench_options;

// What measurements of one layer's cache vary.
typedef struct bench_grid {
    bench_options bench; // first, as parsers want it
    name_list storages;
    kvern_codec codecs[BENCH_MOST_NAMES]; // of `storages`
    number_list head_dims, groups, positions;
    uint64_t kv_heads;
} bench_grid;

// Groups for a list of argp children. The input of the first three is a bench_options.
extern const struct argp bench_repeat_argp;      // -t with a list, --runs
extern const struct argp bench_repeat_once_argp; // -t with one number, --runs
extern const struct argp bench_peer_argp;        // --peer, --peer-storage
// --storage, --head-dim, --group, --kv-heads, --positions. The input is a bench_grid.
extern const struct argp bench_grid_argp;

// For parsers: a list of names that are neither empty nor longer than fits; anything else is wrong
// usage.
void bench_names(const struct argp_state *state, const char *name, const char *text,
                 name_list *list);

// For parsers, after the options: dims that a layer of keys and values does not have are wrong
// usage. --head-dim alone takes what latents have, too.
void bench_check_head_dims(const struct argp_state *state, const bench_grid *grid);

// Takes the next digit of a cell's number in a grid: an index below `count`.
size_t bench_index(size_t *number, size_t count);

// Starts the peer once for each of its storages; the processes are in peers[0] to [count - 1]. A
// failure is reported, and none runs then. Returns an exit code.
int bench_start_peers(const bench_options *options, peer_process *peers[], size_t count);

#endif
