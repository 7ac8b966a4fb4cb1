// SPDX-License-Identifier: MIT
#include "tests/support/both_ways.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

bool is_both_ways(kvern_phase phase)
{
    return phase == KVERN_PHASE_RANGES || phase == KVERN_PHASE_BIDIRECTIONAL ||
           phase == KVERN_PHASE_ENCODER;
}

// ---- Choosing ----

static void choose_ranges(test_random *random, int64_t count, int64_t *groups)
{
    const uint64_t most = 1 + test_random_below(random, 100);
    int64_t last = 0;
    for (int64_t at = 0, length; at < count; at += length) {
        length = 1 + (int64_t)test_random_below(random, most);
        last += test_random_below(random, 2) > 0;
        const int64_t group = test_random_below(random, 2) ? ++last : 0;
        for (int64_t i = at; i < at + length && i < count; i++)
            groups[i] = group;
    }
}

static void choose_flags(test_random *random, int64_t count, int64_t *groups)
{
    const uint64_t seldom = 1 + test_random_below(random, 20);
    for (int64_t at = 0, length; at < count; at += length) {
        length = 1 + (int64_t)test_random_below(random, test_random_below(random, 2) ? 100 : 3);
        const bool flagged = test_random_below(random, seldom) == 0;
        for (int64_t i = at; i < at + length && i < count; i++)
            groups[i] = flagged;
    }
}

void both_ways_choose(test_random *random, kvern_phase phase, int64_t count, int64_t *groups)
{
    for (int64_t i = 0; i < count; i++)
        groups[i] = phase == KVERN_PHASE_ENCODER;
    if (phase == KVERN_PHASE_RANGES)
        choose_ranges(random, count, groups);
    else if (phase == KVERN_PHASE_BIDIRECTIONAL)
        choose_flags(random, count, groups);
}

// ---- As the library takes them ----

static void *new_array(size_t count, size_t size)
{
    void *array = calloc(count + 1, size);
    assert_non_null(array);
    return array;
}

static size_t ranges_of(const int64_t *groups, int64_t count, kvern_range *ranges)
{
    size_t made = 0;
    for (int64_t at = 0, end; at < count; at = end) {
        for (end = at + 1; end < count && groups[end] == groups[at];)
            end++;
        if (groups[at])
            ranges[made++] = (kvern_range){at, end};
    }
    return made;
}

both_ways both_ways_of(kvern_phase phase, size_t rows, const int64_t *counts,
                       int64_t *const *groups, kvern_tokens *tokens)
{
    both_ways made;
    size_t all = 0, ranges = 0, at = 0;
    for (size_t r = 0; r < rows; r++)
        all += (size_t)counts[r];
    made.ranges = new_array(all, sizeof *made.ranges);
    made.range_counts = new_array(rows, sizeof *made.range_counts);
    made.flags = new_array(all, sizeof *made.flags);
    for (size_t r = 0; r < rows; r++) {
        made.range_counts[r] = ranges_of(groups[r], counts[r], made.ranges + ranges);
        ranges += made.range_counts[r];
        for (int64_t i = 0; i < counts[r]; i++) // any number that is not 0
            made.flags[at++] = groups[r][i] ? (uint8_t)(1 + i % 255) : 0;
    }
    tokens->ranges = phase == KVERN_PHASE_RANGES ? made.ranges : NULL;
    tokens->range_counts = phase == KVERN_PHASE_RANGES ? made.range_counts : NULL;
    tokens->flags = phase == KVERN_PHASE_BIDIRECTIONAL ? made.flags : NULL;
    return made;
}

void both_ways_free(both_ways *both)
{
    free(both->ranges);
    free(both->range_counts);
    free(both->flags);
    memset(both, 0, sizeof *both);
}

// The groups of a row lie behind each other, with positions of none in between and among them.
bool both_ways_may_cut(const int64_t *groups, int64_t length, int64_t at)
{
    int64_t before = at - 1, behind = at;
    while (before >= 0 && !groups[before])
        before--;
    while (behind < length && !groups[behind])
        behind++;
    return before < 0 || behind >= length || groups[before] != groups[behind];
}
