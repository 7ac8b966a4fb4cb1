// SPDX-License-Identifier: MIT
#include "src/attend/visibility.h"

#include "src/base/assert.h"

_Static_assert(KVERN_BLOCK_POSITIONS == KVERN_PAGE_POSITIONS, "a block is what a page holds");
_Static_assert(KVERN_SPAN_POSITIONS % KVERN_BLOCK_POSITIONS == 0, "spans are whole blocks");

bool kvern_visibility_is_held(const kvern_window *window, const kvern_read_row *row, int64_t held)
{
    return row->base == row->length || kvern_visibility_of(window, row, 0).begin >= held;
}

int64_t kvern_most_visible(const kvern_window *window, int64_t length)
{
    KVERN_ASSERT(length >= 0 && window->recent >= 1 && window->keep >= 0);
    return length - window->keep < window->recent ? length : window->recent + window->keep;
}

size_t kvern_most_visible_spans(const kvern_window *window, int64_t length, int64_t reach)
{
    const size_t all = kvern_ceil_div((size_t)length, KVERN_SPAN_POSITIONS);
    if (window->recent >= length)
        return all;
    // What is recent lies anywhere within its first span, and kept positions may end within one.
    const int64_t recent = window->recent + reach + 2 * KVERN_SPAN_POSITIONS;
    const size_t seen = ((size_t)recent + (size_t)window->keep) / KVERN_SPAN_POSITIONS + 1;
    return kvern_min_size(all, seen);
}
