// SPDX-License-Identifier: MIT
// Checkpoints: rows as they were. They share pages with their row, as a fork does; what they count
// with is what they keep for themselves when the row has gone on.
#include "src/state/checkpoint.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/state/kept_row.h"
#include "src/state/walk.h"

#include <inttypes.h>
#include <kvern/checkpoint.h>

// ---- Bytes ----

static size_t own_bytes(size_t sets)
{
    return sizeof(kvern_checkpoint) + sets * sizeof(kvern_row);
}

// Whether the row goes on in all full pages that it has now: they cost a checkpoint nothing.
// `planned`: they are in the planned form.
static bool stays_in_common(const kvern_planned_layer *layer, bool planned)
{
    return !layer->geometry.whole && layer->window.recent == KVERN_EVERY_POSITION && planned;
}

// Of a row in one layer: pages and its table.
static uint64_t row_bytes(const kvern_planned_layer *layer, const kvern_row *row, bool planned)
{
    if (!row->table)
        return 0;
    const uint64_t table = kvern_table_bytes(row->table->capacity);
    if (!stays_in_common(layer, planned))
        return table + kvern_row_bytes(row);
    return row->length % KVERN_PAGE_POSITIONS ? table + layer->geometry.page_bytes : table;
}

static uint64_t layer_bytes(const kvern_cache *cache, const kvern_checkpoint *checkpoint)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_row *row = &checkpoint->sets[cache->number];
    const uint64_t bytes = row_bytes(layer, row, !layer->first_pool || row->converted);
    if (!cache->coded_set)
        return bytes;
    return bytes + row_bytes(layer, &checkpoint->sets[cache->coded_set], true);
}

static uint64_t count_bytes(const kvern_cache *caches, const kvern_checkpoint *checkpoint)
{
    uint64_t bytes = own_bytes(caches[0].batch->sets);
    for (size_t c = 0; c < caches[0].batch->caches; c++)
        bytes += layer_bytes(&caches[c], checkpoint);
    return bytes;
}

size_t kvern_checkpoint_pages(const kvern_planned_layer *layer, bool planned, size_t pages)
{
    if (!stays_in_common(layer, planned))
        return pages;
    return layer->window.is_split ? 0 : kvern_min_size(pages, 1); // whole pages only
}

uint64_t kvern_checkpoint_rest_bytes(const kvern_composition *composition, size_t most_pages)
{
    return own_bytes(composition->sets) + composition->count * kvern_table_bytes(most_pages);
}

// ---- Lists: the largest position first ----

static void drop(kvern_cache *caches, kvern_checkpoint **link)
{
    kvern_batch *batch = caches[0].batch;
    kvern_checkpoint *gone = *link;
    *link = gone->below;
    KVERN_ASSERT(batch->checkpoint_bytes >= gone->bytes);
    batch->checkpoint_bytes -= gone->bytes;
    for (size_t s = 0; s < batch->sets; s++)
        kvern_row_reset(&gone->sets[s]);
    kvern_heap_give(&kvern_cache_context(caches)->heap, gone, own_bytes(batch->sets),
                    KVERN_HEAP_ALIGNMENT);
}

void kvern_checkpoints_drop(kvern_cache *caches, size_t row, int64_t position)
{
    kvern_checkpoint **first = &caches[0].batch->checkpoints[row];
    while (*first && (*first)->position > position)
        drop(caches, first);
}

// Tokens that would have to be served again without it.
static int64_t loss_of(const kvern_checkpoint *checkpoint)
{
    return checkpoint->position - (checkpoint->below ? checkpoint->below->position : 0);
}

static bool is_cheaper(const kvern_checkpoint *a, const kvern_checkpoint *b)
{
    const int64_t loss = loss_of(a), other = loss_of(b);
    return loss < other || (loss == other && a->age < b->age);
}

// The checkpoint that is cheapest to lose; NULL: there is none but `kept`.
static kvern_checkpoint **cheapest(const kvern_batch *batch, const kvern_checkpoint *kept)
{
    kvern_checkpoint **best = NULL;
    for (size_t r = 0; r < batch->row_count; r++) {
        for (kvern_checkpoint **at = &batch->checkpoints[r]; *at; at = &(*at)->below) {
            if (*at != kept && (!best || is_cheaper(*at, *best)))
                best = at;
        }
    }
    return best;
}

void kvern_checkpoints_fit(kvern_cache *caches, const kvern_checkpoint *kept)
{
    kvern_batch *batch = caches[0].batch;
    while (batch->checkpoint_bytes > batch->checkpoint_budget) {
        kvern_checkpoint **link = cheapest(batch, kept);
        KVERN_ASSERT(link); // one alone fits
        drop(caches, link);
    }
}

const char *kvern_checkpoints_walk(const kvern_cache *caches, size_t row, uint64_t *bytes)
{
    const kvern_batch *batch = caches[0].batch;
    int64_t above = batch->lengths[row] + 1;
    for (const kvern_checkpoint *at = batch->checkpoints[row]; at; at = at->below) {
        if (at->position >= above || at->position <= 0)
            return "a row's checkpoints are not in order, or behind its end";
        above = at->position;
        *bytes += at->bytes;
        for (size_t c = 0; c < batch->caches; c++) {
            const kvern_planned_layer *layer = kvern_cache_planned(&caches[c]);
            const size_t coded = caches[c].coded_set;
            if (at->sets[c].length != (kvern_layer_is_shared(layer) ? 0 : at->position) ||
                !kvern_row_is_sound(&at->sets[c]))
                return "a layer of a checkpoint is not what it was";
            const char *wrong =
                kvern_row_walk(layer, &at->sets[c], coded ? &at->sets[coded] : NULL);
            if (wrong)
                return wrong;
        }
    }
    return NULL;
}

