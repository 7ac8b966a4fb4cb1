// SPDX-License-Identifier: MIT
// What rows take at most, by arithmetic, and reservations of as much.
#include "src/attend/index_scan.h"
#include "src/attend/materialized.h"
#include "src/attend/selected.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/state/checkpoint.h"
#include "src/state/state.h"

#include <inttypes.h>
#include <kvern/plan.h>
#include <string.h>

static const kvern_sized PLAN_SIZES = KVERN_SIZED(
    kvern_plan, KVERN_SIZE_TO(kvern_plan, query_vectors), KVERN_SIZE_TO(kvern_plan, value_dim));

void kvern_plan_init(kvern_plan *plan, size_t size)
{
    const kvern_plan defaults = {.size = size, .rows = 1, .chunk = 1};
    kvern_sized_init(&PLAN_SIZES, &defaults, plan, size);
}

static kvern_status read_plan(const kvern_plan *given, kvern_plan *plan)
{
    if (!given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "plan is NULL");
    kvern_status status = kvern_sized_read(&PLAN_SIZES, given, plan);
    if (status)
        return status;
    if (plan->rows < 1 || plan->rows > KVERN_MAX_ROWS)
        return kvern_fail(KVERN_ERR_RANGE, "a plan of %zu rows, not 1 to %d", plan->rows,
                          KVERN_MAX_ROWS);
    if (plan->tokens < 0 || plan->tokens > KVERN_MAX_POSITIONS || plan->chunk < 1 ||
        plan->chunk > KVERN_MAX_POSITIONS || plan->round < 0 || plan->round > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE,
                          "a plan of %" PRId64 " tokens, chunks of %" PRId64 ", rounds of %" PRId64,
                          plan->tokens, plan->chunk, plan->round);
    if (plan->checkpoints > KVERN_MAX_CHECKPOINTS)
        return kvern_fail(KVERN_ERR_RANGE, "a plan of %zu checkpoints, more than %d",
                          plan->checkpoints, KVERN_MAX_CHECKPOINTS);
    if (plan->selected < 0 || plan->index_heads > KVERN_MAX_INDEX_HEADS)
        return kvern_fail(KVERN_ERR_RANGE,
                          "a plan of %" PRId64 " selected positions by %zu index heads",
                          plan->selected, plan->index_heads);
    if (plan->nope_dim > KVERN_MAX_HEAD_DIM || plan->value_dim > KVERN_MAX_HEAD_DIM)
        return kvern_fail(KVERN_ERR_RANGE, "a plan of weights with nope_dim %zu, value_dim %zu",
                          plan->nope_dim, plan->value_dim);
    return KVERN_OK;
}

// What a row that holds nothing yet is to have for the plan.
static kvern_row_room fresh_room(const kvern_planned_layer *layer, const kvern_plan *plan)
{
    kvern_row fresh[2] = {{0}};
    const kvern_layer_rows rows = {
        .count = 1, .rows = &fresh[0], .coded = layer->coded_set ? &fresh[1] : NULL};
    return layer->ops->room(layer, &rows, 0, plan);
}

// ---- Bytes ----

static bool add(uint64_t *sum, uint64_t count, uint64_t bytes)
{
    uint64_t product;
    return kvern_u64_mul(count, bytes, &product) && !__builtin_add_overflow(*sum, product, sum);
}

// Adds the tables that a row of the layer has at once: its own, the next one, which doubles where
// nothing was reserved, and another one where it is converted.
static bool add_tables(const kvern_planned_layer *layer, uint64_t *sum, size_t rows,
                       const kvern_row_room *room)
{
    const size_t pages = kvern_max_size(room->pages, room->later);
    KVERN_ASSERT(room->pool && (room->later_pool || room->later == 0));
    if (layer->coded_set) // tables of two rows
        return add(sum, rows, kvern_table_bytes(room->pages)) &&
               add(sum, rows, kvern_table_bytes(2 * room->pages)) &&
               add(sum, rows, kvern_table_bytes(room->later)) &&
               add(sum, rows, kvern_table_bytes(2 * room->later));
    return add(sum, rows, kvern_table_bytes(pages)) &&
           add(sum, rows, kvern_table_bytes(2 * pages)) &&
           (room->later == 0 || add(sum, rows, kvern_table_bytes(pages)));
}

