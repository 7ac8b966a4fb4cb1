// SPDX-License-Identifier: MIT
// Room, steps that are abandoned, rounds that are taken back. A row's page is never changed while
// what it was may come back: tokens go to another one.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/recurrent/recurrent.h"
#include "src/rows/whole_row.h"

#include <inttypes.h>
#include <string.h>

// Pages that a row has at most: its own and that of an open step; and the one that it had before a
// round.
#define PAGES_OF_STEPS 2
#define PAGES_OF_ROUNDS 3

// ---- Room ----

static kvern_row_room room_of(const kvern_planned_layer *layer, size_t pages, bool records)
{
    return (kvern_row_room){
        .pages = pages,
        .pool = layer->pool,
        .later = records && layer->record_pool,
        .later_pool = layer->record_pool,
        .whole = true,
    };
}

// For a row that reaches `tokens` positions, with rounds or without.
static kvern_row_room reserved_room(const kvern_planned_layer *layer, int64_t tokens, bool rounds)
{
    const bool noted = rounds && layer->plan.slack > 0 && tokens > 0;
    const size_t pages = noted ? PAGES_OF_ROUNDS : PAGES_OF_STEPS;
    return room_of(layer, tokens > 0 ? pages : 0, noted);
}

kvern_row_room kvern_recurrent_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row, const kvern_plan *plan)
{
    (void)rows, (void)row;
    return reserved_room(layer, plan->tokens, plan->round > 0);
}

void kvern_recurrent_keep_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               size_t row, int64_t tokens)
{
    kvern_row *kept = &rows->rows[row];
    const kvern_row_room room = reserved_room(layer, tokens, true);
    kept->reserved = kvern_max_size(kept->reserved, room.pages);
    kept->reserved_later = kvern_max_size(kept->reserved_later, room.later);
}

// Whether the row's page can take tokens itself: nobody else sees it, and nothing is taken back.
static bool is_changed_in_place(const kvern_layer_rows *rows, const kvern_row *row)
{
    return !rows->of_state && row->length > 0 && kvern_whole_row_is_exclusive(row);
}

// For row number r to receive tokens.
static kvern_row_room appending_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     size_t r)
{
    const kvern_row *row = &rows->rows[r];
    const bool records = rows->undos && !rows->undos[r].records;
    return room_of(layer, (row->length > 0) + !is_changed_in_place(rows, row), records);
}

static kvern_status prepare_row(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t r, int64_t count, int64_t reserve_tokens)
{
    kvern_row_room room = reserved_room(layer, reserve_tokens, true);
    size_t promised = 0;
    if (count > 0) {
        const kvern_row_room appending = appending_room(layer, rows, r);
        promised = appending.pages;
        room.pages = kvern_max_size(room.pages, appending.pages);
        room.later = kvern_max_size(room.later, appending.later);
    }
    kvern_status status = kvern_row_prepare_room(&rows->rows[r], &room, &rows->changes[r]);
    rows->changes[r].promised = promised;
    return status;
}

kvern_status kvern_recurrent_prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, size_t reserve_row,
                                     int64_t reserve_tokens)
{
    memset(rows->changes, 0, rows->count * sizeof rows->changes[0]);
    for (size_t r = 0; r < rows->count; r++) {
        const int64_t count = counts ? counts[r] : 0;
        const int64_t tokens = r == reserve_row ? reserve_tokens : 0;
        if (count == 0 && tokens == 0)
            continue;
        kvern_status status = prepare_row(layer, rows, r, count, tokens);
        if (status) {
            kvern_recurrent_cancel(layer, rows);
            return status;
        }
    }
    return KVERN_OK;
}

// The first change of a round keeps the row's page for its end.
static void begin_undo(const kvern_row *row, kvern_row_undo *undo)
{
    kvern_page *page = kvern_whole_row_page(row);
    KVERN_ASSERT(!undo->tail && !undo->records && !undo->table);
    if (page)
        kvern_page_retain(page);
    undo->begun = true;
    undo->tail = page;
    undo->begin = row->length;
    undo->passing = row->passing;
}

void kvern_recurrent_commit(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++) {
        kvern_row *row = &rows->rows[r];
        kvern_row_undo *undo = rows->undos ? &rows->undos[r] : NULL;
        if (!rows->changes[r].table)
            continue;
        if (undo && !undo->begun) // as many pages as it has now
            undo->spare = kvern_min_size(row->spare, (row->length > 0) + row->room_count);
        kvern_whole_row_commit(row, &rows->changes[r]);
        if (undo && !undo->begun)
            begin_undo(row, undo);
    }
}

void kvern_recurrent_cancel(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer;
    for (size_t r = 0; r < rows->count; r++)
        kvern_row_cancel(&rows->rows[r], &rows->changes[r]);
}

