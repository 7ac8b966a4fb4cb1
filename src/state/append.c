// SPDX-License-Identifier: MIT
// Appends: check the caller's view, take all room, then store.
#include "src/state/append.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/math/fpenv.h"

#include <inttypes.h>
#include <string.h>

const kvern_sized kvern_tokens_sizes =
    KVERN_SIZED(kvern_tokens, KVERN_SIZE_TO(kvern_tokens, v_start));

void kvern_tokens_init(kvern_tokens *tokens, size_t size, const kvern_layer *layer)
{
    const kvern_tokens defaults = {
        .k_type = KVERN_F32,
        .v_type = KVERN_F32,
        .k_head_stride = (int64_t)layer->k_dim,
        .v_head_stride = (int64_t)layer->v_dim,
        .k_token_stride = (int64_t)(layer->kv_heads * layer->k_dim),
        .v_token_stride = (int64_t)(layer->kv_heads * layer->v_dim),
    };
    kvern_sized_init(&kvern_tokens_sizes, &defaults, tokens, size);
}

// What the caller's view has for one stream.
typedef struct tensor {
    const char *data;
    kvern_type type;
    int64_t token_stride, head_stride;
    const int64_t *start; // NULL: rows follow each other
} tensor;

static tensor tensor_for(const kvern_tokens *t, const kvern_stream_plan *stream)
{
    if (stream->role & KVERN_ROLE_SCORE)
        return (tensor){t->k, t->k_type, t->k_token_stride, t->k_head_stride, t->k_start};
    return (tensor){t->v, t->v_type, t->v_token_stride, t->v_head_stride, t->v_start};
}

// Every index that the append will form must fit; the pointers are the caller's word.
static kvern_status check_tensor(const tensor *t, const kvern_stream_plan *stream,
                                 const int64_t *counts, size_t rows)
{
    const char *name = stream->name;
    int64_t packed = 0;
    if (!kvern_type_bytes(t->type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: unknown element type %d", name, (int)t->type);
    if (t->token_stride < 0 || t->head_stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "%s: a stride is negative", name);
    for (size_t r = 0; r < rows; r++) {
        if (counts[r] == 0)
            continue;
        const int64_t start = t->start ? t->start[r] : packed;
        int64_t end, a, b;
        if (!t->data)
            return kvern_fail(KVERN_ERR_ARGUMENT, "%s is NULL", name);
        if (start < 0)
            return kvern_fail(KVERN_ERR_RANGE, "%s: row %zu starts at %" PRId64, name, r, start);
        if (!kvern_i64_add(start, counts[r], &end) || !kvern_i64_mul(end, t->token_stride, &a) ||
            !kvern_i64_mul((int64_t)stream->heads, t->head_stride, &b) ||
            !kvern_i64_add(a, b, &a) || !kvern_i64_add(a, (int64_t)stream->dim, &a) ||
            !kvern_i64_mul(a, (int64_t)sizeof(float), &a))
            return kvern_fail(KVERN_ERR_OVERFLOW, "%s: an index of row %zu does not fit", name, r);
        if (!t->start)
            packed = end;
    }
    return KVERN_OK;
}

static kvern_status check_tokens(const kvern_cache *cache, const kvern_tokens *tokens,
                                 const int64_t *counts)
{
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    kvern_status status = KVERN_OK;
    for (size_t s = 0; s < g->stream_count && !status; s++) {
        const tensor t = tensor_for(tokens, &g->streams[s]);
        status = check_tensor(&t, &g->streams[s], counts, cache->batch->row_count);
    }
    return status;
}

static const void *values_of(const tensor *t, int64_t token, size_t head)
{
    const int64_t at = token * t->token_stride + (int64_t)head * t->head_stride;
    return t->data + (size_t)at * kvern_type_bytes(t->type);
}

// Stores one stream of `count` tokens of a row, from token `first` of the tensor on, behind the
// row's length.
static void store_stream(const kvern_stream_plan *stream, const kvern_row *row, int64_t count,
                         const tensor *t, int64_t first)
{
    for (int64_t i = 0; i < count; i++) {
        const size_t at = (size_t)(row->length + i);
        void *page = kvern_table_page(row->table, at / KVERN_PAGE_POSITIONS)->data;
        for (size_t h = 0; h < stream->heads; h++)
            kvern_stream_encode(stream, page, h, at % KVERN_PAGE_POSITIONS, t->type,
                                values_of(t, first + i, h));
    }
}

static void store_all(kvern_cache *cache, const kvern_tokens *tokens, const int64_t *counts)
{
    int64_t packed = 0;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        kvern_row *row = &cache->rows[r];
        const kvern_geometry *g = kvern_cache_form(cache, row).geometry;
        if (counts[r])
            kvern_row_extend(row, row->length + counts[r]);
        for (size_t s = 0; s < g->stream_count; s++) {
            const tensor t = tensor_for(tokens, &g->streams[s]);
            store_stream(&g->streams[s], row, counts[r], &t, t.start ? t.start[r] : packed);
        }
        row->length += counts[r];
        packed += counts[r];
    }
    kvern_fp_leave(saved);
}

// The read's own copy of the geometry that the row has now.
static const kvern_geometry *geometry_in(const kvern_cache *cache, const kvern_row *row,
                                         const kvern_read *read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    return kvern_cache_form(cache, row).geometry == &layer->first ? &read->first : &read->geometry;
}

void kvern_cache_fill_read(const kvern_cache *cache, const int64_t *counts, kvern_read *read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    read->geometry = layer->geometry;
    read->first = layer->first;
    read->window = layer->window;
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        const kvern_row *row = &cache->rows[r];
        kvern_table_retain(row->table);
        read->rows[r] = (kvern_read_row){row->table, geometry_in(cache, row, read),
                                         row->length - counts[r], row->length};
    }
}

