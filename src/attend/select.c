// SPDX-License-Identifier: MIT
#include "src/attend/index_scan.h"
#include "src/attend/read.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"

#include <inttypes.h>

static const kvern_sized INDEX_QUERIES_SIZES =
    KVERN_SIZED(kvern_index_queries, KVERN_SIZE_TO(kvern_index_queries, top_k));

void kvern_index_queries_init(kvern_index_queries *queries, size_t size, size_t heads,
                              size_t index_dim, int64_t top_k)
{
    const kvern_index_queries defaults = {
        .heads = heads,
        .q_type = KVERN_F32,
        .q_token_stride = (int64_t)(heads * index_dim),
        .q_head_stride = (int64_t)index_dim,
        .weight_token_stride = (int64_t)heads,
        .top_k = top_k,
    };
    kvern_sized_init(&INDEX_QUERIES_SIZES, &defaults, queries, size);
}

// ---- Checks ----

static kvern_status check_fields(const kvern_read *read, const kvern_index_queries *q,
                                 const kvern_selection *selection)
{
    if (!kvern_stream_find(read->geometry, KVERN_ROLE_INDEX))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "a selection by index keys, of which the layer keeps none");
    if (q->heads < 1 || q->heads > KVERN_MAX_INDEX_HEADS)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%zu index heads, not 1 to %d", q->heads,
                          KVERN_MAX_INDEX_HEADS);
    if (!kvern_type_bytes(q->q_type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "unknown element type of q");
    if (q->top_k < 1 || q->top_k > selection->stride)
        return kvern_fail(KVERN_ERR_RANGE, "top_k is %" PRId64 ", not 1 to the stride %" PRId64,
                          q->top_k, selection->stride);
    if (q->q_token_stride < 0 || q->q_head_stride < 0 || q->weight_token_stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "a stride is negative");
    return KVERN_OK;
}

// Whether the last element of q and of the weights has an index that fits.
static bool fits(const kvern_index_queries *q, int64_t tokens, int64_t dim)
{
    int64_t a, b;
    const int64_t heads = (int64_t)q->heads;
    return kvern_i64_mul(tokens, q->q_token_stride, &a) &&
           kvern_i64_mul(heads, q->q_head_stride, &b) && kvern_i64_add(a, b, &a) &&
           kvern_i64_add(a, dim, &a) && kvern_i64_mul(a, (int64_t)sizeof(float), &a) &&
           kvern_i64_mul(tokens, q->weight_token_stride, &a) && kvern_i64_add(a, heads, &a) &&
           kvern_i64_mul(a, (int64_t)sizeof(float), &a);
}

static kvern_status check_row(const kvern_read *read, const kvern_index_queries *q, size_t r)
{
    const int64_t appended = read->rows[r].length - read->rows[r].base;
    const int64_t count = q->counts[r], first = q->first[r];
    int64_t end;
    if (count < 0 || first < 0 || count > appended || first > appended - count)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: %" PRId64 " index queries from token %" PRId64
                          " on, of an append of %" PRId64 " tokens",
                          r, count, first, appended);
    if (count == 0)
        return KVERN_OK;
    if (!q->q || !q->weights)
        return kvern_fail(KVERN_ERR_ARGUMENT, "q or weights is NULL");
    if (q->start[r] < 0)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: a start is negative", r);
    if (!kvern_i64_add(q->start[r], count, &end) ||
        !fits(q, end, (int64_t)kvern_stream_for(read->geometry, KVERN_ROLE_INDEX)->dim))
        return kvern_fail(KVERN_ERR_OVERFLOW, "row %zu: an index of q or weights does not fit", r);
    return KVERN_OK;
}

static kvern_status check_rows(const kvern_read *read, const kvern_index_queries *q,
                               const kvern_selection *selection, size_t *queries)
{
    *queries = 0;
    for (size_t r = 0; r < read->row_count; r++) {
        kvern_status status = check_row(read, q, r);
        if (status)
            return status;
        *queries += (size_t)q->counts[r];
    }
    if (*queries > selection->capacity)
        return kvern_fail(KVERN_ERR_RANGE, "%zu queries, of which the selection has room for %zu",
                          *queries, selection->capacity);
    return KVERN_OK;
}

// ---- The call ----

// Arrays per row that the caller may leave out.
#define ROW_ARRAYS 3

static void complete(const kvern_read *read, kvern_index_queries *q, int64_t *memory)
{
    const size_t rows = read->row_count;
    int64_t *counts = memory, *first = memory + rows, *packed = memory + 2 * rows, at = 0;
    for (size_t r = 0; r < rows; r++) {
        counts[r] = q->counts ? q->counts[r] : read->rows[r].length - read->rows[r].base;
        first[r] = q->first ? q->first[r] : 0;
        packed[r] = at;
        at = counts[r] > 0 && at <= INT64_MAX - counts[r] ? at + counts[r] : at;
    }
    q->counts = counts;
    q->first = first;
    q->start = q->start ? q->start : packed;
}

static kvern_status select_complete(const kvern_read *read, const kvern_index_queries *q,
                                    const kvern_selection *selection, size_t *queries)
{
    const kvern_view view = kvern_read_view(read);
    kvern_status status = check_rows(read, q, selection, queries);
    return status ? status
                  : kvern_index_scan(read->context, read->reservation, &view, q, selection);
}

kvern_status kvern_read_select(const kvern_read *read, const kvern_index_queries *queries,
                               kvern_selection *selection)
{
    kvern_index_queries q;
    kvern_selection lists;
    void *memory;
    size_t count;
    if (!read || !queries || !selection)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read, queries or selection is NULL");
    kvern_status status = kvern_sized_read(&INDEX_QUERIES_SIZES, queries, &q);
    if (!status)
        status = kvern_selection_read(selection, &lists);
    if (!status)
        status = check_fields(read, &q, &lists);
    if (status)
        return status;
    const size_t bytes = kvern_max_size(1, read->row_count) * ROW_ARRAYS * sizeof(int64_t);
    if ((status =
             kvern_buffer_take(read->context, read->reservation, KVERN_OBJECT, bytes, &memory)))
        return status;
    complete(read, &q, memory);
    status = select_complete(read, &q, &lists, &count);
    if (!status)
        selection->queries = count;
    if (status)
        kvern_buffer_undo(read->context, memory);
    else
        kvern_buffer_give(read->context, memory);
    return status;
}
