// SPDX-License-Identifier: MIT
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/attention.h"
#include "src/layer/attention/residual.h"
#include "src/math/fpenv.h"

#include <inttypes.h>
#include <string.h>

kvern_form kvern_attention_form(const kvern_planned_layer *layer, const kvern_row *row)
{
    if (layer->first_pool && !row->converted)
        return (kvern_form){&layer->first, layer->first_pool};
    return (kvern_form){&layer->geometry, layer->pool};
}

kvern_formed_page kvern_attention_page(const kvern_planned_layer *layer,
                                       const kvern_layer_rows *rows, size_t row, int64_t position)
{
    const kvern_row *r = &rows->rows[row];
    const int64_t front = layer->window.front;
    KVERN_ASSERT(position >= 0 && position < r->length);
    if (rows->coded && position >= front && position < r->held) {
        const size_t at = (size_t)(position - front) / KVERN_PAGE_POSITIONS;
        return (kvern_formed_page){&layer->geometry,
                                   kvern_table_page(rows->coded[row].table, at)->data};
    }
    return (kvern_formed_page){
        kvern_attention_form(layer, r).geometry,
        kvern_table_page(r->table, (size_t)position / KVERN_PAGE_POSITIONS)->data};
}

int64_t kvern_attention_held(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                             size_t row)
{
    if (!rows->coded)
        return rows->rows[row].held;
    const int64_t held = rows->coded[row].held;
    return held ? kvern_window_whole(&layer->window, held + layer->window.front) : 0;
}

// ---- Room ----

size_t kvern_planned_pages(const kvern_planned_layer *layer, int64_t tokens)
{
    // By one position, or by a round's.
    return kvern_pages_to_hold(&layer->window, tokens, kvern_max_i64(layer->window.slack, 1));
}

size_t kvern_reserved_pages(const kvern_planned_layer *layer, bool waits, int64_t tokens)
{
    const int64_t most = layer->plan.start > 0 ? layer->plan.start : 1;
    const int64_t before = waits ? kvern_min_i64(tokens, most) : 0;
    if (layer->window.is_split)
        return kvern_max_size(
            kvern_pages_of(before),
            kvern_residual_precise_pages(layer, tokens, kvern_max_i64(layer->window.slack, 1)));
    return kvern_planned_pages(layer, waits ? before : tokens);
}

// The same of a coded row (residual.h), for all of its way.
static size_t coded_pages(const kvern_planned_layer *layer, int64_t tokens)
{
    return kvern_residual_coded_pages(layer, tokens, kvern_max_i64(layer->window.slack, 1));
}

// All that can fail for one row.
static kvern_status prepare_row(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t row, int64_t count, int64_t reserve_tokens)
{
    kvern_row *r = &rows->rows[row];
    const bool waits = kvern_layer_row_waits(layer, rows, row);
    const size_t reserve = reserve_tokens ? kvern_reserved_pages(layer, waits, reserve_tokens) : 0;
    if (count == 0 && reserve == 0)
        return KVERN_OK;
    kvern_status status = kvern_row_prepare(kvern_attention_form(layer, r).pool, r,
                                            r->length + count, reserve, &rows->changes[row]);
    if (status || !rows->coded)
        return status;
    const size_t coded = reserve ? coded_pages(layer, reserve_tokens) : 0;
    return kvern_residual_prepare(layer, rows, row, count, coded);
}

kvern_status kvern_attention_prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, size_t reserve_row,
                                     int64_t reserve_tokens)
{
    kvern_layer_rows_clear_changes(rows);
    for (size_t r = 0; r < rows->count; r++) {
        kvern_status status = prepare_row(layer, rows, r, counts ? counts[r] : 0,
                                          r == reserve_row ? reserve_tokens : 0);
        if (status) {
            kvern_attention_cancel(layer, rows);
            return status;
        }
    }
    return KVERN_OK;
}

void kvern_attention_commit(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++) {
        if (rows->changes[r].table)
            kvern_row_commit(&rows->rows[r], &rows->changes[r],
                             rows->undos ? &rows->undos[r] : NULL);
        if (rows->coded && rows->coded_changes[r].table)
            kvern_row_commit(&rows->coded[r], &rows->coded_changes[r],
                             rows->coded_undos ? &rows->coded_undos[r] : NULL);
    }
}

void kvern_attention_cancel(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++) {
        kvern_row_cancel(&rows->rows[r], &rows->changes[r]);
        if (rows->coded)
            kvern_row_cancel(&rows->coded[r], &rows->coded_changes[r]);
    }
}

