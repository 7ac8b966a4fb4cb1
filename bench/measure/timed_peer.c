// SPDX-License-Identifier: MIT
#include "bench/measure/timed_peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE_BYTES 512

measure_fault measure_fault_of(kvern_status status)
{
    return status == KVERN_ERR_MEMORY ? MEASURE_MEMORY : status ? MEASURE_LIBRARY : MEASURE_FINE;
}

measure_fault timed_peers_open(timed_peer *peers, size_t count, size_t runs, const char *kind,
                               const char *geometry)
{
    for (size_t p = 0; p < count; p++) {
        timed_peer *peer = &peers[p];
        char line[LINE_BYTES];
        snprintf(line, sizeof line, "%s %s %s", kind, peer->storage, geometry);
        const peer_answer answer = peer_open(&peer->process, line);
        if (answer == PEER_GONE)
            return MEASURE_PEER_GONE;
        peer->measured = answer == PEER_OK;
        peer->difference = peer->sums[0] = peer->sums[1] = 0;
        peer->samples = calloc(runs, sizeof *peer->samples);
        if (!peer->samples)
            return MEASURE_MEMORY;
    }
    return MEASURE_FINE;
}

bool timed_peers_run(timed_peer *peers, size_t count, size_t run)
{
    for (size_t p = 0; p < count; p++)
        if (peers[p].measured && !peer_run(&peers[p].process, &peers[p].samples[run]))
            return false;
    return true;
}

bool timed_peer_compare(timed_peer *peer, size_t token, size_t head, const float *ours,
                        size_t numbers)
{
    float *theirs = malloc(numbers * sizeof *theirs);
    const bool there = theirs && peer_output(&peer->process, token, head, theirs, numbers);
    for (size_t i = 0; i < numbers && there; i++) {
        peer->sums[0] += ((double)ours[i] - theirs[i]) * ((double)ours[i] - theirs[i]);
        peer->sums[1] += (double)ours[i] * ours[i];
    }
    free(theirs);
    return there;
}

measure_fault timed_peers_check(timed_peer *peers, size_t count)
{
    for (size_t p = 0; p < count; p++) {
        if (!peers[p].measured)
            continue;
        peers[p].difference = sqrt(peers[p].sums[0] / peers[p].sums[1]);
        if (!(peers[p].difference <= TIMED_PEER_MOST_DIFFERENCE))
            return MEASURE_PEER_DIFFERS;
    }
    return MEASURE_FINE;
}

void timed_peers_close(timed_peer *peers, size_t count, size_t runs)
{
    for (size_t p = 0; p < count; p++) {
        timed_peer *peer = &peers[p];
        peer_close(&peer->process);
        if (peer->samples && peer->measured)
            peer->times = clock_quartiles(peer->samples, runs);
        free(peer->samples);
        peer->samples = NULL;
    }
}