// A row's pages in one form, and those of its checkpoints. A page of records has none.
static size_t with_checkpoints(const kvern_planned_layer *layer, const kvern_plan *plan, bool later,
                               size_t pages)
{
    if (layer->geometry.whole)
        return later ? pages : pages + kvern_min_size(pages, 1) * plan->checkpoints;
    return pages +
           kvern_checkpoint_pages(layer, later || !layer->first_pool, pages) * plan->checkpoints;
}

// Pages of one pool for a row of each layer that takes them there.
static size_t pages_of_pool(const kvern_composition *composition, const kvern_plan *plan,
                            const kvern_pool *pool)
{
    size_t pages = 0;
    for (size_t l = 0; l < composition->count; l++) {
        const kvern_row_room room = fresh_room(&composition->layers[l], plan);
        if (pool == room.pool)
            pages += with_checkpoints(&composition->layers[l], plan, false, room.pages);
        if (pool == room.later_pool)
            pages += with_checkpoints(&composition->layers[l], plan, true, room.later);
    }
    return pages;
}

// Whether a layer before this one has the pool.
static bool is_known(const kvern_composition *composition, size_t layer, const kvern_pool *pool)
{
    for (size_t l = 0; l < layer; l++) {
        const kvern_planned_layer *known = &composition->layers[l];
        if (known->pool == pool || known->first_pool == pool || known->record_pool == pool)
            return true;
    }
    return false;
}

static bool add_pool(const kvern_composition *composition, const kvern_plan *plan, size_t layer,
                     const kvern_pool *pool, uint64_t *sum)
{
    uint64_t pages;
    if (!pool || is_known(composition, layer, pool))
        return true;
    return kvern_u64_mul(pages_of_pool(composition, plan, pool), plan->rows, &pages) &&
           add(sum, 1, kvern_pool_most_bytes(pool, pages));
}

static bool add_layer(const kvern_composition *composition, const kvern_plan *plan, size_t l,
                      uint64_t *sum)
{
    const kvern_planned_layer *layer = &composition->layers[l];
    const kvern_row_room room = fresh_room(layer, plan);
    if (kvern_layer_is_shared(layer))
        return true;
    return add_tables(layer, sum, plan->rows, &room) &&
           add_pool(composition, plan, l, layer->pool, sum) &&
           add_pool(composition, plan, l, layer->first_pool, sum) &&
           add_pool(composition, plan, l, layer->record_pool, sum);
}

// ---- Scratch ----

// Queries of a row in one call.
static int64_t queries_of(const kvern_plan *plan)
{
    return kvern_min_i64(kvern_max_i64(plan->chunk, plan->round), plan->tokens);
}

// What a plan says of materialized reads of a layer; NULL: there are none.
static const kvern_latent_weights *materialized_of(const kvern_planned_layer *layer,
                                                   const kvern_plan *plan,
                                                   kvern_latent_weights *dims)
{
    *dims = (kvern_latent_weights){.nope_dim = plan->nope_dim, .value_dim = plan->value_dim};
    return plan->value_dim && kvern_values_are_keys(&layer->geometry) ? dims : NULL;
}

// Of an attend of selected positions; 0 where there are none.
static size_t scratch_of_selected(const kvern_planned_layer *layer, const kvern_plan *plan)
{
    const kvern_geometry *planned = &layer->geometry, *first = &layer->first;
    const kvern_view view = {
        .geometry = planned->page_bytes >= first->page_bytes ? planned : first,
        .query_floats = kvern_max_size(planned->query_floats, first->query_floats),
        .window = layer->window,
    };
    kvern_latent_weights dims;
    size_t queries, vectors;
    if (plan->selected == 0 || plan->query_vectors == 0 || queries_of(plan) == 0 ||
        kvern_visibility_is_limited(&layer->window) || layer->window.is_split)
        return 0;
    if (!kvern_size_mul(plan->rows, (size_t)queries_of(plan), &queries) ||
        !kvern_size_mul(plan->rows, plan->query_vectors, &vectors))
        return SIZE_MAX;
    return kvern_selected_scratch_bytes(layer->context, &view, queries, vectors, plan->tokens,
                                        plan->selected, materialized_of(layer, plan, &dims));
}

