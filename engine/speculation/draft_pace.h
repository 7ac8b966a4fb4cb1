// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_PACE_H
#define KVERN_ENGINE_DRAFT_PACE_H

// How many tokens to draft: as many as can be expected to pay, by what became of earlier drafts.
//
// Checking k drafts takes 1 + cost * k times as long as a pass of one token, and gives
// 1 + r + r^2 + ... + r^k tokens when each draft is right with probability r: the best k is the one
// with the most tokens per time, and none at all when r is not above the cost. Guesses made for
// different reasons have rates of their own. Deterministic: no clock is read.

#include <stddef.h>
#include <stdint.h>

#define DRAFT_PACE_KINDS 5

// What one more token costs in a pass that checks drafts, in parts of a pass of one token: measured
// with the matrix kernels of engine/kernels/linear, for 2 to 16 tokens.
#define DRAFT_PACE_CHECK_COST 0.15f

typedef struct draft_pace {
    float cost;
    float rate[DRAFT_PACE_KINDS];      // how often drafts of a kind have been right, lately
    uint32_t passed[DRAFT_PACE_KINDS]; // chances to draft that were not worth it, in a row
} draft_pace;

// The number of tokens to draft, 0 to `most`. Once in a while it is 1 for a kind that does not pay:
// its rate may have changed.
size_t draft_pace_choose(draft_pace *pace, size_t kind, size_t most);

// Takes in what became of `drafted` tokens of a kind, of which the first `accepted` were right.
void draft_pace_learn(draft_pace *pace, size_t kind, size_t drafted, size_t accepted);

#endif
