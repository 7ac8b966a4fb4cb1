// SPDX-License-Identifier: MIT
// Appends: the caller's tensors become stored positions. A block, what a page has for one head of
// one stream, is always written by one thread: slots may share words there.
#include "src/attend/visibility.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/attention.h"
#include "src/layer/attention/residual.h"
#include "src/math/fpenv.h"

#include <inttypes.h>

// Numbers to store for which more threads are asked: tens of microseconds for one.
#define LEAST_PARALLEL_NUMBERS ((uint64_t)1 << 16)

// Tasks per thread, so that one that is held up does not hold up all.
#define TASKS_PER_THREAD 4

// ---- The caller's view ----

// Every index that the append will form must fit; the pointers are the caller's word.
static kvern_status check_view(size_t layer, const kvern_lane_view *t,
                               const kvern_stream_plan *stream, const int64_t *counts, size_t rows)
{
    const char *name = stream->name;
    int64_t packed = 0;
    if (!kvern_type_bytes(t->type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s: unknown element type %d", layer, name,
                          (int)t->type);
    if (t->token_stride < 0 || t->head_stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: %s: a stride is negative", layer, name);
    for (size_t r = 0; r < rows; r++) {
        if (counts[r] == 0)
            continue;
        const int64_t start = t->start ? t->start[r] : packed;
        int64_t end, a, b;
        if (!t->data)
            return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s is NULL", layer, name);
        if (start < 0)
            return kvern_fail(KVERN_ERR_RANGE, "layer %zu: %s: row %zu starts at %" PRId64, layer,
                              name, r, start);
        if (!kvern_i64_add(start, counts[r], &end) || !kvern_i64_mul(end, t->token_stride, &a) ||
            !kvern_i64_mul((int64_t)stream->heads, t->head_stride, &b) ||
            !kvern_i64_add(a, b, &a) || !kvern_i64_add(a, (int64_t)stream->dim, &a) ||
            !kvern_i64_mul(a, (int64_t)sizeof(float), &a))
            return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: %s: an index of row %zu does not fit",
                              layer, name, r);
        if (!t->start)
            packed = end;
    }
    return KVERN_OK;
}

kvern_status kvern_attention_check_tokens(const kvern_planned_layer *layer,
                                          const kvern_lane_views *views, const int64_t *counts,
                                          size_t rows)
{
    const kvern_geometry *g = &layer->geometry;
    kvern_status status = KVERN_OK;
    for (size_t s = 0; s < g->stream_count && !status; s++)
        status = check_view(layer->index, &views->lanes[g->streams[s].lane], &g->streams[s], counts,
                            rows);
    return status;
}

static const void *values_of(const kvern_lane_view *t, int64_t token, size_t head)
{
    const int64_t at = token * t->token_stride + (int64_t)head * t->head_stride;
    return t->data + (size_t)at * kvern_type_bytes(t->type);
}

// ---- Storing ----

// A store that is cut into tasks. Its items are the heads of the pages that the tokens reach, row
// by row, page by page; an item is that head of all streams.
typedef struct storing {
    const kvern_planned_layer *layer;
    const kvern_layer_rows *rows;
    const kvern_lane_views *views;
    const int64_t *counts;
    size_t items, tasks;
} storing;

static size_t pages_of(const storing *s, size_t row)
{
    const int64_t length = s->rows->rows[row].length;
    if (s->counts[row] == 0)
        return 0;
    return kvern_pages_of(length + s->counts[row]) - (size_t)length / KVERN_PAGE_POSITIONS;
}

static size_t items_of(const storing *s, size_t row)
{
    return pages_of(s, row) * s->layer->geometry.kv_heads;
}

// One head of the tokens that fall into one page of a row, which are `first` and following ones of
// its tokens in the view.
static void store_head(const storing *s, size_t row, int64_t packed, size_t page, size_t head)
{
    const kvern_row *r = &s->rows->rows[row];
    const kvern_geometry *g = kvern_attention_form(s->layer, r).geometry;
    void *data = kvern_table_page(r->table, page)->data;
    const int64_t begin = kvern_max_i64(r->length, (int64_t)page * KVERN_PAGE_POSITIONS);
    const int64_t end =
        kvern_min_i64(r->length + s->counts[row], (int64_t)(page + 1) * KVERN_PAGE_POSITIONS);
    KVERN_ASSERT(begin < end && kvern_page_is_exclusive(kvern_table_page(r->table, page)));
    for (size_t i = 0; i < g->stream_count; i++) {
        KVERN_ASSERT(g->streams[i].heads == g->kv_heads);
        const kvern_lane_view *view = &s->views->lanes[g->streams[i].lane];
        const int64_t first = (view->start ? view->start[row] : packed) - r->length;
        kvern_block_encode(&g->streams[i], kvern_page_block(&g->streams[i], data, head),
                           (size_t)begin % KVERN_PAGE_POSITIONS, (size_t)(end - begin), view->type,
                           values_of(view, first + begin, head),
                           (size_t)view->token_stride * kvern_type_bytes(view->type));
    }
}

// Items [begin, end) of a row, whose tokens are number `packed` and following ones of all.
static void store_items(const storing *s, size_t row, int64_t packed, size_t begin, size_t end)
{
    const size_t heads = s->layer->geometry.kv_heads;
    const size_t first = (size_t)s->rows->rows[row].length / KVERN_PAGE_POSITIONS;
    for (size_t item = begin; item < end; item++)
        store_head(s, row, packed, first + item / heads, item % heads);
}

static void run_task(void *arg, size_t index)
{
    const storing *s = arg;
    const size_t begin = index * s->items / s->tasks, end = (index + 1) * s->items / s->tasks;
    const kvern_fp_saved saved = kvern_fp_enter();
    int64_t packed = 0;
    for (size_t r = 0, at = 0; r < s->rows->count && at < end; r++) {
        const size_t items = items_of(s, r);
        if (at + items > begin)
            store_items(s, r, packed, begin > at ? begin - at : 0, kvern_min_size(items, end - at));
        at += items;
        packed += s->counts[r];
    }
    kvern_fp_leave(saved);
}

// Small appends stay on the calling thread.
static size_t choose_tasks(const storing *s)
{
    const kvern_executor *executor = &s->layer->context->executor;
    const kvern_geometry *g = &s->layer->geometry;
    uint64_t tokens = 0, numbers = 0;
    for (size_t r = 0; r < s->rows->count; r++)
        tokens += (uint64_t)s->counts[r];
    for (size_t i = 0; i < g->stream_count; i++)
        numbers += g->streams[i].heads * g->streams[i].dim;
    if (executor->threads == 1 || tokens * numbers < LEAST_PARALLEL_NUMBERS)
        return 1;
    return kvern_min_size(s->items, TASKS_PER_THREAD * executor->threads);
}

void kvern_attention_store(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           const kvern_lane_views *views, const int64_t *counts)
{
    const kvern_executor *executor = &layer->context->executor;
    storing s = {layer, rows, views, counts, 0, 1};
    for (size_t r = 0; r < rows->count; r++) {
        if (counts[r])
            kvern_row_extend(&rows->rows[r], rows->rows[r].length + counts[r]);
        s.items += items_of(&s, r);
    }
    s.tasks = choose_tasks(&s);
    KVERN_ASSERT(s.tasks <= kvern_max_size(s.items, 1));
    if (s.tasks > 1)
        executor->run(executor->user, s.tasks, run_task, &s);
    else
        run_task(&s, 0);
    for (size_t r = 0; r < rows->count; r++)
        rows->rows[r].length += counts[r];
    if (rows->coded)
        kvern_residual_store(layer, rows, counts);
}

// ---- Reading ----

kvern_status kvern_attention_check_donor(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count)
{
    const kvern_row *r = &rows->rows[row];
    if (count < 0 || count > r->length)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: %" PRId64 " queries at %" PRId64 " positions",
                          row, count, r->length);
    const kvern_read_row seen = {.base = r->length - count,
                                 .length = r->length,
                                 .ranges = r->ranges,
                                 .range_count = r->range_count};
    if (rows->coded && count > 0 && !kvern_layer_row_waits(layer, rows, row) &&
        kvern_coded_end(&layer->window, seen.base) < r->held)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: what position %" PRId64 " saw is not precise any more", row,
                          seen.base);
    if (!kvern_visibility_is_held(&layer->window, &seen, kvern_attention_held(layer, rows, row)))
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: the window of position %" PRId64 " is not held any more", row,
                          seen.base);
    return KVERN_OK;
}

void kvern_attention_fill_read(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *counts, kvern_read *read)
{
    read->geometry = &layer->geometry;
    read->first = &layer->first;
    read->window = layer->window;
    for (size_t r = 0; r < rows->count; r++) {
        const kvern_row *row = &rows->rows[r];
        KVERN_ASSERT(counts[r] <= row->length);
        kvern_table_retain(row->table);
        kvern_ranges_retain(row->ranges);
        read->rows[r] = (kvern_read_row){
            .table = row->table,
            .geometry = kvern_attention_form(layer, row).geometry,
            .base = row->length - counts[r],
            .length = row->length,
            .ranges = row->ranges,
            .range_count = row->range_count,
        };
        if (rows->coded && rows->coded[r].length > 0 && !kvern_layer_row_waits(layer, rows, r)) {
            read->rows[r].coded = rows->coded[r].table;
            read->rows[r].coded_least = kvern_max_i64(row->held, layer->window.front);
            kvern_table_retain(read->rows[r].coded);
        }
    }
}
