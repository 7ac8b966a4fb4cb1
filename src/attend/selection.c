// SPDX-License-Identifier: MIT
#include "src/attend/selection.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"

#include <inttypes.h>

static const kvern_sized SELECTION_SIZES =
    KVERN_SIZED(kvern_selection, KVERN_SIZE_TO(kvern_selection, queries));

void kvern_selection_init(kvern_selection *selection, size_t size, int64_t *positions,
                          int64_t *counts, size_t capacity, int64_t stride)
{
    const kvern_selection defaults = {
        .positions = positions, .counts = counts, .stride = stride, .capacity = capacity};
    kvern_sized_init(&SELECTION_SIZES, &defaults, selection, size);
}

kvern_status kvern_selection_read(const kvern_selection *given, kvern_selection *known)
{
    kvern_status status = kvern_sized_read(&SELECTION_SIZES, given, known);
    if (status)
        return status;
    if (known->capacity > 0 && (!known->positions || !known->counts))
        return kvern_fail(KVERN_ERR_ARGUMENT, "the lists of a selection are NULL");
    int64_t end;
    if (known->stride < 1)
        return kvern_fail(KVERN_ERR_RANGE, "a selection's stride is %" PRId64, known->stride);
    if (known->capacity > INT64_MAX ||
        !kvern_i64_mul((int64_t)known->capacity, known->stride, &end) ||
        !kvern_i64_mul(end, (int64_t)sizeof(int64_t), &end))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu selections of %" PRId64 " positions",
                          known->capacity, known->stride);
    return KVERN_OK;
}

// One list of a query at `position`.
static kvern_status check_list(const int64_t *positions, int64_t count, int64_t stride,
                               int64_t position, const kvern_query_number *at)
{
    if (count < 1 || count > stride)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu, query %" PRId64 ": %" PRId64
                          " selected positions, not 1 to %" PRId64,
                          at->row, at->index, count, stride);
    for (int64_t i = 0, before = -1; i < count; before = positions[i++]) {
        if (positions[i] <= before || positions[i] > position)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu, query %" PRId64 ": selected position %" PRId64
                              " is %" PRId64 " behind %" PRId64 ", of a query at position %" PRId64,
                              at->row, at->index, i, positions[i], before, position);
    }
    return KVERN_OK;
}

kvern_status kvern_selection_check(const kvern_selection *selection, const kvern_view *view,
                                   const kvern_queries *queries)
{
    kvern_query_number at = {0, 0, 0};
    if (kvern_visibility_is_limited(&view->window))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "a selection of positions in a layer with a sliding window or chunks");
    for (size_t r = 0; r < view->row_count; r++) {
        if (view->rows[r].ranges || view->rows[r].block)
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "row %zu: a selection of positions where some see each other both "
                              "ways",
                              r);
    }
    for (; kvern_query_number_find(view, queries->counts, &at); kvern_query_number_step(&at)) {
        if (at.n == selection->queries || at.n == selection->capacity)
            break;
        const int64_t position = view->rows[at.row].base + queries->first[at.row] + at.index;
        kvern_status status = check_list(selection->positions + (int64_t)at.n * selection->stride,
                                         selection->counts[at.n], selection->stride, position, &at);
        if (status)
            return status;
    }
    if (at.row < view->row_count || at.n != selection->queries)
        return kvern_fail(KVERN_ERR_RANGE,
                          "a selection of %zu queries, which are not those of the call",
                          selection->queries);
    return KVERN_OK;
}