// Of a selection by index keys; 0 where there are none.
static size_t scratch_of_index(const kvern_planned_layer *layer, const kvern_plan *plan)
{
    if (plan->index_heads == 0 || queries_of(plan) == 0 ||
        !kvern_stream_find(&layer->geometry, KVERN_ROLE_INDEX))
        return 0;
    return kvern_index_scan_scratch_bytes(layer->context, &layer->geometry, plan->rows,
                                          queries_of(plan), plan->index_heads, plan->tokens);
}

// Of a materialized read; 0 where there are none.
static size_t scratch_of_materialized(const kvern_planned_layer *layer, const kvern_plan *plan)
{
    kvern_latent_weights dims;
    if (!materialized_of(layer, plan, &dims))
        return 0;
    return kvern_materialized_scratch_bytes(layer->context, &layer->geometry, &dims, plan->rows,
                                            queries_of(plan));
}

// Of the call on a read of the layer that needs the most.
static size_t scratch_of(const kvern_composition *composition, size_t index, const kvern_plan *plan)
{
    const kvern_planned_layer *layer = &composition->layers[index];
    size_t scratch =
        layer->ops->scratch_bytes(layer, plan->rows, plan->query_vectors, plan->tokens);
    if (layer->geometry.stream_count == 0)
        return scratch; // a layer that is not attended, or whose donor is
    scratch = kvern_max_size(scratch, scratch_of_selected(layer, plan));
    scratch = kvern_max_size(scratch, scratch_of_index(layer, plan));
    return kvern_max_size(scratch, scratch_of_materialized(layer, plan));
}

static size_t most_scratch(const kvern_composition *composition, const kvern_plan *plan)
{
    size_t scratch = 0;
    for (size_t l = 0; l < composition->count; l++)
        scratch = kvern_max_size(scratch, scratch_of(composition, l, plan));
    return scratch;
}

// What checkpoints take besides their pages.
static bool add_checkpoints(const kvern_composition *composition, const kvern_plan *plan,
                            uint64_t *sum)
{
    size_t most = 0;
    uint64_t count;
    for (size_t l = 0; l < composition->count; l++) {
        const kvern_row_room room = fresh_room(&composition->layers[l], plan);
        most = kvern_max_size(most, 2 * kvern_max_size(room.pages, room.later));
    }
    return kvern_u64_mul(plan->rows, plan->checkpoints, &count) &&
           add(sum, count, kvern_checkpoint_rest_bytes(composition, most));
}

kvern_status kvern_composition_plan_bytes(const kvern_composition *composition,
                                          const kvern_plan *given, uint64_t *bytes)
{
    kvern_plan plan;
    if (!composition || !bytes)
        return kvern_fail(KVERN_ERR_ARGUMENT, "composition or bytes is NULL");
    kvern_status status = read_plan(given, &plan);
    if (status)
        return status;
    const size_t layers = composition->count, scratch = most_scratch(composition, &plan);
    uint64_t sum = kvern_state_memory(composition, plan.rows);
    bool fits =
        scratch != SIZE_MAX && add(&sum, 1, kvern_read_reserved_bytes(layers, plan.rows, scratch));
    for (size_t l = 0; l < layers && fits; l++)
        fits = add_layer(composition, &plan, l, &sum);
    fits = fits && add_checkpoints(composition, &plan, &sum);
    if (!fits)
        return kvern_fail(KVERN_ERR_OVERFLOW, "the bytes of %zu rows of %" PRId64 " tokens",
                          plan.rows, plan.tokens);
    *bytes = sum;
    return KVERN_OK;
}

// ---- Reservations ----

// Pages that the row shares will not become room when its window has passed them, or when it has
// been turned to another one.
static size_t passing_pages(const kvern_planned_layer *layer, const kvern_row *row)
{
    const bool passes =
        layer->geometry.whole ? row->length > 0 : layer->window.recent != KVERN_EVERY_POSITION;
    return passes ? kvern_row_shared_pages(row) : 0;
}

