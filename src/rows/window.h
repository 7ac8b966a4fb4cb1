// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_WINDOW_H
#define KVERN_ROWS_WINDOW_H

// The window of a layer, and what its rows have to hold. A query at position p sees the row's first
// `keep` positions and the newest `recent` ones up to its own: of the positions j <= p those with
// j < keep or j > p - recent (src/attend/visibility.h). A layer that sees everything has
// KVERN_EVERY_POSITION recent ones. In a layer of chunks the window does not slide: the query sees
// the positions of its own chunk up to its own, at most `recent` = `chunk` of them, and none is
// kept.
//
// A layer may keep some of its positions precise (kvern_layer.residual): the row's first
// `front` ones and the newest `residual`. What lies between them is stored, and read, in the
// planned codecs, in whole pages. Which positions these are for a query depends on its position
// alone.

#include <kvern/composition.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVERN_EVERY_POSITION INT64_MAX

typedef struct kvern_window {
    int64_t recent; // at least 1
    int64_t keep;
    int64_t slack; // newest positions that can be trimmed after others have been dropped
    int64_t chunk; // 0: the window slides

    bool is_split;    // some are kept precise; else the two are 0
    int64_t front;    // whole pages
    int64_t residual; // at least 0
} kvern_window;

// The first position, apart from the kept ones, that a query at `position` sees.
static inline int64_t kvern_window_begin(const kvern_window *window, int64_t position)
{
    if (window->chunk)
        return position - position % window->chunk;
    return position < window->recent ? 0 : position - window->recent + 1;
}

// The first position, apart from the kept ones, that a row of `length` positions has to hold: after
// a trim by the slack its last position must still see all it saw. 0: it holds everything.
static inline int64_t kvern_window_held(const kvern_window *window, int64_t length)
{
    const int64_t last = length - window->slack - 1;
    const int64_t held = last < 0 ? 0 : kvern_window_begin(window, last);
    return held <= window->keep ? 0 : held;
}

// Of the positions that may be held first, apart from the kept ones, the least one from `held` on:
// of a chunk all is held or nothing.
static inline int64_t kvern_window_whole(const kvern_window *window, int64_t held)
{
    const int64_t rest = window->chunk ? held % window->chunk : 0;
    return rest ? held + window->chunk - rest : held;
}

// The least length of a row that holds the kept positions and those from `held` on whose last
// position finds all it saw.
static inline int64_t kvern_window_least_length(const kvern_window *window, int64_t held)
{
    if (held == 0)
        return 0;
    return window->chunk ? held + 1 : held + window->recent;
}

// In a layer that keeps some positions precise: the end of those that a query at `position` reads
// in the planned codecs, which begin at `front`. Whole pages, all of them behind its own position
// by the residual.
static inline int64_t kvern_coded_end(const kvern_window *window, int64_t position)
{
    const int64_t end = position + 1 - window->residual;
    return end <= window->front ? window->front : end - end % KVERN_PAGE_POSITIONS;
}

// Pages that a row holds at most that grows to `tokens` positions, at most `growth` of them, at
// least one, before it drops what its window has passed. What is held then lies anywhere within the
// first of its pages.
static inline size_t kvern_pages_to_hold(const kvern_window *window, int64_t tokens, int64_t growth)
{
    const size_t page = KVERN_PAGE_POSITIONS, all = ((size_t)tokens + page - 1) / page;
    if (window->recent >= tokens)
        return all;
    const size_t held = (size_t)(window->recent + window->slack + growth);
    const bool whole = window->chunk && (size_t)window->chunk % page == 0; // chunks of whole pages
    const size_t recent = whole ? (held + page - 1) / page : (held - 2) / page + 2;
    const size_t most = ((size_t)window->keep + page - 1) / page + recent;
    return most < all ? most : all;
}

#endif