void kvern_attention_keep_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               size_t row, int64_t tokens)
{
    kvern_row *kept = &rows->rows[row];
    const bool waits = kvern_layer_row_waits(layer, rows, row);
    kept->reserved = kvern_max_size(kept->reserved, kvern_reserved_pages(layer, waits, tokens));
    if (rows->coded)
        rows->coded[row].reserved =
            kvern_max_size(rows->coded[row].reserved, coded_pages(layer, tokens));
}

// ---- Room by a plan ----

// Positions that a row of a layer grows by before its window moves on.
static int64_t growth_of(const kvern_planned_layer *layer, const kvern_plan *plan)
{
    const bool is_limited = layer->window.recent != KVERN_EVERY_POSITION;
    return kvern_max_i64(plan->chunk, is_limited ? kvern_min_i64(plan->round, layer->window.slack)
                                                 : plan->round);
}

// Pages of a row that reaches `tokens` positions.
static size_t pages_at(const kvern_planned_layer *layer, const kvern_plan *plan, int64_t tokens)
{
    return kvern_pages_to_hold(&layer->window, tokens, growth_of(layer, plan));
}

// Positions that a row can reach before it is converted: the append that reaches the start is still
// stored in the first form.
static int64_t most_unconverted(const kvern_planned_layer *layer, const kvern_plan *plan,
                                int64_t boundary)
{
    const int64_t start = kvern_max_i64(layer->plan.start, 1);
    return kvern_min_i64(plan->tokens, kvern_max_i64(start - 1 + plan->chunk, boundary));
}

// Of a row and its coded one, for which `later` is.
static kvern_row_room split_room(const kvern_planned_layer *layer, bool waits, int64_t boundary,
                                 const kvern_plan *plan)
{
    const int64_t growth = growth_of(layer, plan);
    const int64_t before = waits ? most_unconverted(layer, plan, boundary) : 0;
    const int64_t coded = kvern_coded_end(&layer->window, before - 1) - layer->window.front;
    return (kvern_row_room){
        .pool = layer->first_pool,
        .pages = kvern_max_size(kvern_pages_of(before),
                                kvern_residual_precise_pages(layer, plan->tokens, growth)),
        .later_pool = layer->pool,
        .later = kvern_max_size(kvern_pages_of(coded),
                                kvern_residual_coded_pages(layer, plan->tokens, growth)),
    };
}

kvern_row_room kvern_attention_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row, const kvern_plan *plan)
{
    const kvern_row *r = &rows->rows[row];
    KVERN_ASSERT(plan->chunk >= 1 && plan->tokens >= 0);
    kvern_row_room room = {.pool = kvern_attention_form(layer, r).pool};
    if (layer->window.is_split)
        return split_room(layer, kvern_layer_row_waits(layer, rows, row), r->boundary, plan);
    if (room.pool == layer->pool) {
        room.pages = pages_at(layer, plan, plan->tokens);
    } else {
        room.pages = pages_at(layer, plan, most_unconverted(layer, plan, r->boundary));
        room.later_pool = layer->pool;
        if (plan->tokens >= kvern_max_i64(layer->plan.start, 1))
            room.later = pages_at(layer, plan, plan->tokens);
    }
    return room;
}

// ---- Settling ----

bool kvern_attention_is_due(const kvern_planned_layer *layer, const kvern_row *row, int64_t length)
{
    return layer->first_pool && !layer->window.is_split && !row->converted &&
           length >= layer->plan.start && length >= row->boundary;
}

kvern_status kvern_attention_prepare_settling(const kvern_planned_layer *layer,
                                              const kvern_layer_rows *rows, const int64_t *counts,
                                              bool pending, bool shared, size_t *conversions)
{
    memset(rows->conversions, 0, rows->count * sizeof rows->conversions[0]);
    for (size_t r = 0; r < rows->count; r++) {
        const kvern_row *row = &rows->rows[r];
        const int64_t length = row->length + (pending ? counts[r] : 0);
        if (counts[r] == 0 || !kvern_attention_is_due(layer, row, length))
            continue;
        const kvern_table *table = pending ? rows->changes[r].table : row->table;
        KVERN_ASSERT(table); // an append has been prepared before its settling is
        kvern_status status = kvern_conversion_prepare(
            layer->pool, row, kvern_table_used(table, length), shared, &rows->conversions[r]);
        if (status) {
            kvern_attention_cancel_settling(layer, rows);
            return status;
        }
        ++*conversions;
    }
    return KVERN_OK;
}

void kvern_attention_convert(const kvern_planned_layer *layer, kvern_row *row,
                             kvern_conversion *conversion)
{
    KVERN_ASSERT(layer->first_pool && !row->converted);
    const kvern_fp_saved saved = kvern_fp_enter();
    row->floor = layer->plan.start > 0 ? row->length : 0;
    kvern_conversion_commit(&layer->first, &layer->geometry, row, conversion);
    kvern_fp_leave(saved);
    KVERN_ASSERT(row->converted);
}