kvern_status kvern_cache_store(kvern_cache *cache, const kvern_tokens *tokens,
                               const int64_t *counts, bool settle, kvern_read **read)
{
    kvern_status status = check_tokens(cache, tokens, counts);
    if (status)
        return status;
    if ((status = kvern_cache_prepare(cache, counts, 0, 0)))
        return status;
    kvern_read *made = NULL;
    if (settle)
        status = kvern_cache_prepare_settling(cache, counts, true, read != NULL);
    if (!status && read) {
        status = kvern_read_create(kvern_cache_context(cache), cache->batch->reservation,
                                   cache->batch->row_count, &made);
        if (status && settle)
            kvern_cache_cancel_settling(cache);
    }
    if (status) {
        kvern_cache_cancel(cache);
        return status;
    }
    kvern_cache_commit(cache);
    store_all(cache, tokens, counts);
    if (read) {
        kvern_cache_fill_read(cache, counts, made);
        *read = made;
    }
    if (settle)
        kvern_cache_commit_settling(cache, counts);
    return KVERN_OK;
}

static kvern_status check_donor(const kvern_cache *cache, const int64_t *counts)
{
    if (!cache || (cache->batch->row_count && !counts))
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or counts is NULL");
    const kvern_window *window = &kvern_cache_planned(cache)->window;
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        const kvern_row *row = &cache->rows[r];
        if (row->handed_out && !cache->appended)
            return kvern_fail(KVERN_ERR_BUSY, "row %zu: a slot of the open step is handed out", r);
        if (counts[r] < 0 || counts[r] > row->length)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " queries at %" PRId64 " positions", r, counts[r],
                              row->length);
        const kvern_read_row seen = {.base = row->length - counts[r], .length = row->length};
        if (!kvern_visibility_is_held(window, &seen, row->held))
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: the window of position %" PRId64 " is not held any more", r,
                              row->length - counts[r]);
    }
    return KVERN_OK;
}

kvern_status kvern_cache_read_donor(const kvern_cache *cache, const int64_t *counts,
                                    kvern_read **read)
{
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    *read = NULL;
    kvern_status status = check_donor(cache, counts);
    if (!status)
        status = kvern_read_create(kvern_cache_context(cache), cache->batch->reservation,
                                   cache->batch->row_count, read);
    if (!status)
        kvern_cache_fill_read(cache, counts, *read);
    return status;
}

// In canonical arithmetic every query of a window is computed like a decode at its position, which
// is all that a known span asks for: the phases differ in what they permit.
kvern_status kvern_cache_append(kvern_cache *cache, kvern_phase phase, const kvern_tokens *tokens,
                                kvern_read **read)
{
    if (read)
        *read = NULL;
    if (!tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "tokens is NULL");
    kvern_tokens known;
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = kvern_sized_read(&kvern_tokens_sizes, tokens, &known);
    if (!status)
        status = kvern_batch_check_counts(cache->batch, phase, known.counts);
    if (!status)
        status = kvern_cache_store(cache, &known, known.counts, true, read);
    for (size_t r = 0; !status && r < cache->batch->row_count; r++)
        cache->batch->lengths[r] += known.counts[r];
    return status;
}
