// SPDX-License-Identifier: MIT
#include "src/attend/visibility.h"

#include "src/base/assert.h"

_Static_assert(KVERN_BLOCK_POSITIONS == KVERN_PAGE_POSITIONS, "a block is what a page holds");
_Static_assert(KVERN_SPAN_POSITIONS % KVERN_BLOCK_POSITIONS == 0, "spans are whole blocks");

// A block's queries all see of what is stored what the first of them does, in the form that it has.
static void widen_block(kvern_visibility *v, const kvern_window *window, const kvern_read_row *row)
{
    v->kept = kvern_min_i64(window->keep, row->length);
    v->begin = kvern_window_begin(window, row->base);
    v->end = row->length;
    v->coded_end = kvern_coded_end_of(window, row, row->base - 1);
}

void kvern_visibility_widen(kvern_visibility *v, const kvern_window *window,
                            const kvern_read_row *row, int64_t position)
{
    if (row->block) {
        widen_block(v, window, row);
        return;
    }
    const kvern_ranges *ranges = row->ranges;
    const kvern_range *range = kvern_ranges_find(ranges, row->range_count, position);
    if (!range)
        return;
    if (kvern_ranges_is_flagged(ranges, range)) {
        if (kvern_ranges_flags_at(ranges, position) >> position % 64 & 1)
            v->flags = ranges;
        return;
    }
    v->begin = kvern_min_i64(v->begin, range->begin);
    v->end = range->end;
    v->kept = kvern_min_i64(window->keep, v->end);
    KVERN_ASSERT(v->end <= row->length && position < v->end);
}

bool kvern_visibility_is_held(const kvern_window *window, const kvern_read_row *row, int64_t held)
{
    const int64_t count = row->length - row->base;
    return count == 0 || kvern_visibility_of_some(window, row, 0, count).begin >= held;
}

int64_t kvern_most_visible(const kvern_window *window, int64_t length)
{
    KVERN_ASSERT(length >= 0 && window->recent >= 1 && window->keep >= 0);
    return length - window->keep < window->recent ? length : window->recent + window->keep;
}

// A stretch ends where its pass does; what is kept in front is walked as kept, where it is needed.
kvern_visibility kvern_visibility_in(const kvern_visibility *v, kvern_pass pass, int64_t least)
{
    kvern_visibility in = *v;
    const bool is_coded = v->coded_begin < v->coded_end;
    if (pass == KVERN_PASS_CODED) {
        in.end = is_coded ? kvern_min_i64(v->end, v->coded_end) : 0;
        in.kept = v->kept > v->coded_begin ? kvern_min_i64(v->kept, in.end) : 0;
        in.begin = kvern_min_i64(kvern_max_i64(v->begin, v->coded_begin), in.end);
    } else if (is_coded) {
        if (v->begin < v->coded_begin)
            in.kept = kvern_max_i64(v->kept, kvern_min_i64(v->coded_begin, v->end));
        in.begin = kvern_min_i64(kvern_max_i64(v->begin, least), v->end);
    }
    if (in.kept == 0 && in.begin == in.end)
        in.begin = in.end = 0;
    return in;
}

size_t kvern_most_visible_spans(const kvern_window *window, int64_t length, int64_t reach)
{
    const size_t all = kvern_ceil_div((size_t)length, KVERN_SPAN_POSITIONS);
    const size_t passes = window->is_split ? KVERN_PASSES : 1;
    if (window->recent >= length)
        return passes * all;
    // What is recent lies anywhere within its first span, and kept positions may end within one.
    const int64_t recent = window->recent + reach + 2 * KVERN_SPAN_POSITIONS;
    const size_t seen = ((size_t)recent + (size_t)window->keep) / KVERN_SPAN_POSITIONS + 1;
    return passes * kvern_min_size(all, seen);
}
