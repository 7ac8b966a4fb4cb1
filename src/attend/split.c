// SPDX-License-Identifier: MIT
#include "src/attend/split.h"

#include "src/base/assert.h"
#include "src/base/relax.h"
#include "src/base/size.h"

#include <sched.h>

// A slot begins with this; the partial result lies a cache line behind it.
typedef struct slot {
    _Atomic size_t filled; // 1 + the number of the span whose result it holds; 0: none yet
} slot;

#define SLOT_HEADER_BYTES KVERN_HEAP_ALIGNMENT
_Static_assert(sizeof(slot) <= SLOT_HEADER_BYTES, "the header fits its line");

// An item is a span of a tile: the span in the upper half of a number, the tile in the lower one.
#define TILE_BITS 32
#define NO_ITEM UINT64_MAX

// Looks at a ring before the processor is left to whoever is to make room in it.
#define LOOKS_BEFORE_YIELD 100

// ---- Layout ----

// Slots of a tile with so many spans: its share while all tiles go on side by side, and its share
// of the spans, for when the long tiles are left alone.
static size_t slots_of(const kvern_split *split, size_t spans)
{
    KVERN_ASSERT(spans <= split->span_count && split->tile_count > 0);
    const size_t even = kvern_ceil_div(2 * split->workers, split->tile_count);
    return kvern_min_size(spans,
                          even + kvern_ceil_div(2 * split->workers * spans, split->span_count));
}

static size_t most_slots(const kvern_split *split)
{
    return kvern_min_size(split->span_count, 4 * split->workers + 2 * split->tile_count);
}

static size_t rings_bytes(const kvern_split *split)
{
    return kvern_ceil_div(split->tile_count * sizeof(kvern_split_ring), KVERN_HEAP_ALIGNMENT) *
           KVERN_HEAP_ALIGNMENT;
}

static size_t partial_bytes(const kvern_split *split)
{
    return kvern_partial_bytes(split->job, split->vectors);
}

static size_t slot_bytes(const kvern_split *split)
{
    return SLOT_HEADER_BYTES + partial_bytes(split);
}

bool kvern_split_bytes(const kvern_split *split, size_t *bytes)
{
    size_t totals, slots;
    return kvern_size_mul(split->tile_count, partial_bytes(split), &totals) &&
           kvern_size_mul(most_slots(split), slot_bytes(split), &slots) &&
           kvern_size_add(rings_bytes(split), totals, bytes) &&
           kvern_size_add(*bytes, slots, bytes);
}

static slot *slot_at(const kvern_split *split, size_t index)
{
    return (slot *)(split->slots + index * slot_bytes(split));
}

void kvern_split_place(kvern_split *split, void *memory)
{
    size_t slots = 0;
    split->rings = memory;
    split->totals = (char *)memory + rings_bytes(split);
    split->slots = split->totals + split->tile_count * partial_bytes(split);
    KVERN_ASSERT((uintptr_t)split->slots % KVERN_HEAP_ALIGNMENT == 0);
    split->next = split->tile_count ? 0 : NO_ITEM;
    for (size_t t = 0; t < split->tile_count; t++) {
        kvern_split_ring *ring = &split->rings[t];
        ring->first_slot = slots;
        ring->slot_count = slots_of(split, split->tiles[t].spans);
        KVERN_ASSERT(ring->slot_count > 0);
        ring->merged = 0;
        ring->is_merging = false;
        slots += ring->slot_count;
    }
    KVERN_ASSERT(slots <= most_slots(split));
    for (size_t s = 0; s < slots; s++)
        slot_at(split, s)->filled = 0;
}

static kvern_partial total_of(const kvern_split *split, size_t tile)
{
    return kvern_partial_at(split->vectors, split->totals + tile * partial_bytes(split));
}

static slot *slot_of(const kvern_split *split, size_t tile, size_t span)
{
    KVERN_ASSERT(tile < split->tile_count && span < split->tiles[tile].spans);
    const kvern_split_ring *ring = &split->rings[tile];
    return slot_at(split, ring->first_slot + span % ring->slot_count);
}

