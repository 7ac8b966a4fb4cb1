// SPDX-License-Identifier: MIT
// Decode slots: a step whose keys and values the caller's kernel puts into their pages itself.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/layer/attention/attention.h"
#include "src/layer/attention/residual.h"
#include "src/math/fpenv.h"
#include "src/state/append.h"
#include "src/state/state.h"

#include <kvern/experimental/slot.h>
#include <string.h>

static const kvern_sized PLAN_SIZES =
    KVERN_SIZED(kvern_planned_slot, KVERN_SIZE_TO(kvern_planned_slot, page_bytes));
static const kvern_sized SLOT_SIZES = KVERN_SIZED(kvern_slot, KVERN_SIZE_TO(kvern_slot, v));

static bool is_in_place(const kvern_geometry *g)
{
    bool all = true;
    for (size_t s = 0; s < g->stream_count; s++)
        all = all && g->streams[s].type->place;
    return all;
}

// ---- Planning ----

static kvern_status check_place(const kvern_state *state, size_t layer, size_t row)
{
    if (layer >= state->composition->count || row >= kvern_state_rows(state))
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu, row %zu of %zu", layer,
                          state->composition->count, row, kvern_state_rows(state));
    return KVERN_OK;
}

static kvern_status check_plan(const kvern_state *state, size_t layer, size_t row,
                               const kvern_planned_slot *plan)
{
    if (!state || !plan)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or plan is NULL");
    kvern_status status = kvern_sized_check_output(&PLAN_SIZES, plan);
    if (status)
        return status;
    if (state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "a step is open");
    status = check_place(state, layer, row);
    if (!status)
        status = kvern_attention_check_kind(kvern_cache_planned(&state->caches[layer]));
    if (!status && state->batch.lengths[row] == KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu is full", row);
    return status;
}

// What a token takes for pages that leave the residual when it has come.
static uint64_t coded_bytes(const kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    if (!rows.coded)
        return 0;
    const int64_t length = kvern_residual_length(layer, &rows, row, rows.rows[row].length + 1);
    return (uint64_t)kvern_row_foresee(&rows.coded[row], length) * layer->geometry.page_bytes;
}

static bool converts(const kvern_cache *cache, size_t row)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    const int64_t length = rows.rows[row].length + 1;
    return rows.coded ? kvern_residual_is_due(layer, &rows, row, length)
                      : kvern_attention_is_due(layer, &rows.rows[row], length);
}

kvern_status kvern_slot_plan(const kvern_state *state, size_t layer, size_t row,
                             kvern_planned_slot *plan)
{
    kvern_status status = check_plan(state, layer, row, plan);
    if (status)
        return status;
    const kvern_cache *cache = &state->caches[layer];
    const kvern_row *r = &cache->rows[row];
    const kvern_form form = kvern_attention_form(kvern_cache_planned(cache), r);
    const size_t pages = kvern_row_foresee(r, r->length + 1);
    const kvern_planned_slot found = {
        .position = r->length,
        .k_codec = kvern_stream_for(form.geometry, KVERN_ROLE_SCORE)->codec,
        .v_codec = kvern_stream_for(form.geometry, KVERN_ROLE_VALUE)->codec,
        .in_place = is_in_place(form.geometry),
        .converts = converts(cache, row),
        .page_bytes = (uint64_t)pages * form.geometry->page_bytes + coded_bytes(cache, row),
    };
    kvern_sized_write(&PLAN_SIZES, &found, plan);
    return KVERN_OK;
}

// ---- Writing ----

static kvern_status check_layer(const kvern_state *state, size_t layer)
{
    if (!state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state is NULL");
    if (!state->batch.step_open)
        return kvern_fail(KVERN_ERR_BUSY, "no step is open");
    if (state->batch.phase != KVERN_PHASE_DECODE)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "slots are for decodes");
    if (layer >= state->composition->count)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu of %zu", layer, state->composition->count);
    if (state->caches[layer].appended)
        return kvern_fail(KVERN_ERR_BUSY, "layer %zu has appended in this step", layer);
    return kvern_attention_check_kind(kvern_cache_planned(&state->caches[layer]));
}

static kvern_status check_slot(const kvern_state *state, size_t layer, size_t row)
{
    kvern_status status = check_layer(state, layer);
    if (!status)
        status = check_place(state, layer, row);
    if (!status && state->batch.counts[row] == 0)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu has no token in this step", row);
    return status;
}

