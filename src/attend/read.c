// SPDX-License-Identifier: MIT
#include "src/attend/read.h"

#include "src/attend/materialized.h"
#include "src/attend/selected.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/math/fpenv.h"
#include "src/rows/block_row.h"

#include <inttypes.h>
#include <kvern/donor.h>
#include <math.h>
#include <string.h>

// ---- Life ----

static size_t read_bytes(size_t row_count)
{
    return sizeof(kvern_read) + row_count * sizeof(kvern_read_row);
}

// The per-row arrays that a kvern_queries may leave NULL, and the order of rows that an attend
// makes.
#define VIEW_ARRAYS 3

static size_t view_bytes(size_t row_count)
{
    return kvern_max_size(1, row_count) * (VIEW_ARRAYS * sizeof(int64_t) + 2 * sizeof(uint32_t));
}

kvern_status kvern_read_create(kvern_context *context, kvern_reservation *reservation,
                               size_t row_count, kvern_read **out)
{
    void *block;
    *out = NULL;
    kvern_status status =
        kvern_buffer_take(context, reservation, KVERN_OBJECT, read_bytes(row_count), &block);
    if (status)
        return status;
    kvern_read *read = block;
    memset(read, 0, read_bytes(row_count));
    kvern_context_retain(context);
    kvern_reservation_retain(reservation);
    read->context = context;
    read->reservation = reservation;
    read->row_count = row_count;
    *out = read;
    return KVERN_OK;
}

static void end(kvern_read *read, void (*give)(kvern_context *context, void *memory))
{
    if (!read)
        return;
    kvern_context *context = read->context;
    kvern_reservation *reservation = read->reservation;
    for (size_t r = 0; r < read->row_count; r++) {
        if (read->rows[r].block)
            kvern_block_row_end(read->rows[r].table);
        else
            kvern_table_release(read->rows[r].table);
        kvern_table_release(read->rows[r].coded);
        kvern_ranges_release(read->rows[r].ranges);
    }
    kvern_composition_release(read->composition);
    give(context, read->blocks);
    give(context, read);
    kvern_reservation_release(context, reservation);
    kvern_context_release(context);
}

void kvern_read_release(kvern_read *read)
{
    end(read, kvern_buffer_give);
}

void kvern_read_undo(kvern_read *read)
{
    end(read, kvern_buffer_undo);
}

// An attend has one object more, for its arrays.
kvern_status kvern_read_reserve(kvern_context *context, kvern_reservation **reservation,
                                size_t reads, size_t row_count, size_t scratch_bytes)
{
    if (scratch_bytes == SIZE_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "the scratch of an attend does not fit memory");
    const size_t count[] = {[KVERN_SCRATCH] = scratch_bytes > 0, [KVERN_OBJECT] = reads + 1};
    const size_t bytes[] = {
        [KVERN_SCRATCH] = scratch_bytes,
        [KVERN_OBJECT] = kvern_max_size(read_bytes(row_count), view_bytes(row_count)),
    };
    return kvern_reservation_extend(context, reservation, count, bytes);
}

uint64_t kvern_read_reserved_bytes(size_t reads, size_t row_count, size_t scratch_bytes)
{
    const size_t object = kvern_max_size(read_bytes(row_count), view_bytes(row_count));
    const uint64_t objects = (uint64_t)(reads + 1) * kvern_buffer_bytes(object);
    return kvern_reservation_bytes() + objects +
           (scratch_bytes ? kvern_buffer_bytes(scratch_bytes) : 0);
}

size_t kvern_read_rows(const kvern_read *read)
{
    return read->row_count;
}

int64_t kvern_read_length(const kvern_read *read, size_t row)
{
    return row < read->row_count ? read->rows[row].length : -1;
}

kvern_status kvern_read_range(const kvern_read *read, size_t row, int64_t token, int64_t *begin,
                              int64_t *end, int64_t *kept)
{
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    if (row >= read->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, read->row_count);
    const kvern_read_row *r = &read->rows[row];
    if (token < 0 || token >= r->length - r->base)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: token %" PRId64 " of %" PRId64, row, token,
                          r->length - r->base);
    const kvern_visibility seen = kvern_visibility_of(&read->window, r, token);
    if (begin)
        *begin = seen.begin;
    if (end)
        *end = seen.end;
    if (kept)
        *kept = seen.kept;
    return KVERN_OK;
}

