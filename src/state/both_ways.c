// SPDX-License-Identifier: MIT
#include "src/state/both_ways.h"

#include "src/base/assert.h"
#include "src/base/fail.h"

#include <inttypes.h>
#include <string.h>

// ---- What the caller says ----

// The ranges of one row, in tokens of the append.
static kvern_status check_ranges(size_t row, const kvern_range *ranges, size_t count,
                                 int64_t tokens)
{
    int64_t end = 0;
    for (size_t i = 0; i < count; end = ranges[i++].end) {
        const kvern_range *range = &ranges[i];
        if (range->begin < end || range->begin >= range->end)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu, range %zu: tokens %" PRId64 " to %" PRId64
                              ", which are none, or not behind those of the range before",
                              row, i, range->begin, range->end);
        if (range->end > tokens)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu, range %zu: tokens %" PRId64 " to %" PRId64
                              " of an append of %" PRId64 ": a range lies within one append",
                              row, i, range->begin, range->end, tokens);
    }
    return KVERN_OK;
}

static kvern_status check_all_ranges(const kvern_cache *cache, const kvern_both_ways *both,
                                     const int64_t *counts)
{
    const kvern_range *ranges = both->ranges;
    if (!both->range_counts && cache->batch->row_count)
        return kvern_fail(KVERN_ERR_ARGUMENT, "range_counts is NULL in an append of ranges");
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        const size_t count = both->range_counts[r];
        if (count > KVERN_MAX_RANGES)
            return kvern_fail(KVERN_ERR_RANGE, "row %zu: %zu ranges, not 0 to %d", r, count,
                              KVERN_MAX_RANGES);
        if (count && !ranges)
            return kvern_fail(KVERN_ERR_ARGUMENT, "ranges is NULL");
        kvern_status status = check_ranges(r, ranges, count, counts[r]);
        if (status)
            return status;
        ranges += count;
    }
    return KVERN_OK;
}

kvern_status kvern_both_ways_check(const kvern_cache *cache, const kvern_both_ways *both,
                                   const int64_t *counts)
{
    const kvern_phase phase = both->phase;
    if (phase != KVERN_PHASE_RANGES && (both->ranges || both->range_counts))
        return kvern_fail(KVERN_ERR_ARGUMENT, "ranges in an append of phase %d", (int)phase);
    if (phase != KVERN_PHASE_BIDIRECTIONAL && both->flags)
        return kvern_fail(KVERN_ERR_ARGUMENT, "flags in an append of phase %d", (int)phase);
    if (phase == KVERN_PHASE_RANGES)
        return check_all_ranges(cache, both, counts);
    for (size_t r = 0; phase == KVERN_PHASE_BIDIRECTIONAL && r < cache->batch->row_count; r++) {
        if (counts[r] && !both->flags)
            return kvern_fail(KVERN_ERR_ARGUMENT, "flags is NULL in a bidirectional append");
    }
    return KVERN_OK;
}

// ---- Lists ----

// What a row receives: ranges of its tokens, or flags of them.
typedef struct added {
    const kvern_range *ranges;
    size_t count;
    const uint8_t *flags; // NULL: none
    int64_t tokens;
} added;

// The flagged tokens, from the first one to the last; without any, or with one alone, which sees
// itself anyway, nothing is left.
static kvern_range flagged_of(const uint8_t *flags, int64_t tokens)
{
    kvern_range range = {0, tokens};
    while (range.begin < tokens && !flags[range.begin])
        range.begin++;
    while (range.end > range.begin && !flags[range.end - 1])
        range.end--;
    return range;
}

// Words of bits up to the last position that is flagged in the list.
static size_t flag_words_of(const kvern_range *flagged)
{
    return (size_t)(flagged->end - 1) / 64 + 1;
}

static void set_flags(kvern_ranges *ranges, const uint8_t *flags)
{
    memset(ranges->flags, 0, ranges->flag_words * sizeof ranges->flags[0]);
    for (int64_t i = ranges->list[0].begin; i < ranges->list[0].end; i++)
        ranges->flags[i / 64] |= (uint64_t)(flags[i] != 0) << i % 64;
}

// The first of the row's ranges that can still be seen.
static size_t first_held(const kvern_row *row)
{
    size_t first = 0;
    while (first < row->range_count && row->ranges->list[first].end <= row->held)
        first++;
    return first;
}

// The row's ranges that are still seen, and behind them the new ones.
static kvern_status make_list(kvern_cache *cache, size_t index, const added *a)
{
    const kvern_row *row = &cache->rows[index];
    const size_t first = first_held(row), old = row->range_count - first;
    const size_t words = old && first == 0 ? row->ranges->flag_words : 0;
    kvern_ranges *made;
    KVERN_ASSERT(a->count > 0 && (!a->flags || (row->length == 0 && old == 0)));
    if (a->count > KVERN_MAX_RANGES - old)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: %zu ranges and %zu more, of %d at most", index,
                          old, a->count, KVERN_MAX_RANGES);
    kvern_status status =
        kvern_ranges_create(&kvern_cache_context(cache)->heap, old + a->count,
                            a->flags ? flag_words_of(&a->ranges[0]) : words, &made);
    if (status)
        return status;
    if (old)
        memcpy(made->list, row->ranges->list + first, old * sizeof made->list[0]);
    if (old && words)
        memcpy(made->flags, row->ranges->flags, words * sizeof made->flags[0]);
    for (size_t i = 0; i < a->count; i++)
        made->list[old + i] =
            (kvern_range){row->length + a->ranges[i].begin, row->length + a->ranges[i].end};
    if (a->flags)
        set_flags(made, a->flags);
    kvern_cache_layer_rows(cache).changes[index].ranges = made;
    return KVERN_OK;
}

kvern_status kvern_both_ways_prepare(kvern_cache *cache, const kvern_both_ways *both,
                                     const int64_t *counts)
{
    const kvern_range *ranges = both->ranges;
    const uint8_t *flags = both->flags;
    kvern_status status = KVERN_OK;
    if (!kvern_phase_is_both_ways(both->phase))
        return KVERN_OK;
    for (size_t r = 0; r < cache->batch->row_count && !status; r++) {
        kvern_range whole = {0, counts[r]};
        added a = {&whole, counts[r] > 1, NULL, counts[r]};
        if (both->phase == KVERN_PHASE_RANGES) {
            a = (added){ranges, both->range_counts[r], NULL, counts[r]};
            ranges += a.count;
        } else if (both->phase == KVERN_PHASE_BIDIRECTIONAL) {
            whole = flagged_of(flags, counts[r]);
            a.count = whole.end - whole.begin > 1;
            a.flags = flags;
            flags += counts[r];
        }
        if (a.count)
            status = make_list(cache, r, &a);
    }
    return status;
}

void kvern_both_ways_commit(kvern_cache *cache, const kvern_both_ways *both)
{
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    for (size_t r = 0; kvern_phase_is_both_ways(both->phase) && r < rows.count; r++)
        kvern_row_commit_ranges(&rows.rows[r], &rows.changes[r]);
}
