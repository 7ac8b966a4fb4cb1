// SPDX-License-Identifier: MIT
// The memory of a scheduler's rows. With a budget a row's room is reserved up to its final length,
// by the library, which knows every byte of it. Three things no reservation covers: pages of the
// chunk that a layer with a window holds beside its window while a prompt is appended; those that a
// row needs in the form that it is converted to; and those of a window that it shares with another
// row. They are promised: bytes that later admissions leave free.

#include "engine/schedule_internal.h"

#include <inttypes.h>

// Of promised pages, this part more for their tables and headers.
#define PROMISE_MARGIN 32

// One layer of the rows of a scheduler.
typedef struct room_layer {
    const kvern_composition *composition;
    size_t index;
    const kvern_layer *plan;
    uint64_t page;  // bytes of a page in the planned form
    uint64_t first; // and in the one that rows begin in
} room_layer;

static room_layer layer_of(const schedule *s, size_t index)
{
    const kvern_composition *composition = kvern_state_composition(s->state);
    const kvern_layer *plan = kvern_composition_layer(composition, index);
    room_layer layer = {.composition = composition, .index = index, .plan = plan};
    layer.page = kvern_composition_layer_bytes_per_token(composition, index) * KVERN_PAGE_POSITIONS;
    layer.first = layer.page;
    if (plan->start != KVERN_NO_START) { // bf16
        layer.first = plan->kv_heads * (plan->k_dim + plan->v_dim) * KVERN_PAGE_POSITIONS *
                      kvern_type_bytes(KVERN_BF16);
    }
    return layer;
}

// Pages of the layer for a row of `tokens` positions.
static uint64_t pages_at(const room_layer *layer, uint64_t tokens)
{
    const int64_t start = layer->plan->start;
    const bool first = start != KVERN_NO_START && tokens < (uint64_t)start;
    return kvern_composition_layer_row_bytes(layer->composition, layer->index, tokens) /
           (first ? layer->first : layer->page);
}

// Pages that a layer with a window holds beside `reserved` ones while the chunks of a prompt of
// `tokens` positions are appended.
static uint64_t chunk_pages(const room_layer *layer, size_t chunk, uint64_t tokens,
                            uint64_t reserved)
{
    const kvern_layer *plan = layer->plan;
    if (plan->kind != KVERN_LAYER_WINDOW) {
        return 0;
    }
    // Wherever within a page the first position lies that is held, and the last kept one.
    const uint64_t held = (uint64_t)(plan->window + plan->slack);
    const uint64_t wanted = (held + chunk - 2) / KVERN_PAGE_POSITIONS + 3;
    const uint64_t all = (tokens + KVERN_PAGE_POSITIONS - 1) / KVERN_PAGE_POSITIONS;
    const uint64_t pages = wanted < all ? wanted : all;
    return pages > reserved ? pages - reserved : 0;
}

// Bytes that a layer's row takes beyond its room when it is to be converted: in its first form, and
// in the other one, of which it never has more pages, while it is converted, than afterwards. The
// pages of the old form may lie where they are of no use to the new one.
static uint64_t conversion_bytes(const room_layer *layer, size_t chunk, const schedule_sequence *q)
{
    const uint64_t start = (uint64_t)layer->plan->start;
    const uint64_t reserved = pages_at(layer, start > 0 ? start : 1);
    uint64_t old = reserved;
    if (start > 0) {
        const uint64_t prompt = q->count < start ? q->count : start;
        old += chunk_pages(layer, chunk, prompt, reserved);
    } else { // after the first chunk
        old = pages_at(layer, chunk < q->final_length ? chunk : q->final_length);
    }
    uint64_t new = pages_at(layer, q->final_length);
    new += chunk_pages(layer, chunk, q->count, new);
    return (old - reserved) * layer->first + new * layer->page;
}

// Pages of a layer with a window that the row shares with the one that it was taken over from. Each
// of the two fills them anew when its window has passed them, which it can only do alone.
static uint64_t shared_pages(const room_layer *layer, const schedule_sequence *q)
{
    const uint64_t shared =
        (q->result.shared_tokens + KVERN_PAGE_POSITIONS - 1) / KVERN_PAGE_POSITIONS;
    const uint64_t all = pages_at(layer, q->final_length);
    if (layer->plan->kind != KVERN_LAYER_WINDOW) {
        return 0;
    }
    return shared < all ? shared : all;
}

static uint64_t promise_of_layer(const room_layer *layer, size_t chunk, const schedule_sequence *q,
                                 bool converted)
{
    const int64_t start = layer->plan->start;
    if (!converted && start != KVERN_NO_START && q->final_length >= (uint64_t)start) {
        return conversion_bytes(layer, chunk, q);
    }
    if (q->forwarded == q->count) {
        return 0;
    }
    return chunk_pages(layer, chunk, q->count, pages_at(layer, q->final_length)) *
           (converted ? layer->page : layer->first);
}