kvern_view kvern_read_view(const kvern_read *read)
{
    return (kvern_view){
        .geometry = read->geometry,
        .query_floats = kvern_max_size(read->geometry->query_floats, read->first->query_floats),
        .window = read->window,
        .rows = read->rows,
        .row_count = read->row_count,
    };
}

// ---- Queries ----

// In the library's floating-point environment: the scale is part of every result.
static float default_scale(const kvern_layer *layer)
{
    const kvern_fp_saved saved = kvern_fp_enter();
    float dim = (float)layer->k_dim;
    kvern_fp_pin(&dim);
    float scale = 1 / sqrtf(dim);
    kvern_fp_pin(&scale);
    kvern_fp_leave(saved);
    return scale;
}

static const kvern_sized QUERIES_SIZES = KVERN_SIZED(
    kvern_queries, KVERN_SIZE_TO(kvern_queries, sinks), KVERN_SIZE_TO(kvern_queries, selection));

void kvern_queries_init(kvern_queries *queries, size_t size, const kvern_layer *layer,
                        size_t query_heads)
{
    const kvern_queries defaults = {
        .query_heads = query_heads,
        .q_type = KVERN_F32,
        .q_token_stride = (int64_t)(query_heads * layer->k_dim),
        .q_head_stride = (int64_t)layer->k_dim,
        .out_type = KVERN_F32,
        .out_token_stride = (int64_t)(query_heads * layer->v_dim),
        .out_head_stride = (int64_t)layer->v_dim,
        .scale = default_scale(layer),
    };
    kvern_sized_init(&QUERIES_SIZES, &defaults, queries, size);
}

static kvern_status check_fields(const kvern_read *read, const kvern_queries *q)
{
    if (q->query_heads == 0 || q->query_heads % read->geometry->kv_heads != 0)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%zu query heads do not divide into %zu KV heads",
                          q->query_heads, read->geometry->kv_heads);
    if (!kvern_type_bytes(q->q_type) || !kvern_type_bytes(q->out_type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "unknown element type of q or out");
    if (!isfinite(q->scale) || !isfinite(q->softcap) || q->softcap < 0)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "scale and softcap must be finite, softcap not negative");
    if (q->q_token_stride < 0 || q->q_head_stride < 0 || q->out_token_stride < 0 ||
        q->out_head_stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "a stride is negative");
    return KVERN_OK;
}

// Whether the last element of a view has an index that fits.
static bool fits(int64_t tokens, int64_t token_stride, int64_t heads, int64_t head_stride,
                 int64_t dim)
{
    int64_t a, b;
    return kvern_i64_mul(tokens, token_stride, &a) && kvern_i64_mul(heads, head_stride, &b) &&
           kvern_i64_add(a, b, &a) && kvern_i64_add(a, dim, &a) &&
           kvern_i64_mul(a, (int64_t)sizeof(float), &a);
}

// Numbers of a query vector and of a result.
typedef struct vector_dims {
    int64_t query, result;
} vector_dims;

// `weights`: NULL where latents are attended as they are stored.
static vector_dims dims_of(const kvern_read *read, const kvern_latent_weights *weights)
{
    const kvern_geometry *g = read->geometry;
    if (weights)
        return (vector_dims){(int64_t)kvern_materialized_query_dim(g, weights),
                             (int64_t)weights->value_dim};
    return (vector_dims){(int64_t)g->query_dim,
                         (int64_t)kvern_stream_for(g, KVERN_ROLE_VALUE)->dim};
}

