// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_RANGES_H
#define KVERN_ROWS_RANGES_H

// Which positions of a row see each other both ways (KVERN_PHASE_RANGES and the like): ranges of
// neighbours, in ascending order. A list never changes, so a row, its forks and its reads share it
// by reference count; a row that is given more ranges makes a list of its own. What is trimmed off
// goes by a count beside the reference: how many ranges of the list are meant.
//
// Positions that were flagged by a caller (KVERN_PHASE_BIDIRECTIONAL) are no neighbours. They are
// bits, and the first range of the list reaches from the first of them to the last.

#include "src/base/heap.h"

#include <kvern/cache.h>
#include <stdbool.h>

// Ranges of a row at most.
#define KVERN_MAX_RANGES 65536

typedef struct kvern_ranges {
    _Atomic size_t references;
    kvern_heap *heap;
    size_t stored; // entries of the context's store that have it (src/store/claim.h)
    size_t count;
    size_t flag_words; // 0: no positions are flagged
    uint64_t *flags;   // a bit for each position: bit p % 64 of word p / 64
    kvern_range list[];
} kvern_ranges;

// Makes a list whose ranges and flags are undefined, with one reference.
KVERN_CHECK kvern_status kvern_ranges_create(kvern_heap *heap, size_t count, size_t flag_words,
                                             kvern_ranges **out);
size_t kvern_ranges_bytes(const kvern_ranges *ranges);
void kvern_ranges_retain(kvern_ranges *ranges);  // NULL is allowed
void kvern_ranges_release(kvern_ranges *ranges); // likewise

// Of the first `count` ranges of a list (NULL: none), the one that `position` lies in; or NULL.
const kvern_range *kvern_ranges_find(const kvern_ranges *ranges, size_t count, int64_t position);

// The one that a row of `length` positions would be cut in by being trimmed to that; or NULL.
const kvern_range *kvern_ranges_cut(const kvern_ranges *ranges, size_t count, int64_t length);

// Whether the range is that of flagged positions.
static inline bool kvern_ranges_is_flagged(const kvern_ranges *ranges, const kvern_range *range)
{
    return ranges->flag_words > 0 && range == &ranges->list[0];
}

// A bit for each flagged position of the block at position `at`.
static inline uint64_t kvern_ranges_flags_at(const kvern_ranges *ranges, int64_t at)
{
    const size_t word = (size_t)at / 64;
    return word < ranges->flag_words ? ranges->flags[word] : 0;
}

// Whether one of the positions [at, at + count) is flagged; both are multiples of 64.
bool kvern_ranges_flag_any(const kvern_ranges *ranges, int64_t at, int64_t count);

#endif