// ---- Steps ----

void kvern_recurrent_turn(const kvern_layer_rows *rows, size_t row, int64_t count)
{
    kvern_row *r = &rows->rows[row];
    KVERN_ASSERT(!r->before && count > 0);
    if (!is_changed_in_place(rows, r))
        r->before = kvern_whole_row_exchange(r, kvern_row_take_room(r));
    r->length += count;
    if (rows->of_state)
        r->spare = PAGES_OF_STEPS;
}

void kvern_recurrent_close(const kvern_layer_rows *rows, size_t row)
{
    kvern_row *r = &rows->rows[row];
    if (rows->of_state)
        return; // the step may be abandoned
    kvern_page *before = r->before;
    r->before = NULL;
    r->promised = 0;
    if (before)
        kvern_row_return_page(r, before);
    kvern_row_give_back(r);
}

// The row becomes empty.
static void empty_row(kvern_row *row)
{
    KVERN_ASSERT(!row->before);
    row->spare = 0;
    kvern_row_truncate(row, 0);
}

void kvern_recurrent_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length)
{
    (void)layer;
    kvern_row *r = &rows->rows[row];
    kvern_page *before = r->before;
    r->before = NULL;
    KVERN_ASSERT(length == r->length || length == 0 || before);
    if (length == 0 && r->length > 0) {
        KVERN_ASSERT(!before);
        empty_row(r);
        return;
    }
    if (length < r->length)
        before = kvern_whole_row_exchange(r, before);
    r->length = length;
    if (before)
        kvern_row_return_page(r, before);
    kvern_row_give_back(r);
    KVERN_ASSERT(kvern_row_is_sound(r));
}

// ---- Rounds ----

int64_t kvern_recurrent_round_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row)
{
    (void)rows, (void)row;
    return layer->plan.slack;
}

kvern_status kvern_recurrent_check_round(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count)
{
    (void)rows;
    if (count <= layer->plan.slack)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: a round of %" PRId64
                      " tokens, past the slack of its recurrent state, %" PRId64,
                      layer->index, row, count, layer->plan.slack);
}

// The row is what it was before the round.
static void put_back(kvern_row *row, kvern_row_undo *undo)
{
    if (undo->tail) {
        kvern_page *page = kvern_whole_row_exchange(row, undo->tail);
        undo->tail = NULL;
        row->length = undo->begin;
        kvern_row_return_page(row, page);
    } else {
        empty_row(row);
    }
    row->spare = undo->spare;
    row->passing = undo->passing;
}

// The row becomes what its first tokens of the round make of what it was before. Where nobody else
// holds that page, it is changed in place; else it is copied to the page that the row has.
static void start_replay(kvern_row *row, kvern_row_undo *undo, int64_t length)
{
    KVERN_ASSERT(!row->before && length > undo->begin && undo->records);
    if (undo->tail && kvern_page_is_exclusive(undo->tail)) {
        kvern_page *page = kvern_whole_row_exchange(row, undo->tail);
        undo->tail = NULL;
        kvern_row_return_page(row, page);
    }
    row->before = undo->tail;
    undo->tail = NULL;
    undo->replayed = length - undo->begin;
    row->length = length;
}

// What the round needed is room again where that is reserved. A row that was empty has the page of
// one append.
static void end_undo(kvern_row *row, kvern_row_undo *undo)
{
    if (undo->begin == 0)
        row->spare = kvern_min_size(row->spare, 1);
    kvern_page *left = undo->tail ? undo->tail : row->before;
    row->before = NULL;
    if (left)
        kvern_row_return_page(row, left);
    if (undo->records)
        kvern_row_add_pages(row, NULL, undo->records);
    undo->tail = undo->records = NULL;
    kvern_row_undo_clear(undo);
    kvern_row_give_back(row);
    KVERN_ASSERT(kvern_row_is_sound(row));
}

void kvern_recurrent_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *begin, const int64_t *lengths)
{
    size_t replayed = 0;
    for (size_t r = 0; r < rows->count; r++) {
        kvern_row *row = &rows->rows[r];
        KVERN_ASSERT(begin[r] <= lengths[r] && lengths[r] <= row->length);
        if (lengths[r] == row->length)
            continue;
        if (lengths[r] == begin[r]) {
            put_back(row, &rows->undos[r]);
        } else {
            start_replay(row, &rows->undos[r], lengths[r]);
            replayed++;
        }
    }
    if (replayed)
        kvern_recurrent_replay(layer, rows);
    for (size_t r = 0; r < rows->count; r++) {
        if (rows->undos[r].begun)
            end_undo(&rows->rows[r], &rows->undos[r]);
    }
}
