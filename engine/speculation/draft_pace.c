// SPDX-License-Identifier: MIT
#include "engine/speculation/draft_pace.h"

// A kind that does not pay is tried again after so many chances: it then costs less than a
// hundredth.
#define RETRY 32

// The weight of one more outcome: the last ten or so count.
#define WEIGHT 0.125f

static size_t best_count(float rate, float cost, size_t most)
{
    size_t best = 0;
    float tokens = 1, term = 1, gain = 1; // of the best count so far
    for (size_t k = 1; k <= most; k++) {
        term *= rate;
        tokens += term;
        const float gain_of_k = tokens / (1 + cost * (float)k);
        if (gain_of_k <= gain) {
            break; // it only falls from here on
        }
        gain = gain_of_k;
        best = k;
    }
    return best;
}

size_t draft_pace_choose(draft_pace *pace, size_t kind, size_t most)
{
    const size_t best = best_count(pace->rate[kind], pace->cost, most);
    if (best > 0 || most == 0) {
        pace->passed[kind] = 0;
        return best;
    }
    pace->passed[kind] = (pace->passed[kind] + 1) % RETRY;
    return pace->passed[kind] == 0 ? 1 : 0;
}

void draft_pace_learn(draft_pace *pace, size_t kind, size_t drafted, size_t accepted)
{
    float *rate = &pace->rate[kind];
    for (size_t i = 0; i < accepted; i++) {
        *rate += (1 - *rate) * WEIGHT;
    }
    if (accepted < drafted) { // those behind the first wrong one say nothing
        *rate -= *rate * WEIGHT;
    }
}