// ---- Calls ----

static kvern_status check_row(const kvern_state *state, size_t row)
{
    kvern_status status = kvern_state_check_idle(state);
    if (!status && row >= kvern_state_rows(state))
        status = kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, kvern_state_rows(state));
    return status;
}

kvern_status kvern_state_checkpoint_budget(kvern_state *state, uint64_t bytes)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    state->batch.checkpoint_budget = bytes;
    kvern_checkpoints_fit(state->caches, NULL);
    return KVERN_OK;
}

uint64_t kvern_state_checkpoint_bytes(const kvern_state *state)
{
    return state->batch.checkpoint_bytes;
}

kvern_status kvern_checkpoint_make(kvern_state *state, int64_t position, kvern_checkpoint **out)
{
    void *memory;
    kvern_status status = kvern_heap_take_zeroed(&state->composition->context->heap,
                                                 own_bytes(state->batch.sets), &memory);
    *out = status ? NULL : memory;
    if (!status)
        (*out)->position = position;
    return status;
}

void kvern_checkpoint_give_up(kvern_state *state, kvern_checkpoint *made)
{
    for (size_t s = 0; s < state->batch.sets; s++)
        kvern_row_reset(&made->sets[s]);
    kvern_heap_give(&state->composition->context->heap, made, own_bytes(state->batch.sets),
                    KVERN_HEAP_ALIGNMENT);
}

void kvern_checkpoint_link(kvern_state *state, size_t row, kvern_checkpoint *made)
{
    kvern_batch *batch = &state->batch;
    kvern_checkpoint **at = &batch->checkpoints[row];
    while (*at && (*at)->position > made->position)
        at = &(*at)->below;
    KVERN_ASSERT(!*at || (*at)->position < made->position);
    made->bytes = count_bytes(state->caches, made);
    made->age = batch->checkpoint_age++;
    made->below = *at;
    *at = made;
    batch->checkpoint_bytes += made->bytes;
}

static kvern_status make(kvern_state *state, size_t row, kvern_checkpoint **out)
{
    const kvern_batch *batch = &state->batch;
    kvern_status status = kvern_checkpoint_make(state, batch->lengths[row], out);
    for (size_t s = 0; s < batch->sets && !status; s++)
        kvern_row_share(&kvern_batch_rows(batch, s).rows[row], &(*out)->sets[s]);
    return status;
}

kvern_status kvern_state_checkpoint(kvern_state *state, size_t row)
{
    kvern_status status = check_row(state, row);
    if (status || state->batch.lengths[row] == 0)
        return status;
    kvern_batch *batch = &state->batch;
    kvern_checkpoint *made, *newest = batch->checkpoints[row];
    if (newest && newest->position == batch->lengths[row]) {
        newest->age = batch->checkpoint_age++;
        return KVERN_OK;
    }
    if ((status = make(state, row, &made)))
        return status;
    // A row's newest checkpoint is linked first, so that the others are worth what they are beside
    // it.
    kvern_checkpoint_link(state, row, made);
    const uint64_t bytes = made->bytes;
    if (bytes > batch->checkpoint_budget) {
        drop(state->caches, &batch->checkpoints[row]);
        return kvern_fail(KVERN_ERR_BUDGET,
                          "row %zu: a checkpoint of %" PRIu64 " bytes, but all may have %" PRIu64,
                          row, bytes, batch->checkpoint_budget);
    }
    kvern_checkpoints_fit(state->caches, made);
    KVERN_ASSERT(!kvern_state_walk(state));
    return KVERN_OK;
}

size_t kvern_state_checkpoints(const kvern_state *state, size_t row, int64_t *positions,
                               size_t capacity)
{
    size_t count = 0;
    if (row >= kvern_state_rows(state))
        return 0;
    for (const kvern_checkpoint *at = state->batch.checkpoints[row]; at; at = at->below) {
        if (count < capacity)
            positions[count] = at->position;
        count++;
    }
    return count;
}

int64_t kvern_state_checkpoint_below(const kvern_state *state, size_t row, int64_t position)
{
    if (row >= kvern_state_rows(state) || position < 0)
        return -1;
    if (position >= state->batch.lengths[row])
        return state->batch.lengths[row];
    const kvern_checkpoint *at = state->batch.checkpoints[row];
    while (at && at->position > position)
        at = at->below;
    return at ? at->position : 0;
}

kvern_status kvern_state_return(kvern_state *state, size_t row, int64_t position)
{
    kvern_status status = check_row(state, row);
    if (status)
        return status;
    kvern_batch *batch = &state->batch;
    if (position == batch->lengths[row])
        return KVERN_OK;
    const int64_t below = kvern_state_checkpoint_below(state, row, position);
    if (position < 0 || position != below)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: no checkpoint at %" PRId64 ", and the one below is at %" PRId64,
                          row, position, below);
    kvern_checkpoints_drop(state->caches, row, position);
    batch->lengths[row] = position;
    kvern_kept_row_take(state, row, position ? batch->checkpoints[row]->sets : NULL);
    KVERN_ASSERT(!kvern_state_walk(state));
    return KVERN_OK;
}