static kvern_partial partial_of(const kvern_split *split, slot *s)
{
    return kvern_partial_at(split->vectors, (char *)s + SLOT_HEADER_BYTES);
}

// ---- Items ----

// The first item behind tile `tile` - 1 in span `span`, in the order in which items are taken.
static uint64_t first_item(const kvern_split *split, uint64_t span, uint64_t tile)
{
    for (; tile < split->tile_count; tile++)
        if (split->tiles[tile].spans > span)
            return span << TILE_BITS | tile;
    for (tile = 0; tile < split->tile_count; tile++)
        if (split->tiles[tile].spans > span + 1)
            return (span + 1) << TILE_BITS | tile;
    return NO_ITEM;
}

static bool take_item(kvern_split *split, size_t *tile, size_t *span)
{
    uint64_t item = atomic_load(&split->next);
    KVERN_ASSERT(split->tile_count <= UINT32_MAX);
    do {
        if (item == NO_ITEM)
            return false;
        *span = (size_t)(item >> TILE_BITS);
        *tile = (size_t)(item & UINT32_MAX);
        KVERN_ASSERT(*tile < split->tile_count);
    } while (
        !atomic_compare_exchange_weak(&split->next, &item, first_item(split, *span, *tile + 1)));
    return true;
}

// Until the slot of the span is free. The spans in front of it have all been taken, by workers that
// are at them or wait for spans in front of theirs, so the first of them goes on.
static void wait_for_slot(const kvern_split *split, size_t tile, size_t span)
{
    const kvern_split_ring *ring = &split->rings[tile];
    for (size_t looks = 0; atomic_load(&ring->merged) + ring->slot_count <= span; looks++) {
        if (looks < LOOKS_BEFORE_YIELD)
            kvern_relax();
        else
            sched_yield();
    }
}

// ---- Merging ----

static bool is_next_filled(const kvern_split *split, size_t tile)
{
    const size_t next = atomic_load(&split->rings[tile].merged);
    return next < split->tiles[tile].spans &&
           atomic_load(&slot_of(split, tile, next)->filled) == next + 1;
}

// The caller alone is at the tile's total. The tile is loaded.
static void merge_next(kvern_split *split, size_t tile, const kvern_workspace *work)
{
    const kvern_tile *t = &split->tiles[tile];
    kvern_split_ring *ring = &split->rings[tile];
    const size_t next = atomic_load(&ring->merged);
    kvern_partial total = total_of(split, tile);
    const kvern_partial part = partial_of(split, slot_of(split, tile, next));
    KVERN_ASSERT(next < t->spans && atomic_load(&ring->is_merging));
    kvern_tile_merge(split->job, t, next, work, &total, &part);
    if (next + 1 == t->spans)
        kvern_tile_finish(split->job, t, &total);
    atomic_store(&ring->merged, next + 1); // from here on the slot is another span's
}

// Merges what can be merged. A worker that finds another one at it leaves its span to that one,
// which looks again after it has stopped.
static void merge_filled(kvern_split *split, size_t tile, const kvern_workspace *work)
{
    kvern_split_ring *ring = &split->rings[tile];
    while (is_next_filled(split, tile)) {
        if (atomic_exchange(&ring->is_merging, true))
            return;
        while (is_next_filled(split, tile))
            merge_next(split, tile, work);
        atomic_store(&ring->is_merging, false);
    }
}

void kvern_split_work(kvern_split *split, kvern_workspace *work)
{
    size_t tile, span;
    while (take_item(split, &tile, &span)) {
        wait_for_slot(split, tile, span);
        slot *s = slot_of(split, tile, span);
        kvern_partial partial = partial_of(split, s);
        const kvern_tile *t = &split->tiles[tile];
        kvern_tile_load(split->job, t, kvern_tile_pass(t, span), work);
        kvern_tile_span(split->job, t, span, work, &partial);
        atomic_store(&s->filled, span + 1);
        merge_filled(split, tile, work);
    }
}