// What a row is to have, and its coded one, and what of it stands in for shared pages.
typedef struct plan_room {
    kvern_row_room row, coded;
    size_t passing, coded_passing;
} plan_room;

static plan_room room_of(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row,
                         const kvern_plan *plan)
{
    plan_room room = {.row = layer->ops->room(layer, rows, row, plan)};
    room.passing = passing_pages(layer, &rows->rows[row]);
    if (!rows->coded)
        return room;
    room.coded = (kvern_row_room){.pages = room.row.later, .pool = room.row.later_pool};
    room.row.later = 0;
    room.row.later_pool = NULL;
    room.passing = kvern_row_shared_pages(&rows->rows[row]); // as its newest positions move on
    room.coded_passing = passing_pages(layer, &rows->coded[row]);
    return room;
}

// The room, and more of it for what passes.
static kvern_status prepare_room(kvern_row *row, const kvern_row_room *room, size_t passing,
                                 kvern_row_change *change)
{
    kvern_row_room all = *room;
    all.pages += passing;
    return kvern_row_prepare_room(row, &all, change);
}

static void keep_room(kvern_row *row, const kvern_row_room *room, size_t passing)
{
    row->reserved = room->pages;
    row->passing = passing;
    row->reserved_later = room->later;
    kvern_row_give_back(row);
}

static kvern_status prepare_plan(kvern_cache *cache, size_t row, const kvern_plan *plan)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    if (kvern_layer_is_shared(layer))
        return KVERN_OK;
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    const plan_room room = room_of(layer, &rows, row, plan);
    kvern_layer_rows_clear_changes(&rows);
    kvern_status status =
        prepare_room(&rows.rows[row], &room.row, room.passing, &rows.changes[row]);
    if (status || !rows.coded)
        return status;
    status =
        prepare_room(&rows.coded[row], &room.coded, room.coded_passing, &rows.coded_changes[row]);
    if (status)
        kvern_row_cancel(&rows.rows[row], &rows.changes[row]);
    return status;
}

static void commit_plan(kvern_cache *cache, size_t row, const kvern_plan *plan)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    const plan_room room = room_of(layer, &rows, row, plan);
    kvern_cache_commit(cache);
    keep_room(&rows.rows[row], &room.row, room.passing);
    if (rows.coded)
        keep_room(&rows.coded[row], &room.coded, room.coded_passing);
}

// Of `count` caches that share a batch, from the first one on.
static kvern_status reserve_plan(kvern_cache *caches, size_t count, size_t row,
                                 const kvern_plan *given)
{
    kvern_plan plan;
    kvern_status status = read_plan(given, &plan);
    if (status)
        return status;
    if (row >= caches[0].batch->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, caches[0].batch->row_count);
    kvern_batch *batch = caches[0].batch;
    const kvern_plan all = kvern_batch_plan(batch, &plan);
    size_t prepared = 0, scratch = 0;
    plan.rows = batch->row_count;
    for (; prepared < count && !status; prepared += !status) {
        kvern_cache *cache = &caches[prepared];
        scratch = kvern_max_size(scratch, scratch_of(cache->composition, cache->layer, &all));
        status = prepare_plan(cache, row, &plan);
    }
    if (!status)
        status = kvern_read_reserve(kvern_cache_context(caches), &batch->reservation, count,
                                    plan.rows, scratch);
    if (!status)
        batch->reserved = all;
    for (size_t c = 0; c < prepared; c++) {
        if (status)
            kvern_cache_cancel(&caches[c]);
        else
            commit_plan(&caches[c], row, &plan);
    }
    return status;
}

kvern_status kvern_state_reserve_plan(kvern_state *state, size_t row, const kvern_plan *plan)
{
    kvern_status status = kvern_state_check_idle(state);
    return status ? status : reserve_plan(state->caches, state->composition->count, row, plan);
}

kvern_status kvern_cache_reserve_plan(kvern_cache *cache, size_t row, const kvern_plan *plan)
{
    kvern_status status = kvern_cache_check_alone(cache);
    return status ? status : reserve_plan(cache, 1, row, plan);
}
