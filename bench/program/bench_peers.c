// SPDX-License-Identifier: MIT
#include "bench/program/bench_peers.h"

#include "cli/io/report.h"

#include <stdio.h>
#include <string.h>

int bench_peers_start(const bench_options *options, bench_peers *peers)
{
    const name_list *storages = &options->peer_storages;
    peer_process *processes[BENCH_MOST_NAMES];
    for (size_t i = 0; i < storages->count; i++) {
        memcpy(peers->of[i].storage, storages->name[i], BENCH_NAME_BYTES);
        processes[i] = &peers->of[i].process;
    }
    const int code = bench_start_peers(options, processes, storages->count);
    peers->count = code == CLI_SUCCESS ? storages->count : 0;
    return code;
}

void bench_peers_stop(bench_peers *peers)
{
    for (size_t i = 0; i < peers->count; i++)
        peer_stop(&peers->of[i].process);
}

int bench_peers_report(const bench_options *options, const bench_peers *peers, measure_fault fault)
{
    switch (fault) {
    case MEASURE_MEMORY:
        return report_error("not enough memory for this cell");
    case MEASURE_PEER_GONE:
        return report_error("the peer %s stopped answering", options->peer);
    case MEASURE_PEER_DIFFERS:
        for (size_t p = 0; p < peers->count; p++)
            if (peers->of[p].measured && !(peers->of[p].difference <= TIMED_PEER_MOST_DIFFERENCE))
                return report_error("the peer's results with %s are %.3g away from ours: it does "
                                    "not compute the same thing",
                                    peers->of[p].storage, peers->of[p].difference);
        // fall through
    default:
        return report_error("%s", kvern_error_detail());
    }
}

const char *bench_peers_name(const bench_peers *peers)
{
    return peers->count ? peers->of[0].process.name : "";
}

static json_t *peer_json(const timed_peer *peer)
{
    if (!peer->measured)
        return json_pack("{s:s, s:s}", "storage", peer->storage, "refused", peer->process.refusal);
    return json_pack("{s:s, s:f, s:f, s:f, s:f}", "storage", peer->storage, "ms",
                     1e3 * peer->times.median, "ms_low", 1e3 * peer->times.low, "ms_high",
                     1e3 * peer->times.high, "difference", peer->difference);
}

json_t *bench_peers_json(const bench_peers *peers)
{
    json_t *list = json_array();
    for (size_t p = 0; p < peers->count; p++)
        json_array_append_new(list, peer_json(&peers->of[p]));
    return list;
}

void bench_peers_print_head(const bench_peers *peers)
{
    if (peers->count)
        printf(" %6s %10s %6s %6s", "peer", "peer ms", "ratio", "differ");
    putchar('\n');
}

void bench_peers_print(const timed_peer *peer, double seconds)
{
    if (peer && peer->measured)
        printf(" %6s %10.3f %5.2fx %6.4f", peer->storage, 1e3 * peer->times.median,
               peer->times.median / seconds, peer->difference);
    else if (peer)
        printf(" %6s refuses: %s", peer->storage, peer->process.refusal);
    putchar('\n');
    fflush(stdout);
}
