// SPDX-License-Identifier: MIT
#include "src/state/walk.h"

#include "src/state/checkpoint.h"

// One invariant.
#define HOLDS(condition, words)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return words;                                                                          \
    } while (0)

// ---- Pages ----

// A page that was converted where it lies keeps the size that it had, which is larger.

static const char *walk_room(const kvern_page *first, size_t wanted, size_t page_bytes)
{
    size_t count = 0;
    for (const kvern_page *page = first; page; page = page->next, count++) {
        HOLDS(page->references == 1, "a page of a row's room is held by somebody else");
        HOLDS(kvern_page_bytes(page) >= page_bytes,
              "a page of a row's room is too small for the row's form");
    }
    HOLDS(count == wanted, "a row's room is not as long as it says");
    return NULL;
}

static const char *walk_pages(const kvern_planned_layer *layer, const kvern_row *row)
{
    const kvern_table *table = row->table;
    const bool first = layer->first_pool && !row->converted;
    const size_t page_bytes = (first ? &layer->first : &layer->geometry)->page_bytes;
    for (size_t i = 0; table && i < table->count; i++) {
        const kvern_page *page = table->pages[i];
        HOLDS(page->references > 0, "a page of a table is held by nobody");
        HOLDS(kvern_page_bytes(page) >= page_bytes, "a page is too small for its row's form");
        HOLDS(i == 0 || page != table->pages[i - 1], "a page lies twice in a table");
    }
    if (layer->window.is_split)
        HOLDS(row->later_count == 0, "a row that is not converted has room for that");
    const size_t later_bytes =
        layer->record_pool ? layer->geometry.record_bytes : layer->geometry.page_bytes;
    const char *wrong = walk_room(row->room, row->room_count, page_bytes);
    return wrong ? wrong : walk_room(row->later, row->later_count, later_bytes);
}

// ---- Rows ----

static const char *walk_table(const kvern_row *row)
{
    const kvern_table *table = row->table;
    HOLDS(table || row->length == 0, "a row with positions has no table");
    if (!table)
        return NULL;
    HOLDS(table->references > 0, "a row's table is held by nobody");
    HOLDS(table->count <= table->capacity, "a table has more pages than room for them");
    HOLDS(table->count >= kvern_table_used(table, row->length),
          "a table has fewer pages than its row");
    HOLDS(table->gap == 0 || (table->kept + table->gap) * KVERN_PAGE_POSITIONS <= (size_t)row->held,
          "a page was dropped that the row holds");
    return NULL;
}

static const char *walk_whole(const kvern_planned_layer *layer, const kvern_row *row)
{
    const kvern_table *table = row->table;
    HOLDS(!table || table->whole == layer->geometry.whole, "a table is of another kind of rows");
    HOLDS(layer->geometry.whole || (!row->before && !row->spare),
          "a row of positions has what only whole rows have");
    HOLDS(!layer->geometry.whole || !table || (table->gap == 0 && table->count <= 1),
          "a whole row has more than its page");
    HOLDS(!row->before || row->before->references > 0, "what a row was is held by nobody");
    return NULL;
}

// Between calls: the coded row follows from the row (src/layer/attention/residual.h).
static const char *walk_coded(const kvern_planned_layer *layer, const kvern_row *row,
                              const kvern_row *coded)
{
    const int64_t settled = row->held > 0 ? row->held - layer->window.front : 0;
    HOLDS(row->held % KVERN_PAGE_POSITIONS == 0, "a page is precise in part");
    HOLDS(coded->length == settled, "a row's pages are coded that it does not do without");
    HOLDS(coded->length == 0 || coded->held < coded->length,
          "a window has passed all that is coded");
    HOLDS(coded->promised == 0, "room of a coded row is promised without a step");
    HOLDS(layer->plan.start == KVERN_NO_START || coded->converted || coded->length == 0,
          "a row is coded before its start");
    const kvern_window *window = &layer->window;
    HOLDS(coded->held == 0 || window->recent != KVERN_EVERY_POSITION,
          "a coded row without a window has dropped positions");
    HOLDS(coded->held == 0 ||
              kvern_window_least_length(
                  window, kvern_window_whole(window, coded->held + window->front)) <= row->length,
          "the last position does not find all that was coded");
    return NULL;
}

static const char *walk_ranges(const kvern_row *row)
{
    HOLDS(!row->ranges || row->ranges->references > 0, "ranges are held by nobody");
    HOLDS(!row->ranges == (row->range_count == 0), "ranges are counted that are not there");
    int64_t end = 0;
    for (size_t i = 0; i < row->range_count; i++) {
        const kvern_range *range = &row->ranges->list[i];
        HOLDS(range->begin >= end && range->end > range->begin, "ranges do not ascend");
        end = range->end;
    }
    HOLDS(end <= row->length, "a range reaches beyond the row");
    return NULL;
}

static const char *walk_window(const kvern_planned_layer *layer, const kvern_row *row)
{
    const kvern_window *window = &layer->window;
    if (window->is_split)
        return NULL;
    HOLDS(row->held >= 0 && row->held <= row->length, "held lies outside the row");
    HOLDS(row->held == 0 || window->recent != KVERN_EVERY_POSITION,
          "a row without a window has dropped positions");
    HOLDS(row->held == kvern_window_whole(window, row->held), "a chunk is held in part");
    HOLDS(kvern_window_least_length(window, row->held) <= row->length,
          "the last position does not find all it saw");
    return NULL;
}

