// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PEER_H
#define KVERN_BENCH_PEER_H

// A peer is another program, so that none of its code is linked here. It reads lines from its
// standard input and answers each with one line:
//
//     name                                                      the peer's name and version
//     open PHASE STORAGE HEAD_DIM Q_HEADS KV_HEADS POSITIONS NEW_TOKENS THREADS
//                                                               "ok", or "no" and a reason
//     run                                                       seconds that one attend took
//     close                                                     "ok"
//
// and ends when its input ends.

#include "bench/measure/attention.h"

typedef struct peer_process peer_process;

// Starts the program and fills *calls for attention_measure. False: it could not be started or does
// not answer; *out is NULL then.
bool peer_open(const char *program, peer_process **out, attention_peer *calls);

// Ends the program. NULL is allowed.
void peer_close(peer_process *peer);

// What the peer calls itself.
const char *peer_name(const peer_process *peer);

#endif
