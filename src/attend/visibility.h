// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_VISIBILITY_H
#define KVERN_ATTEND_VISIBILITY_H

// Which positions the queries of a read see: the masks of attention, computed from positions. This
// is the only place that knows the rule of a layer. All else asks for the visibility of a query and
// then works with that, whatever the rule is.
//
// Every rule has one form: a query sees the row's first `kept` positions, and those from `begin` to
// below `end`. Within a row neither `begin` nor `end` falls from one query to the next, so the
// queries that see a stretch of positions are neighbours. Ranges of positions that see each other
// both ways (src/rows/ranges.h) keep to that. Flagged positions do not: their queries see the
// flagged positions of the row besides, wherever these are.
//
// Where a layer keeps positions precise (src/rows/window.h), a row is read in two passes: first
// the stretch of whole blocks that its query reads in the planned codecs, then all others. The
// stretch does not move back either.

#include "src/base/assert.h"
#include "src/base/size.h"
#include "src/rows/geometry.h"
#include "src/rows/ranges.h"
#include "src/rows/row.h"
#include "src/rows/window.h"

// Positions of a block and of a span (docs/arithmetic.md, steps 4 and 5).
#define KVERN_BLOCK_POSITIONS 64
#define KVERN_SPAN_POSITIONS 1024

// The two passes over a row. Where everything has one form, the second is all.
typedef enum kvern_pass { KVERN_PASS_CODED, KVERN_PASS_REST } kvern_pass;
#define KVERN_PASSES 2

// One row as a read sees it.
typedef struct kvern_read_row {
    kvern_table *table;             // NULL when the row is empty
    const kvern_geometry *geometry; // of its pages
    int64_t base;                   // position of the first query: of the append's first token
    int64_t length;                 // positions stored when the append ended
    kvern_table *coded;             // what is stored in the planned codecs from the window's front
                                    // on, where `geometry` is what is precise; or NULL
    int64_t coded_least;            // the end of what is there in no other form
    kvern_ranges *ranges;           // that see each other both ways; NULL: none
    size_t range_count;             // of them
    bool block; // its queries see each other, and of the rest what the first of them does
} kvern_read_row;

// What a pass over a row finds of the block with that number.
static inline kvern_page *kvern_read_page(const kvern_window *window, const kvern_read_row *row,
                                          kvern_pass pass, size_t block)
{
    if (pass == KVERN_PASS_REST)
        return kvern_table_page(row->table, block);
    return kvern_table_page(row->coded, block - (size_t)window->front / KVERN_BLOCK_POSITIONS);
}

// What one query sees, or what several of them see together.
typedef struct kvern_visibility {
    int64_t kept;                   // [0, kept)
    int64_t begin, end;             // [begin, end)
    int64_t coded_begin, coded_end; // of these, what the first pass reads
    const kvern_ranges *flags;      // and the positions that are flagged there; NULL: none
} kvern_visibility;

// The end of what a query at `position` reads in the planned codecs.
static inline int64_t kvern_coded_end_of(const kvern_window *window, const kvern_read_row *row,
                                         int64_t position)
{
    if (!row->coded)
        return window->front;
    return kvern_max_i64(kvern_coded_end(window, position), row->coded_least);
}

// Adds what the query at `position` sees behind itself and, with that, in front of its window.
void kvern_visibility_widen(kvern_visibility *v, const kvern_window *window,
                            const kvern_read_row *row, int64_t position);

// What query number `query` of the row sees: of the positions up to its own, the kept and the
// recent ones; and those that it sees both ways.
static inline kvern_visibility kvern_visibility_of(const kvern_window *window,
                                                   const kvern_read_row *row, int64_t query)
{
    const int64_t position = row->base + query, end = position + 1;
    KVERN_ASSERT(query >= 0 && position < row->length);
    kvern_visibility v = {
        .kept = kvern_min_i64(window->keep, end),
        .begin = kvern_window_begin(window, position),
        .end = end,
        .coded_begin = window->front,
        .coded_end = kvern_coded_end_of(window, row, position),
    };
    if (row->ranges || row->block)
        kvern_visibility_widen(&v, window, row, position);
    return v;
}

// Whether positions of the row are flagged, so that which queries see a stretch of positions may be
// no neighbours.
static inline bool kvern_visibility_has_flags(const kvern_read_row *row)
{
    return row->ranges && row->ranges->flag_words > 0;
}

// What queries [first, first + count) of the row see together; count > 0. Where positions are
// flagged: the stretch that it lies in.
static inline kvern_visibility kvern_visibility_of_some(const kvern_window *window,
                                                        const kvern_read_row *row, int64_t first,
                                                        int64_t count)
{
    const kvern_visibility a = kvern_visibility_of(window, row, first);
    const kvern_visibility b = kvern_visibility_of(window, row, first + count - 1);
    kvern_visibility all = {
        .kept = b.kept,
        .begin = a.begin,
        .end = b.end,
        .coded_begin = a.coded_begin,
        .coded_end = b.coded_end,
    };
    KVERN_ASSERT(a.kept <= b.kept && a.begin <= b.begin && a.end <= b.end);
    KVERN_ASSERT(a.coded_end <= b.coded_end);
    if (kvern_visibility_has_flags(row)) {
        const kvern_range *flagged = &row->ranges->list[0];
        const int64_t at = row->base + first;
        if (at >= flagged->end || at + count <= flagged->begin)
            return all;
        all.begin = kvern_min_i64(all.begin, flagged->begin);
        all.end = kvern_max_i64(all.end, flagged->end);
    }
    return all;
}