// Between calls, no step and no round open.
static const char *walk_rest(const kvern_row *row, const kvern_row_undo *undo)
{
    HOLDS(row->promised == 0, "room is promised without a step");
    HOLDS(!row->before, "what a row was before a step outlives it");
    HOLDS(!row->slotted && !row->handed_out, "a slot is taken without a step");
    HOLDS(!undo || (!undo->begun && !undo->table && !undo->tail && !undo->records),
          "an undo outlives its round");
    return NULL;
}

static const char *walk_row(const kvern_planned_layer *layer, const kvern_row *row)
{
    HOLDS(row->length >= 0 && row->length <= KVERN_MAX_POSITIONS, "a length is out of range");
    HOLDS(row->floor >= 0, "a floor is negative");
    HOLDS(row->boundary >= 0 && row->boundary <= KVERN_MAX_POSITIONS, "a boundary is out of range");
    const char *wrong = walk_table(row);
    if (!wrong)
        wrong = walk_whole(layer, row);
    if (!wrong)
        wrong = walk_ranges(row);
    if (!wrong)
        wrong = walk_window(layer, row);
    return wrong ? wrong : walk_pages(layer, row);
}

static const char *walk_coded_pages(const kvern_planned_layer *layer, const kvern_row *coded)
{
    const kvern_table *table = coded->table;
    for (size_t i = 0; table && i < table->count; i++) {
        HOLDS(table->pages[i]->references > 0, "a coded page of a table is held by nobody");
        HOLDS(kvern_page_bytes(table->pages[i]) >= layer->geometry.page_bytes,
              "a coded page is too small");
    }
    const char *wrong = walk_table(coded);
    return wrong ? wrong : walk_room(coded->room, coded->room_count, layer->geometry.page_bytes);
}

// A row of a layer that keeps nothing.
static const char *walk_shared(const kvern_row *row)
{
    HOLDS(row->length == 0 && row->held == 0 && !row->table && !row->before,
          "a row of a shared layer holds something");
    HOLDS(row->room_count == 0 && row->later_count == 0 && row->reserved == 0 && row->spare == 0 &&
              row->promised == 0,
          "a row of a shared layer has room");
    return NULL;
}

const char *kvern_row_walk(const kvern_planned_layer *layer, const kvern_row *row,
                           const kvern_row *coded)
{
    if (kvern_layer_is_shared(layer))
        return walk_shared(row);
    const char *wrong = walk_row(layer, row);
    if (!wrong && coded)
        wrong = walk_coded_pages(layer, coded);
    return !wrong && coded ? walk_coded(layer, row, coded) : wrong;
}

// ---- Caches ----

static const char *walk_layer(const kvern_cache *cache)
{
    const kvern_batch *batch = cache->batch;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    HOLDS(cache->rows == rows.rows, "a cache looks for its rows elsewhere");
    HOLDS(!cache->appended || batch->step_open, "a layer has appended without a step");
    for (size_t r = 0; r < rows.count; r++) {
        const kvern_row *row = &rows.rows[r];
        const int64_t fresh = cache->appended ? batch->counts[r] : 0;
        const char *wrong = kvern_layer_is_shared(layer) ? walk_shared(row) : walk_row(layer, row);
        HOLDS(kvern_layer_is_shared(layer) || row->length == batch->lengths[r] + fresh,
              "a row is not as long as its batch says");
        if (!wrong && rows.coded)
            wrong = walk_coded_pages(layer, &rows.coded[r]);
        if (!wrong && !batch->step_open)
            wrong = walk_rest(row, rows.undos ? NULL : kvern_batch_undos(batch, cache->number) + r);
        if (!wrong && rows.coded && !batch->step_open && !batch->round_open)
            wrong = walk_coded(layer, row, &rows.coded[r]);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static const char *walk_batch(const kvern_batch *batch)
{
    HOLDS(batch->row_count <= batch->capacity, "a batch has more rows than room for them");
    HOLDS(batch->of_state || (!batch->step_open && !batch->round_open),
          "something is open in a cache that stands alone");
    for (size_t r = 0; r < batch->row_count; r++) {
        HOLDS(!batch->step_open || batch->counts[r] >= 0, "a step has a negative count");
        if (!batch->round_open)
            continue;
        const int64_t appended = batch->lengths[r] - batch->round_begin[r];
        HOLDS(appended >= 0 && appended <= batch->round_most[r],
              "a round has other tokens than it was begun for");
    }
    return NULL;
}

const char *kvern_caches_walk(const kvern_cache *caches)
{
    const kvern_batch *batch = caches[0].batch;
    const char *wrong = walk_batch(batch);
    uint64_t bytes = 0;
    for (size_t r = 0; r < batch->row_count && !wrong; r++)
        wrong = kvern_checkpoints_walk(caches, r, &bytes);
    if (!wrong && (bytes != batch->checkpoint_bytes || bytes > batch->checkpoint_budget))
        wrong = "checkpoints have other bytes than counted, or more than they may";
    for (size_t c = 0; c < batch->caches && !wrong; c++)
        wrong = walk_layer(&caches[c]);
    return wrong;
}

const char *kvern_state_walk(const kvern_state *state)
{
    if (state->batch.caches != state->composition->count)
        return "a batch has other layers than its state";
    return kvern_caches_walk(state->caches);
}
