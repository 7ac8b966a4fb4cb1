// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_SPLIT_H
#define KVERN_ATTEND_SPLIT_H

// Tiles that are cut by spans of positions, so that a long row keeps all threads busy.
//
// Spans are taken in ascending order, of all tiles alike: first span 0 of every tile, then span 1.
// So tiles that read the same pages, as the many query heads of one KV head do, read them at about
// the same time, and the second one finds them in a cache. Partial results are merged in ascending
// order too, as the arithmetic wants it, as soon as all before them have been: by whoever brings
// the next one. A tile therefore needs room for the spans that are under way, not for all: a ring
// of partial results. Only a worker that is a whole ring ahead of the slowest one waits for it.
//
// The rings hold four partial results per worker and two per tile at most, and a tile holds one
// more, its total; there are fewer than four tiles per worker. A partial result has up to 32
// vectors: 66 KB with values of 512 dims, 17 KB with 128.

#include "src/attend/tile.h"

// A tile's partial results: that of span s lies in slot s % slot_count until it is merged.
typedef struct kvern_split_ring {
    size_t first_slot, slot_count;
    _Atomic size_t merged;   // spans, from 0 on, that are in the tile's total
    _Atomic bool is_merging; // a worker is at it
} kvern_split_ring;

typedef struct kvern_split {
    const kvern_attend_job *job;
    // What the caller sets, the tiles before kvern_split_place.
    size_t workers;
    size_t vectors; // of the largest tile
    size_t tile_count;
    size_t span_count; // of all tiles together
    const kvern_tile *tiles;
    // The rest is kvern_split_place's.
    kvern_split_ring *rings; // one per tile
    char *totals, *slots;
    _Atomic uint64_t next; // the item that is taken next: its span above its tile
} kvern_split;

// Bytes that the split needs at most; no more tiles and spans need no more. False: they do not fit
// memory.
bool kvern_split_bytes(const kvern_split *split, size_t *bytes);

// Lays the split out in such a block, aligned to a cache line.
void kvern_split_place(kvern_split *split, void *memory);

// The work of one worker: takes items until there are none, and finishes tiles.
void kvern_split_work(kvern_split *split, kvern_workspace *work);

#endif