static inline bool kvern_visibility_equal(const kvern_visibility *a, const kvern_visibility *b)
{
    return a->kept == b->kept && a->begin == b->begin && a->end == b->end && a->flags == b->flags;
}

// Whether one of the positions [at, at + count) is seen; both are multiples of a block's.
static inline bool kvern_sees(const kvern_visibility *v, int64_t at, int64_t count)
{
    return at < v->kept || (at < v->end && v->begin < at + count) ||
           (v->flags && kvern_ranges_flag_any(v->flags, at, count));
}

// Whether one of the positions [from, to) is seen, if there are any.
static inline bool kvern_sees_between(const kvern_visibility *v, int64_t from, int64_t to)
{
    return from < to && kvern_sees(v, from, to - from);
}

// Whether one of the positions [at, at + count) is seen in a pass.
static inline bool kvern_sees_in(const kvern_visibility *v, kvern_pass pass, int64_t at,
                                 int64_t count)
{
    const int64_t end = at + count;
    if (pass == KVERN_PASS_CODED)
        return kvern_sees_between(v, kvern_max_i64(at, v->coded_begin),
                                  kvern_min_i64(end, v->coded_end));
    if (v->coded_begin == v->coded_end)
        return kvern_sees_between(v, at, end);
    return kvern_sees_between(v, at, kvern_min_i64(end, v->coded_begin)) ||
           kvern_sees_between(v, kvern_max_i64(at, v->coded_end), end);
}

// Whether nothing in front of `at` is seen in a pass, and nothing at all in those before it.
static inline bool kvern_sees_nothing_before(const kvern_visibility *v, kvern_pass pass, int64_t at)
{
    if (pass == KVERN_PASS_REST && kvern_sees_in(v, KVERN_PASS_CODED, 0, v->end))
        return false;
    return !kvern_sees_in(v, pass, 0, at);
}

// What several queries see together in a pass, or a little more: `v` is what they see together,
// with the largest coded_end, and `least` the smallest.
kvern_visibility kvern_visibility_in(const kvern_visibility *v, kvern_pass pass, int64_t least);

// A bit for each slot of a block below slot `count`.
static inline uint64_t kvern_slots_below(int64_t count)
{
    return count <= 0                       ? 0
           : count >= KVERN_BLOCK_POSITIONS ? UINT64_MAX
                                            : (UINT64_C(1) << count) - 1;
}

// A bit for each slot that is seen of the block at position `at`.
static inline uint64_t kvern_visible_slots(const kvern_visibility *v, int64_t at)
{
    const uint64_t hidden = kvern_slots_below(v->begin - at) & ~kvern_slots_below(v->kept - at);
    const uint64_t slots = kvern_slots_below(v->end - at) & ~hidden;
    return v->flags ? slots | kvern_ranges_flags_at(v->flags, at) : slots;
}

// The first block at or behind the block `at` of which something may be seen.
static inline int64_t kvern_next_block(const kvern_visibility *v, int64_t at)
{
    const int64_t first = v->begin - v->begin % KVERN_BLOCK_POSITIONS;
    return at < v->kept || at >= first ? at : first;
}

// The spans of which something may be seen are numbered without gaps: first those of kept positions
// that lie in front of the span of `begin`, then that one and all behind it.
static inline size_t kvern_kept_spans(const kvern_visibility *v)
{
    const int64_t kept = (v->kept + KVERN_SPAN_POSITIONS - 1) / KVERN_SPAN_POSITIONS;
    return (size_t)kvern_min_i64(kept, v->begin / KVERN_SPAN_POSITIONS);
}

static inline size_t kvern_visible_spans(const kvern_visibility *v)
{
    const int64_t end = (v->end + KVERN_SPAN_POSITIONS - 1) / KVERN_SPAN_POSITIONS;
    return kvern_kept_spans(v) + (size_t)(end - v->begin / KVERN_SPAN_POSITIONS);
}

// The first position of the span with that number.
static inline int64_t kvern_visible_span_begin(const kvern_visibility *v, size_t number)
{
    const size_t kept = kvern_kept_spans(v);
    const int64_t span = number < kept ? (int64_t)number
                                       : v->begin / KVERN_SPAN_POSITIONS + (int64_t)(number - kept);
    return span * KVERN_SPAN_POSITIONS;
}

// Whether queries of a layer may see less than all that was there before them. Then those that are
// far apart have little in common.
static inline bool kvern_visibility_is_limited(const kvern_window *window)
{
    return window->recent != KVERN_EVERY_POSITION;
}

// Whether a row that holds the kept positions and those from `held` on has all that the queries of
// `row` see.
bool kvern_visibility_is_held(const kvern_window *window, const kvern_read_row *row, int64_t held);

// Bounds for rows of up to `length` positions: of the positions that a query sees, and of the spans
// of which queries at positions less than `reach` apart see something together, in all passes.
int64_t kvern_most_visible(const kvern_window *window, int64_t length);
size_t kvern_most_visible_spans(const kvern_window *window, int64_t length, int64_t reach);

#endif
