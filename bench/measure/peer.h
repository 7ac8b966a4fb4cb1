// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PEER_H
#define KVERN_BENCH_PEER_H

// A peer is another program, so that none of its code is linked here. It reads lines from its
// standard input and answers each with one line:
//
//     name                          the peer's name and version
//     open PHASE STORAGE HEAD_DIM Q_HEADS KV_HEADS POSITIONS NEW_TOKENS THREADS
//                                   "ok", or "no" and a reason: one attention read
//     latent PHASE STORAGE LATENT_DIM ROPE_DIM HEADS POSITIONS NEW_TOKENS THREADS
//                                   the same: one absorbed read of latents (MLA)
//     recurrent KIND PHASE STORAGE KEY_HEADS VALUE_HEADS HEAD_DIM NEW_TOKENS THREADS
//                                   the same: tokens of a recurrent layer with a convolution of 4
//                                   taps, whose first run begins with nothing behind it
//     select STORAGE POSITIONS TOP_K HEADS DIM THREADS
//                                   the same: the TOP_K best positions by index keys (DSA)
//     run                           seconds that one of them took (of two when it is short)
//     output TOKEN HEAD             the results of a head of a new token, of the last run
//                                   (select: 0 0, the positions)
//     model STORAGE THREADS CONTEXT FILE
//                                   "ok", or "no" and a reason: a model, with room for CONTEXT
//     time CONTEXT PROMPT GENERATE  seconds of a prompt, seconds of GENERATE tokens after CONTEXT
//     logits COUNT                  the first logits behind the last token that was timed, or "no"
//     and
//                                   a reason
//     close                         "ok": ends what was begun
//
// and ends when its input ends. It fills its tensors with the numbers that peer_fill gives, and
// answers when its threads no longer use a processor.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PEER_TEXT_BYTES 160

typedef struct peer_process {
    int child; // 0: there is none
    FILE *to, *from;
    char name[PEER_TEXT_BYTES];
    char refusal[PEER_TEXT_BYTES]; // why the last thing to begin was refused
    bool opened;                   // something was begun and not closed
} peer_process;

typedef enum peer_answer { PEER_OK = 0, PEER_NO = 1, PEER_GONE = 2 } peer_answer;

// Starts the program. False: it could not be started or does not answer; *peer is empty then.
bool peer_start(const char *program, peer_process *peer);

// Ends the program. An empty *peer is allowed.
void peer_stop(peer_process *peer);

// Begins what a line of the list above says: any but the last three.
peer_answer peer_open(peer_process *peer, const char *line);
peer_answer peer_open_model(peer_process *peer, const char *storage, size_t threads, size_t context,
                            const char *file);

// The next three return false when the peer has gone or answers anything else.
bool peer_run(peer_process *peer, double *seconds);
bool peer_output(peer_process *peer, size_t token, size_t head, float *values, size_t count);
bool peer_time(peer_process *peer, size_t context, size_t prompt, size_t generate,
               double *prompt_seconds, double *generation_seconds);

// A peer that generates by itself may have none: PEER_NO.
peer_answer peer_logits(peer_process *peer, float *values, size_t count);

// Ends what an open began; nothing happens without one.
void peer_close(peer_process *peer);

// The numbers of a tensor, the same for us and for a peer: uniform in [-range, range), from a
// linear congruential generator of 32 bits, of which the upper 24 count. Returns the seed with
// which the numbers behind these go on.
uint32_t peer_fill(float *data, size_t count, uint32_t seed, float range);

// Seeds and ranges of the tensors of an attention read.
#define PEER_SEED_K 1u
#define PEER_SEED_V 2u
#define PEER_SEED_Q 3u
#define PEER_RANGE_KV 1.0f
#define PEER_RANGE_Q 2.0f

#endif
