// SPDX-License-Identifier: MIT
#include "engine/model/row_room.h"

// Of promised pages, this part more for their tables and headers.
#define PROMISE_MARGIN 32

// One layer of the rows of a state.
typedef struct room_layer {
    const kvern_composition *composition;
    size_t index;
    const kvern_layer *plan;
    uint64_t page;  // bytes of a page in the planned form
    uint64_t first; // and in the one that rows begin in
} room_layer;

static room_layer layer_of(const kvern_composition *composition, size_t index)
{
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
static uint64_t conversion_bytes(const room_layer *layer, const row_room *r)
{
    const uint64_t start = (uint64_t)layer->plan->start;
    const uint64_t reserved = pages_at(layer, start > 0 ? start : 1);
    uint64_t old = reserved;
    if (start > 0) {
        const uint64_t prompt = r->prompt < start ? r->prompt : start;
        old += chunk_pages(layer, r->chunk, prompt, reserved);
    } else { // after the first chunk
        old = pages_at(layer, r->chunk < r->length ? r->chunk : r->length);
    }
    uint64_t new = pages_at(layer, r->length);
    new += chunk_pages(layer, r->chunk, r->prompt, new);
    return (old - reserved) * layer->first + new * layer->page;
}

// Pages of a layer with a window that the row shares with the one that it was taken over from. Each
// of the two fills them anew when its window has passed them, which it can only do alone.
static uint64_t shared_pages(const room_layer *layer, const row_room *r)
{
    const uint64_t shared = (r->shared + KVERN_PAGE_POSITIONS - 1) / KVERN_PAGE_POSITIONS;
    const uint64_t all = pages_at(layer, r->length);
    if (layer->plan->kind != KVERN_LAYER_WINDOW) {
        return 0;
    }
    return shared < all ? shared : all;
}

static uint64_t promise_of_layer(const room_layer *layer, const row_room *r, bool converted)
{
    const int64_t start = layer->plan->start;
    if (!converted && start != KVERN_NO_START && r->length >= (uint64_t)start) {
        return conversion_bytes(layer, r);
    }
    if (r->prompt_done) {
        return 0;
    }
    return chunk_pages(layer, r->chunk, r->prompt, pages_at(layer, r->length)) *
           (converted ? layer->page : layer->first);
}

uint64_t row_room_promise(const kvern_state *state, size_t row, const row_room *r)
{
    const kvern_composition *composition = kvern_state_composition(state);
    uint64_t bytes = 0;
    for (size_t l = 0; l < kvern_composition_layers(composition); l++) {
        const room_layer layer = layer_of(composition, l);
        const bool converted = kvern_cache_converted(kvern_state_cache(state, l), row);
        bytes += promise_of_layer(&layer, r, converted);
        bytes += shared_pages(&layer, r) * layer.first;
    }
    return bytes + bytes / PROMISE_MARGIN;
}