void kvern_attention_settle(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            size_t row)
{
    kvern_row *r = &rows->rows[row];
    KVERN_ASSERT(row < rows->count);
    if (rows->coded) {
        kvern_residual_settle(layer, rows, row);
        return;
    }
    if (rows->conversions[row].pool)
        kvern_attention_convert(layer, r, &rows->conversions[row]);
    kvern_row_settle(r, layer->window.keep, kvern_window_held(&layer->window, r->length));
}

void kvern_attention_cancel_settling(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++)
        kvern_conversion_cancel(&rows->conversions[r]);
}

// ---- Going back ----

int64_t kvern_attention_trimmable(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                  size_t row)
{
    const kvern_row *r = &rows->rows[row];
    const int64_t held = kvern_attention_held(layer, rows, row);
    int64_t least = kvern_window_least_length(&layer->window, held);
    if (rows->coded)
        least = kvern_max_i64(least, r->held);
    const kvern_range *cut = kvern_ranges_cut(r->ranges, r->range_count, least);
    KVERN_ASSERT(least <= r->length && (!cut || cut->end <= r->length));
    return r->length - (cut ? cut->end : least);
}

int64_t kvern_attention_min_reusable(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     size_t row)
{
    const kvern_row *r = &rows->rows[row];
    const int64_t least = r->length - kvern_attention_trimmable(layer, rows, row);
    const int64_t exact = rows->coded ? kvern_residual_least_exact(layer, r) : 0;
    return kvern_max_i64(r->floor, kvern_max_i64(exact, least));
}

int64_t kvern_attention_max_append(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                   size_t row)
{
    const kvern_row *r = &rows->rows[row];
    const int64_t until = kvern_max_i64(layer->plan.start, r->boundary) - r->length;
    const bool waits = kvern_layer_row_waits(layer, rows, row) && until > 0;
    return waits ? until : KVERN_MAX_POSITIONS - r->length;
}

void kvern_attention_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length)
{
    KVERN_ASSERT(length <= rows->rows[row].length);
    kvern_row_truncate(&rows->rows[row], length);
    if (rows->coded)
        kvern_residual_truncate(layer, rows, row);
}

// Only the last token of a round may be the one that a conversion waits for: those behind it would
// have been stored in the planned codecs.
static kvern_status check_conversion(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     size_t index, int64_t count)
{
    const kvern_row *row = &rows->rows[index];
    if (!kvern_layer_row_waits(layer, rows, index))
        return KVERN_OK;
    const int64_t due = kvern_max_i64(layer->plan.start, row->boundary) - row->length;
    if (count <= due)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: a round of %" PRId64 " tokens, but after %" PRId64
                      " the row is to be converted",
                      layer->index, index, count, kvern_max_i64(due, 0));
}

// As many tokens as could be trimmed after an append of them. A window that has not passed anything
// yet may also stay like that.
static int64_t slack_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row)
{
    const kvern_window *window = &layer->window;
    const int64_t held = kvern_attention_held(layer, rows, row), length = rows->rows[row].length;
    if (window->recent == KVERN_EVERY_POSITION)
        return KVERN_MAX_POSITIONS;
    if (held > 0)
        return kvern_window_least_length(window, held) <= length ? window->slack : 0;
    const int64_t unpassed = window->keep + window->recent + window->slack - length;
    return kvern_max_i64(window->slack, unpassed);
}

static kvern_status check_slack(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t index, int64_t count)
{
    if (count <= slack_limit(layer, rows, index))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: a round of %" PRId64
                      " tokens, past the slack of its window, %" PRId64,
                      layer->index, index, count, layer->window.slack);
}

kvern_status kvern_attention_check_round(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count)
{
    kvern_status status = check_conversion(layer, rows, row, count);
    return status ? status : check_slack(layer, rows, row, count);
}

// As check_conversion.
static int64_t conversion_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t index)
{
    const kvern_row *row = &rows->rows[index];
    if (!kvern_layer_row_waits(layer, rows, index))
        return KVERN_MAX_POSITIONS;
    return kvern_max_i64(kvern_max_i64(layer->plan.start, row->boundary) - row->length, 0);
}

int64_t kvern_attention_round_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row)
{
    return kvern_min_i64(conversion_limit(layer, rows, row), slack_limit(layer, rows, row));
}

void kvern_attention_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *begin, const int64_t *lengths)
{
    for (size_t r = 0; r < rows->count; r++) {
        KVERN_ASSERT(begin[r] <= lengths[r] && lengths[r] <= rows->rows[r].length);
        kvern_row_take_back(&rows->rows[r], &rows->undos[r], begin[r], lengths[r]);
        if (rows->coded)
            kvern_residual_take_back(layer, rows, r, begin[r]);
    }
}
