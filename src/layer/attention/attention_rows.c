// SPDX-License-Identifier: MIT
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/attention.h"
#include "src/math/fpenv.h"

#include <inttypes.h>
#include <string.h>

kvern_form kvern_attention_form(const kvern_planned_layer *layer, const kvern_row *row)
{
    if (layer->first_pool && !row->converted)
        return (kvern_form){&layer->first, layer->first_pool};
    return (kvern_form){&layer->geometry, layer->pool};
}

// ---- Room ----

size_t kvern_planned_pages(const kvern_planned_layer *layer, int64_t tokens)
{
    // By one position, or by a round's.
    return kvern_pages_to_hold(&layer->window, tokens, kvern_max_i64(layer->window.slack, 1));
}

size_t kvern_reserved_pages(const kvern_planned_layer *layer, bool converted, int64_t tokens)
{
    const bool first = layer->first_pool && !converted;
    const int64_t most = layer->plan.start > 0 ? layer->plan.start : 1;
    return kvern_planned_pages(layer, first ? kvern_min_i64(tokens, most) : tokens);
}

kvern_status kvern_attention_prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, size_t reserve_row,
                                     int64_t reserve_tokens)
{
    memset(rows->changes, 0, rows->count * sizeof rows->changes[0]);
    for (size_t r = 0; r < rows->count; r++) {
        kvern_row *row = &rows->rows[r];
        const int64_t count = counts ? counts[r] : 0;
        const size_t reserve =
            r == reserve_row ? kvern_reserved_pages(layer, row->converted, reserve_tokens) : 0;
        if (count == 0 && reserve == 0)
            continue;
        kvern_status status = kvern_row_prepare(kvern_attention_form(layer, row).pool, row,
                                                row->length + count, reserve, &rows->changes[r]);
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
    }
}

void kvern_attention_cancel(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++)
        kvern_row_cancel(&rows->rows[r], &rows->changes[r]);
}

void kvern_attention_keep_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               size_t row, int64_t tokens)
{
    kvern_row *kept = &rows->rows[row];
    kept->reserved =
        kvern_max_size(kept->reserved, kvern_reserved_pages(layer, kept->converted, tokens));
}

// ---- Room by a plan ----

// Positions that a row of a layer grows by before its window moves on.
static int64_t growth_of(const kvern_planned_layer *layer, const kvern_plan *plan)
{
    return kvern_max_i64(plan->chunk, kvern_min_i64(plan->round, layer->window.slack));
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

kvern_row_room kvern_attention_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row, const kvern_plan *plan)
{
    const kvern_row *r = &rows->rows[row];
    KVERN_ASSERT(plan->chunk >= 1 && plan->tokens >= 0);
    kvern_row_room room = {.pool = kvern_attention_form(layer, r).pool};
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
    return layer->first_pool && !row->converted && length >= layer->plan.start &&
           length >= row->boundary;
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
    const int64_t least = kvern_window_least_length(&layer->window, r->held);
    KVERN_ASSERT(least <= r->length);
    return r->length - least;
}

int64_t kvern_attention_min_reusable(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     size_t row)
{
    const kvern_row *r = &rows->rows[row];
    return kvern_max_i64(r->floor, r->length - kvern_attention_trimmable(layer, rows, row));
}

int64_t kvern_attention_max_append(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                   size_t row)
{
    const kvern_row *r = &rows->rows[row];
    const int64_t until = kvern_max_i64(layer->plan.start, r->boundary) - r->length;
    const bool waits = layer->first_pool && !r->converted && until > 0;
    return waits ? until : KVERN_MAX_POSITIONS - r->length;
}

void kvern_attention_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length)
{
    (void)layer;
    KVERN_ASSERT(length <= rows->rows[row].length);
    kvern_row_truncate(&rows->rows[row], length);
}

// Only the last token of a round may be the one that a conversion waits for: those behind it would
// have been stored in the planned codecs.
static kvern_status check_conversion(const kvern_planned_layer *layer, const kvern_row *row,
                                     size_t index, int64_t count)
{
    if (!layer->first_pool || row->converted)
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
static int64_t slack_limit(const kvern_window *window, const kvern_row *row)
{
    if (window->recent == KVERN_EVERY_POSITION)
        return KVERN_MAX_POSITIONS;
    if (row->held > 0)
        return kvern_window_least_length(window, row->held) <= row->length ? window->slack : 0;
    const int64_t unpassed = window->keep + window->recent + window->slack - row->length;
    return kvern_max_i64(window->slack, unpassed);
}

static kvern_status check_slack(const kvern_planned_layer *layer, const kvern_row *row,
                                size_t index, int64_t count)
{
    if (count <= slack_limit(&layer->window, row))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: a round of %" PRId64
                      " tokens, past the slack of its window, %" PRId64,
                      layer->index, index, count, layer->window.slack);
}

kvern_status kvern_attention_check_round(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count)
{
    kvern_status status = check_conversion(layer, &rows->rows[row], row, count);
    return status ? status : check_slack(layer, &rows->rows[row], row, count);
}

// As check_conversion.
static int64_t conversion_limit(const kvern_planned_layer *layer, const kvern_row *row)
{
    if (!layer->first_pool || row->converted)
        return KVERN_MAX_POSITIONS;
    return kvern_max_i64(kvern_max_i64(layer->plan.start, row->boundary) - row->length, 0);
}

int64_t kvern_attention_round_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row)
{
    const kvern_row *r = &rows->rows[row];
    return kvern_min_i64(conversion_limit(layer, r), slack_limit(&layer->window, r));
}

void kvern_attention_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *begin, const int64_t *lengths)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++) {
        KVERN_ASSERT(begin[r] <= lengths[r] && lengths[r] <= rows->rows[r].length);
        kvern_row_take_back(&rows->rows[r], &rows->undos[r], begin[r], lengths[r]);
    }
}