// Bytes that a row may still take beyond what is reserved for it.
static uint64_t promise_of(const schedule *s, size_t row, const schedule_sequence *q)
{
    uint64_t bytes = 0;
    for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(s->state)); l++) {
        const room_layer layer = layer_of(s, l);
        const bool converted = kvern_cache_converted(kvern_state_cache(s->state, l), row);
        bytes += promise_of_layer(&layer, s->options.chunk, q, converted);
        bytes += shared_pages(&layer, q) * layer.first;
    }
    return bytes + bytes / PROMISE_MARGIN;
}

static kvern_memory memory_of(const schedule *s)
{
    kvern_memory memory = {.size = sizeof memory};
    if (kvern_context_memory(s->context, &memory) != KVERN_OK) {
        memory.budget_bytes = 0; // impossible: the arguments are right
    }
    return memory;
}

static uint64_t promised(const schedule *s)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        bytes += s->rows[r] ? s->rows[r]->promised : 0;
    }
    return bytes;
}

kvern_status schedule_room_check(const schedule *s, const schedule_sequence *q, engine_error *error)
{
    const uint64_t budget = memory_of(s).budget_bytes;
    const uint64_t row =
        kvern_composition_row_bytes(kvern_state_composition(s->state), q->final_length);
    if (budget == 0 || row <= budget - s->base_bytes) {
        return KVERN_OK;
    }
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "its row of up to %zu tokens, %zu of them the prompt, takes %" PRIu64
                       " bytes; the budget is %" PRIu64 " bytes, of which %" PRIu64 " are left",
                       q->final_length, q->count, row, budget, budget - s->base_bytes);
}

bool schedule_room_likely(const schedule *s, const schedule_sequence *q)
{
    const kvern_memory memory = memory_of(s);
    const uint64_t row =
        kvern_composition_row_bytes(kvern_state_composition(s->state), q->final_length);
    const uint64_t free_bytes = memory.budget_bytes - memory.held_bytes;
    return memory.budget_bytes == 0 || schedule_running(s) == 0 ||
           (promised(s) <= free_bytes && row <= free_bytes - promised(s));
}

static kvern_status reserve(schedule *s, size_t row, size_t tokens, engine_error *error)
{
    // Scratch for the queries of a whole step.
    size_t queries = model_get_facts(s->model)->heads * s->options.chunk;
    kvern_status status = kvern_state_reserve(s->state, row, (int64_t)tokens, queries);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "making room for a request");
}

// Whether `bytes` are free beside what was promised to the other rows.
static kvern_status check_free(const schedule *s, uint64_t bytes, engine_error *error)
{
    const kvern_memory memory = memory_of(s);
    const uint64_t free_bytes = memory.budget_bytes - memory.held_bytes;
    const uint64_t wanted = promised(s) + bytes;
    if (free_bytes >= wanted) {
        return KVERN_OK;
    }
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "%" PRIu64 " bytes are needed beside the rows, and %" PRIu64 " are left",
                       wanted, free_bytes);
}

static size_t converted_layers(const schedule *s, size_t row)
{
    size_t count = 0;
    for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(s->state)); l++) {
        count += kvern_cache_converted(kvern_state_cache(s->state, l), row) ? 1 : 0;
    }
    return count;
}

kvern_status schedule_room_take(schedule *s, size_t row, schedule_sequence *q, engine_error *error)
{
    const bool budget = memory_of(s).budget_bytes != 0;
    // Without a budget the rest is taken as it is needed: otherwise whole contexts would be
    // reserved for answers that end early.
    kvern_status status = reserve(s, row, budget ? q->final_length : q->count, error);
    if (status != KVERN_OK || !budget) {
        return status;
    }
    q->promised = promise_of(s, row, q);
    q->converted = converted_layers(s, row);
    // Bytes that the library holds without using them count as taken here. So a row that is alone,
    // which nothing can take them from, may try.
    return schedule_running(s) == 0 ? KVERN_OK : check_free(s, q->promised, error);
}

// Reserves the rest of a row that has been converted since; until that is done the promise stays.
static void renew_row(schedule *s, size_t row)
{
    schedule_sequence *q = s->rows[row];
    const size_t converted = converted_layers(s, row);
    if (converted != q->converted && reserve(s, row, q->final_length, NULL) != KVERN_OK) {
        return;
    }
    q->converted = converted;
    q->promised = promise_of(s, row, q);
}

void schedule_room_renew(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && s->rows[r]->promised > 0) {
            renew_row(s, r);
        }
    }
}

uint64_t schedule_room_bytes(const schedule *s)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        bytes += kvern_composition_row_bytes(kvern_state_composition(s->state),
                                             (uint64_t)kvern_state_length(s->state, r));
    }
    return bytes;
}
