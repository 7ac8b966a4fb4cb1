// SPDX-License-Identifier: MIT
#include "src/layer/attention/residual.h"

#include "src/base/assert.h"
#include "src/base/size.h"
#include "src/math/fpenv.h"
#include "src/rows/convert_page.h"

#include <string.h>

// ---- What follows from what ----

// Where the coded row has its last position when the row is settled.
static int64_t settled_length(const kvern_planned_layer *layer, const kvern_row *row)
{
    return kvern_max_i64(row->held - layer->window.front, 0);
}

bool kvern_residual_is_due(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row, int64_t length)
{
    return kvern_layer_row_waits(layer, rows, row) && length >= layer->plan.start &&
           length >= rows->rows[row].boundary;
}

int64_t kvern_residual_length(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length)
{
    const kvern_row *r = &rows->rows[row];
    const kvern_window *window = &layer->window;
    const bool waits = kvern_layer_row_waits(layer, rows, row);
    if (length == 0 || (waits && !kvern_residual_is_due(layer, rows, row, length)))
        return 0;
    return kvern_max_i64(settled_length(layer, r),
                         kvern_coded_end(window, length - 1) - window->front);
}

int64_t kvern_residual_least_exact(const kvern_planned_layer *layer, const kvern_row *row)
{
    return row->held ? row->held + kvern_max_i64(layer->window.residual - 1, 0) : 0;
}

int64_t kvern_residual_keep(const kvern_planned_layer *layer)
{
    return kvern_max_i64(layer->window.keep - layer->window.front, 0);
}

// ---- Room ----

// As a window over the row (src/rows/window.h).
size_t kvern_residual_precise_pages(const kvern_planned_layer *layer, int64_t tokens,
                                    int64_t growth)
{
    const kvern_window precise = {.recent = kvern_max_i64(layer->window.residual, 1),
                                  .keep = layer->window.front};
    return kvern_pages_to_hold(&precise, tokens, growth);
}

size_t kvern_residual_coded_pages(const kvern_planned_layer *layer, int64_t tokens, int64_t growth)
{
    const kvern_window *window = &layer->window;
    const size_t all = kvern_pages_of(kvern_coded_end(window, tokens - 1) - window->front);
    return kvern_min_size(all, kvern_pages_to_hold(window, tokens, growth));
}

kvern_status kvern_residual_prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row, int64_t count, size_t reserve)
{
    kvern_row *coded = &rows->coded[row];
    const int64_t length = rows->rows[row].length + count;
    const int64_t coded_length =
        count > 0 ? kvern_residual_length(layer, rows, row, length) : coded->length;
    if (coded_length == coded->length && reserve == 0)
        return KVERN_OK;
    return kvern_row_prepare(layer->pool, coded, coded_length, reserve, &rows->coded_changes[row]);
}

bool kvern_residual_is_open(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            size_t row, int64_t count)
{
    const kvern_row *coded = &rows->coded[row];
    const int64_t length = kvern_residual_length(layer, rows, row, rows->rows[row].length + count);
    return length == coded->length || kvern_row_is_open(coded, length);
}

// ---- Encoding ----

// Items are the heads of the pages that are encoded, row by row, page by page.
typedef struct encoding {
    const kvern_planned_layer *layer;
    const kvern_layer_rows *rows;
    const int64_t *counts;
    size_t items, tasks;
} encoding;

// Pages that row number `row` has to encode.
static size_t pages_of(const encoding *e, size_t row)
{
    if (e->counts[row] == 0)
        return 0;
    const int64_t length = kvern_residual_length(e->layer, e->rows, row, e->rows->rows[row].length);
    return kvern_pages_of(length - e->rows->coded[row].length);
}

