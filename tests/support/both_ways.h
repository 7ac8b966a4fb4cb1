// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_BOTH_WAYS_H
#define KVERN_TESTS_SUPPORT_BOTH_WAYS_H

// Tokens that see each other both ways: as groups of positions, of which those of one group do, and
// as an append of the library takes them.

#include "tests/support/random.h"

#include <kvern/kvern.h>

typedef struct both_ways {
    kvern_range *ranges;
    size_t *range_counts;
    uint8_t *flags;
} both_ways;

// Whether the phase has such tokens.
bool is_both_ways(kvern_phase phase);

// Chooses the groups of `count` tokens of an append: numbers from 1 on, ascending; 0: in none.
void both_ways_choose(test_random *random, kvern_phase phase, int64_t count, int64_t *groups);

// What an append of the phase says of tokens in these groups, groups[r] having counts[r] of them;
// sets it in *tokens, which must not outlive the result.
both_ways both_ways_of(kvern_phase phase, size_t rows, const int64_t *counts,
                       int64_t *const *groups, kvern_tokens *tokens);
void both_ways_free(both_ways *both);

// Whether a row of `length` positions in these groups can be cut at `at`: nothing in front of it
// sees anything behind.
bool both_ways_may_cut(const int64_t *groups, int64_t length, int64_t at);

#endif