// The page that the token goes to, for us alone: a read that was made in this step may hold the
// table. A slot that has been handed out stays where it is; nobody can have come to see its page
// since (kvern_cache_read_donor).
static kvern_status open_page(kvern_cache *cache, size_t row, void **page)
{
    kvern_row *r = &cache->rows[row];
    const size_t at = (size_t)r->length / KVERN_PAGE_POSITIONS;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows all = kvern_cache_layer_rows(cache);
    const bool alone = kvern_row_is_open(r, r->length + 1) &&
                       (!all.coded || kvern_residual_is_open(layer, &all, row, 1));
    KVERN_ASSERT(alone || !r->handed_out);
    if (!alone) {
        const kvern_layer_rows one = kvern_layer_row_alone(&all, row);
        kvern_status status = layer->ops->prepare(layer, &one, &(int64_t){1}, 0, 0);
        if (status)
            return status;
        layer->ops->commit(layer, &one);
    }
    kvern_row_extend(r, r->length + 1);
    *page = kvern_table_page(r->table, at)->data;
    return KVERN_OK;
}

// Blocks of a stream lie a whole number of elements apart.
static kvern_slot_stream place_of(const kvern_stream_plan *stream, void *page, size_t slot)
{
    kvern_slot_stream to =
        stream->type->place(&stream->codec, kvern_stream_form(stream),
                            kvern_page_block(stream, page, 0), stream->dim, slot);
    to.head_stride = (int64_t)(stream->block_bytes / kvern_type_bytes(to.type));
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS &&
                 stream->block_bytes % kvern_type_bytes(to.type) == 0);
    return to;
}

kvern_status kvern_step_slot(kvern_state *state, size_t layer, size_t row, kvern_slot *slot)
{
    kvern_status status = check_slot(state, layer, row);
    if (status)
        return status;
    if (!slot)
        return kvern_fail(KVERN_ERR_ARGUMENT, "slot is NULL");
    if ((status = kvern_sized_check_output(&SLOT_SIZES, slot)))
        return status;
    kvern_cache *cache = &state->caches[layer];
    kvern_row *r = &cache->rows[row];
    const kvern_geometry *g = kvern_attention_form(kvern_cache_planned(cache), r).geometry;
    void *page;
    if (!is_in_place(g))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu, row %zu: codes of %s have no place of their own; hand the "
                          "values over",
                          layer, row, kvern_cache_signature(cache));
    if ((status = open_page(cache, row, &page)))
        return status;
    const size_t at = (size_t)r->length % KVERN_PAGE_POSITIONS;
    const kvern_slot place = {.k = place_of(kvern_stream_for(g, KVERN_ROLE_SCORE), page, at),
                              .v = place_of(kvern_stream_for(g, KVERN_ROLE_VALUE), page, at)};
    kvern_sized_write(&SLOT_SIZES, &place, slot);
    r->slotted = r->handed_out = true;
    return KVERN_OK;
}

static void write_heads(const kvern_stream_plan *stream, void *page, size_t slot, kvern_type type,
                        const char *values)
{
    for (size_t h = 0; h < stream->heads; h++)
        kvern_stream_encode(stream, page, h, slot, type,
                            values + h * stream->dim * kvern_type_bytes(type));
}

static void write_streams(const kvern_geometry *g, void *page, size_t slot, kvern_type type,
                          const void *k, const void *v)
{
    const void *const values[] = {k, v};
    const kvern_fp_saved saved = kvern_fp_enter();
    KVERN_ASSERT(g->stream_count == 2);
    for (size_t s = 0; s < g->stream_count; s++)
        write_heads(&g->streams[s], page, slot, type, values[s]);
    kvern_fp_leave(saved);
}

kvern_status kvern_step_write(kvern_state *state, size_t layer, size_t row, kvern_type type,
                              const void *k, const void *v)
{
    kvern_status status = check_slot(state, layer, row);
    if (status)
        return status;
    if (!k || !v || !kvern_type_bytes(type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "k or v is NULL, or the element type is unknown");
    kvern_cache *cache = &state->caches[layer];
    kvern_row *r = &cache->rows[row];
    void *page;
    if ((status = open_page(cache, row, &page)))
        return status;
    write_streams(kvern_attention_form(kvern_cache_planned(cache), r).geometry, page,
                  (size_t)r->length % KVERN_PAGE_POSITIONS, type, k, v);
    r->slotted = true;
    return KVERN_OK;
}

// ---- Done ----

kvern_status kvern_step_slots_done(kvern_state *state, size_t layer, kvern_read **read)
{
    if (read)
        *read = NULL;
    kvern_status status = check_layer(state, layer);
    if (status)
        return status;
    kvern_cache *cache = &state->caches[layer];
    const int64_t *counts = state->batch.counts;
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        if (counts[r] && !cache->rows[r].slotted)
            return kvern_fail(KVERN_ERR_BUSY, "layer %zu: row %zu has not been written", layer, r);
    }
    if (read && (status = kvern_read_create(kvern_cache_context(cache), cache->batch->reservation,
                                            cache->batch->row_count, read)))
        return status;
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        cache->rows[r].length += counts[r];
        cache->rows[r].handed_out = false;
    }
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    if (rows.coded)
        kvern_residual_store(kvern_cache_planned(cache), &rows, counts);
    if (read)
        kvern_cache_fill_read(cache, &rows, counts, *read);
    cache->appended = true;
    return KVERN_OK;
}