// One head of page number `page` of those that the row has to encode.
static void encode_head(const encoding *e, size_t row, size_t page, size_t head)
{
    const kvern_row *coded = &e->rows->coded[row];
    const size_t at = kvern_pages_of(coded->length) + page;
    const size_t front = kvern_pages_of(e->layer->window.front);
    kvern_page *old = kvern_table_page(e->rows->rows[row].table, front + at);
    kvern_page *fresh = kvern_table_page(coded->table, at);
    KVERN_ASSERT(kvern_page_is_exclusive(fresh));
    kvern_convert_head(&e->layer->first, &e->layer->geometry, old->data, fresh->data, head);
}

static void run_task(void *arg, size_t index)
{
    const encoding *e = arg;
    const size_t begin = index * e->items / e->tasks, end = (index + 1) * e->items / e->tasks;
    const size_t heads = e->layer->geometry.kv_heads;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0, at = 0; r < e->rows->count && at < end; r++) {
        const size_t items = pages_of(e, r) * heads;
        const size_t first = begin > at ? begin - at : 0, last = kvern_min_size(items, end - at);
        for (size_t item = first; item < last; item++)
            encode_head(e, r, item / heads, item % heads);
        at += items;
    }
    kvern_fp_leave(saved);
}

void kvern_residual_store(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                          const int64_t *counts)
{
    const kvern_executor *executor = &layer->context->executor;
    encoding e = {layer, rows, counts, 0, 1};
    for (size_t r = 0; r < rows->count; r++) {
        const size_t pages = pages_of(&e, r);
        kvern_row *coded = &rows->coded[r];
        if (pages)
            kvern_row_extend(coded, coded->length + (int64_t)pages * KVERN_PAGE_POSITIONS);
        e.items += pages * layer->geometry.kv_heads;
    }
    if (e.items == 0)
        return;
    e.tasks = kvern_min_size(e.items, executor->threads);
    if (e.tasks > 1)
        executor->run(executor->user, e.tasks, run_task, &e);
    else
        run_task(&e, 0);
    for (size_t r = 0; r < rows->count; r++)
        rows->coded[r].length += (int64_t)pages_of(&e, r) * KVERN_PAGE_POSITIONS;
}

// ---- Settling, going back ----

// What the window has passed of the coded row, one page of which stays in any case.
static int64_t coded_held(const kvern_planned_layer *layer, const kvern_row *row,
                          const kvern_row *coded)
{
    const int64_t held = kvern_window_held(&layer->window, row->length) - layer->window.front;
    const int64_t most = kvern_min_i64(held, coded->length - 1);
    return most > kvern_residual_keep(layer) ? most : 0;
}

void kvern_residual_settle(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row)
{
    kvern_row *r = &rows->rows[row], *coded = &rows->coded[row];
    const int64_t front = layer->window.front;
    if (kvern_layer_row_waits(layer, rows, row)) {
        if (!kvern_residual_is_due(layer, rows, row, r->length))
            return;
        coded->converted = true;
        r->floor = layer->plan.start > 0 ? r->length : 0;
    }
    KVERN_ASSERT(coded->length == kvern_residual_length(layer, rows, row, r->length));
    kvern_row_settle(r, front, coded->length > 0 ? front + coded->length : 0);
    kvern_row_settle(coded, kvern_residual_keep(layer), coded_held(layer, r, coded));
}

void kvern_residual_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                             size_t row)
{
    kvern_row *coded = &rows->coded[row];
    const int64_t length = kvern_residual_length(layer, rows, row, rows->rows[row].length);
    kvern_row_truncate(coded, kvern_min_i64(length, coded->length));
}

void kvern_residual_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t begin)
{
    const kvern_row *r = &rows->rows[row];
    kvern_row *coded = &rows->coded[row];
    const int64_t settled = settled_length(layer, r);
    const int64_t length =
        r->length > begin ? kvern_residual_length(layer, rows, row, r->length) : settled;
    kvern_row_take_back(coded, &rows->coded_undos[row], settled,
                        kvern_min_i64(length, coded->length));
}