static kvern_status check_row(const kvern_read *read, const kvern_queries *q, vector_dims dims,
                              size_t r)
{
    const int64_t appended = read->rows[r].length - read->rows[r].base;
    const int64_t count = q->counts[r], first = q->first[r];
    if (count < 0 || first < 0 || count > appended || first > appended - count)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: %" PRId64 " queries from token %" PRId64
                          " on, of an append of %" PRId64 " tokens",
                          r, count, first, appended);
    if (count == 0)
        return KVERN_OK;
    if (!q->q || !q->out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "q or out is NULL");
    int64_t q_end, out_end;
    const int64_t heads = (int64_t)q->query_heads;
    if (q->q_start[r] < 0 || q->out_start[r] < 0)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: a start is negative", r);
    if (!kvern_i64_add(q->q_start[r], count, &q_end) ||
        !kvern_i64_add(q->out_start[r], count, &out_end) ||
        !fits(q_end, q->q_token_stride, heads, q->q_head_stride, dims.query) ||
        !fits(out_end, q->out_token_stride, heads, q->out_head_stride, dims.result))
        return kvern_fail(KVERN_ERR_OVERFLOW, "row %zu: an index of q or out does not fit", r);
    return KVERN_OK;
}

// Fills in the arrays that the caller left out; `memory` has VIEW_ARRAYS arrays.
static void complete(const kvern_read *read, kvern_queries *q, int64_t *memory)
{
    const size_t rows = read->row_count;
    int64_t *counts = memory, *first = memory + rows, *packed = memory + 2 * rows;
    int64_t at = 0;
    for (size_t r = 0; r < rows; r++) {
        counts[r] = q->counts ? q->counts[r] : read->rows[r].length - read->rows[r].base;
        first[r] = q->first ? q->first[r] : 0;
        packed[r] = at;
        at = counts[r] > 0 && at <= INT64_MAX - counts[r] ? at + counts[r] : at;
    }
    q->counts = counts;
    q->first = first;
    q->q_start = q->q_start ? q->q_start : packed;
    q->out_start = q->out_start ? q->out_start : packed;
}

static kvern_status attend_selection(const kvern_read *read, const kvern_view *view,
                                     const kvern_queries *q, const kvern_latent_weights *weights)
{
    kvern_selection selection;
    if (view->window.is_split)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "a selection in a layer that keeps positions precise (residual)");
    kvern_status status = kvern_selection_read(q->selection, &selection);
    if (!status)
        status = kvern_selection_check(&selection, view, q);
    return status ? status
                  : kvern_attend_selected(read->context, read->reservation, view, q, &selection,
                                          weights);
}

static kvern_status attend_complete(const kvern_read *read, const kvern_queries *q,
                                    const kvern_latent_weights *weights, uint32_t *order)
{
    const vector_dims dims = dims_of(read, weights);
    for (size_t r = 0; r < read->row_count; r++) {
        kvern_status status = check_row(read, q, dims, r);
        if (status)
            return status;
    }
    const kvern_view view = kvern_read_view(read);
    if (q->selection)
        return attend_selection(read, &view, q, weights);
    return weights ? kvern_attend_materialized(read->context, read->reservation, &view, q, weights)
                   : kvern_attend(read->context, read->reservation, &view, q, order);
}

static kvern_status attend(const kvern_read *read, kvern_queries *q,
                           const kvern_latent_weights *weights)
{
    kvern_context *context = read->context;
    void *memory;
    kvern_status status = kvern_buffer_take(context, read->reservation, KVERN_OBJECT,
                                            view_bytes(read->row_count), &memory);
    if (status)
        return status;
    complete(read, q, memory);
    status = attend_complete(read, q, weights,
                             (uint32_t *)((int64_t *)memory + VIEW_ARRAYS * read->row_count));
    if (status)
        kvern_buffer_undo(context, memory);
    else
        kvern_buffer_give(context, memory);
    return status;
}

kvern_status kvern_read_attend(const kvern_read *read, const kvern_queries *queries)
{
    kvern_queries q;
    if (!read || !queries)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read or queries is NULL");
    kvern_status status = kvern_sized_read(&QUERIES_SIZES, queries, &q);
    if (!status)
        status = check_fields(read, &q);
    return status ? status : attend(read, &q, NULL);
}

kvern_status kvern_read_attend_materialized(const kvern_read *read, const kvern_queries *queries,
                                            const kvern_latent_weights *weights)
{
    kvern_queries q;
    kvern_latent_weights known;
    if (!read || !queries || !weights)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read, queries or weights is NULL");
    kvern_status status = kvern_sized_read(&QUERIES_SIZES, queries, &q);
    if (!status)
        status = check_fields(read, &q);
    if (!status)
        status = kvern_materialized_weights(read->geometry, weights, q.query_heads, &known);
    return status ? status : attend(read, &q, &known);
}
