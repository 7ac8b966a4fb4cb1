// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_WINDOW_H
#define KVERN_ROWS_WINDOW_H

// The window of a layer, and what its rows have to hold. A query at position p sees the row's first
// `keep` positions and the newest `recent` ones up to its own: of the positions j <= p those with
// j < keep or j > p - recent (src/attend/visibility.h). A layer that sees everything has
// KVERN_EVERY_POSITION recent ones.

#include <kvern/composition.h>
#include <stddef.h>
#include <stdint.h>

#define KVERN_EVERY_POSITION INT64_MAX

typedef struct kvern_window {
    int64_t recent; // at least 1
    int64_t keep;
    int64_t slack; // newest positions that can be trimmed after others have been dropped
} kvern_window;

// The first position, apart from the kept ones, that a row of `length` positions has to hold: after
// a trim by the slack its last position must still see all it saw.
static inline int64_t kvern_window_held(const kvern_window *window, int64_t length)
{
    if (window->recent == KVERN_EVERY_POSITION)
        return 0;
    const int64_t held = length - window->recent - window->slack;
    return held <= window->keep ? 0 : held;
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
    const size_t most = ((size_t)window->keep + page - 1) / page + (held - 2) / page + 2;
    return most < all ? most : all;
}

#endif
