// SPDX-License-Identifier: MIT
#ifndef KVERN_SELECT_H
#define KVERN_SELECT_H

// Sparse attention (DSA): each query attends a few positions of its own choice. A small indexer of
// the model says how much a query wants a position; the best top_k of those that it sees are its
// selection, and reads of this layer, or of others that share it, attend those and no others.
//
//     int64_t *positions, *counts;                    // [QUERIES * TOP_K], [QUERIES]
//     kvern_selection selection = kvern_selection_default(positions, counts, QUERIES, TOP_K);
//     kvern_index_queries index = kvern_index_queries_default(INDEX_HEADS, INDEX_DIM, TOP_K);
//     index.q = index_q, index.weights = index_weights;
//     kvern_read_select(read, &index, &selection);    // read: what the append of this layer gave
//
//     kvern_queries queries = kvern_queries_default(layer, HEADS);
//     queries.q = q, queries.out = out;
//     queries.selection = &selection;
//     kvern_read_attend(read, &queries);              // later layers too, with reads of their own
//
// A query that sees no more than top_k positions selects all of them; then its result is that of
// the dense read, bit for bit.

#include <kvern/read.h>

#ifdef __cplusplus
extern "C" {
#endif

// Index heads of a query at most.
#define KVERN_MAX_INDEX_HEADS 256

// The positions that queries attend: a list for each query, those of one row behind those of the
// row before, in the order of the call's queries. Positions count from the row's first one, as
// everywhere, and ascend strictly. The lists are the caller's; they may come from anywhere.
typedef struct kvern_selection {
    size_t size; // sizeof(kvern_selection); set by kvern_selection_default

    int64_t *positions; // positions[n * stride] is the first one of query number n
    int64_t *counts;    // positions of each query: 1 to stride
    int64_t stride;     // from one query's list to the next, in positions: room for top_k
    size_t capacity;    // queries that there is room for
    size_t queries;     // queries that have a list; set by kvern_read_select
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

// What an indexer asks of the index keys of a layer (kvern_layer.index_dim). The score of a
// position for a query is
//     sum over heads h of weights[h] * max(q[h] . key, 0)
// as docs/arithmetic.md, "Selection", states it to the bit.
//
// Row r has counts[r] queries, those of the tokens first[r], first[r] + 1, ... of the append, as in
// kvern_queries. Element d of head h of query i of row r is read at
//     q[(start[r] + i) * q_token_stride + h * q_head_stride + d]
// and the weight of that head at
//     weights[(start[r] + i) * weight_token_stride + h].
typedef struct kvern_index_queries {
    size_t size;  // sizeof(kvern_index_queries); set by kvern_index_queries_default
    size_t heads; // of the indexer: 1 to KVERN_MAX_INDEX_HEADS; they share the layer's index key

    const void *q; // with the positional encoding already applied, as the index keys had it
    kvern_type q_type;
    int64_t q_token_stride;
    int64_t q_head_stride;
    const float *weights; // factors that scale scores, such as heads^-1/2 * dim^-1/2, included
    int64_t weight_token_stride;
    const int64_t *start; // first token per row; NULL: rows follow each other (sums of counts)

    const int64_t *counts; // queries per row; NULL: as many as the append added
    const int64_t *first;  // first token per row; NULL: 0 in every row

    int64_t top_k; // positions of a query at most: at least 1
} kvern_index_queries;

// Writes a view of packed f32 queries and weights to `size` bytes, sizeof(kvern_index_queries) of
// the caller; q and weights remain to be set.
KVERN_API void kvern_index_queries_init(kvern_index_queries *queries, size_t size, size_t heads,
                                        size_t index_dim, int64_t top_k);

// The same as a value.
static inline kvern_index_queries kvern_index_queries_default(size_t heads, size_t index_dim,
                                                              int64_t top_k)
{
    kvern_index_queries queries;
    kvern_index_queries_init(&queries, sizeof queries, heads, index_dim, top_k);
    return queries;
}

// Selects, for each query, the top_k best of the positions that it sees, up to and including its
// own, by the index keys that were stored when the append ended. A larger score is better; of equal
// scores (-0 and +0 are equal) the lower position; NaN is below everything. A query that sees no
// more than top_k positions selects all of them. What a query selects depends on itself and on the
// keys that it sees: not on other queries, chunks, rows, threads or the processor.
//
// Fills in the lists of *selection and its number of queries; everything is borrowed for the call.
// On failure nothing of it changed. Errors: KVERN_ERR_UNSUPPORTED (the layer keeps no index keys),
// KVERN_ERR_ARGUMENT (a NULL pointer with work to do, an unknown type, no heads or too many),
// KVERN_ERR_RANGE (a top_k below 1 or above the selection's stride, more queries than its capacity,
// a query beyond the tokens of the append, a negative count, start or stride), KVERN_ERR_OVERFLOW,
// KVERN_ERR_MEMORY or KVERN_ERR_BUDGET (scratch beyond what was reserved: kvern_plan.index_heads).
KVERN_API KVERN_CHECK kvern_status kvern_read_select(const kvern_read *read,
                                                     const kvern_index_queries *queries,
                                                     kvern_selection *selection);

#ifdef __cplusplus
}
#endif

#endif
