// SPDX-License-Identifier: MIT
#ifndef KVERN_SELECT_H
#define KVERN_SELECT_H

// Sparse attention (DSA): each query attends a few positions of its own choice, and no others.
//
//     int64_t *positions, *counts;                    // [QUERIES * TOP_K], [QUERIES]
//     kvern_selection selection = kvern_selection_default(positions, counts, QUERIES, TOP_K);
//     selection.queries = ...;                        // whoever selects fills in the lists
//
//     kvern_queries queries = kvern_queries_default(layer, HEADS);
//     queries.q = q, queries.out = out;
//     queries.selection = &selection;
//     kvern_read_attend(read, &queries);              // later layers too, with reads of their own
//
// A query that selects all that it sees has the result of the dense read, bit for bit.

#include <kvern/read.h>

#ifdef __cplusplus
extern "C" {
#endif

// The positions that queries attend: a list for each query, those of one row behind those of the
// row before, in the order of the call's queries. Positions count from the row's first one, as
// everywhere, and ascend strictly. The lists are the caller's; they may come from anywhere.
typedef struct kvern_selection {
    size_t size; // sizeof(kvern_selection); set by kvern_selection_default

    int64_t *positions; // positions[n * stride] is the first one of query number n
    int64_t *counts;    // positions of each query: 1 to stride
    int64_t stride;     // from one query's list to the next, in positions: room for top_k
    size_t capacity;    // queries that there is room for
    size_t queries;     // queries that have a list
} kvern_selection;

// Writes a selection over the caller's lists, none of them filled, to `size` bytes,
// sizeof(kvern_selection) of the caller.
KVERN_API void kvern_selection_init(kvern_selection *selection, size_t size, int64_t *positions,
                                    int64_t *counts, size_t capacity, int64_t stride);

// The same as a value.
static inline kvern_selection kvern_selection_default(int64_t *positions, int64_t *counts,
                                                      size_t capacity, int64_t stride)
{
    kvern_selection selection;
    kvern_selection_init(&selection, sizeof selection, positions, counts, capacity, stride);
    return selection;
}

#ifdef __cplusplus
}
#endif

#endif
