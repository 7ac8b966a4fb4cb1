// SPDX-License-Identifier: MIT
#include "src/state/row_block.h"

#include "src/base/size.h"

#include <string.h>

// Of one row in one cache.
#define ROW_BYTES                                                                                  \
    (sizeof(kvern_row) + sizeof(kvern_row_change) + sizeof(kvern_conversion) +                     \
     sizeof(kvern_row_undo))

// Of one row besides that: what a state knows of it, and scratch.
#define SHARED_BYTES (4 * sizeof(int64_t) + sizeof(kvern_row) + sizeof(bool))

// Far from overflow: there are at most KVERN_MAX_ROWS rows, and caches exist in memory.
static size_t block_bytes(size_t caches, size_t capacity)
{
    return capacity * (caches * ROW_BYTES + SHARED_BYTES);
}

kvern_status kvern_row_block_create(kvern_heap *heap, size_t caches, size_t rows,
                                    kvern_row_block *out)
{
    const size_t capacity = kvern_max_size(rows, 1); // so that the arrays exist
    void *memory;
    memset(out, 0, sizeof *out);
    kvern_status status = kvern_heap_take_zeroed(heap, block_bytes(caches, capacity), &memory);
    if (status)
        return status;
    out->caches = caches;
    out->capacity = capacity;
    out->memory = memory;
    out->spare = (kvern_row *)((char *)memory + capacity * caches * ROW_BYTES);
    out->lengths = (int64_t *)(out->spare + capacity);
    out->counts = out->lengths + capacity;
    out->round_begin = out->counts + capacity;
    out->round_most = out->round_begin + capacity;
    out->named = (bool *)(out->round_most + capacity);
    return KVERN_OK;
}

void kvern_row_block_free(kvern_heap *heap, kvern_row_block *block)
{
    kvern_heap_give(heap, block->memory, block_bytes(block->caches, block->capacity),
                    KVERN_HEAP_ALIGNMENT);
    memset(block, 0, sizeof *block);
}

void kvern_row_block_place(const kvern_row_block *block, size_t index, kvern_cache *cache)
{
    cache->rows = (kvern_row *)((char *)block->memory + index * block->capacity * ROW_BYTES);
    cache->changes = (kvern_row_change *)(cache->rows + block->capacity);
    cache->conversions = (kvern_conversion *)(cache->changes + block->capacity);
    cache->undos = (kvern_row_undo *)(cache->conversions + block->capacity);
}

// At least twice as large, so that rows which come one by one cost the same each; or, where there
// is no room for that, just large enough.
static kvern_status create_larger(kvern_heap *heap, const kvern_row_block *block, size_t rows,
                                  kvern_row_block *larger)
{
    const size_t wish = kvern_min_size(2 * block->capacity, KVERN_MAX_ROWS);
    kvern_status status =
        kvern_row_block_create(heap, block->caches, kvern_max_size(rows, wish), larger);
    if (status && wish > rows)
        status = kvern_row_block_create(heap, block->caches, rows, larger);
    return status;
}

// Cache by cache: what lies between the rows is for the length of a call only.
kvern_status kvern_row_block_grow(kvern_cache *caches, size_t rows)
{
    kvern_row_block *block = caches[0].block;
    if (rows <= block->capacity)
        return KVERN_OK;
    kvern_heap *heap = &kvern_cache_context(&caches[0])->heap;
    const size_t held = caches[0].row_count;
    kvern_row_block larger;
    kvern_status status = create_larger(heap, block, rows, &larger);
    if (status)
        return status;
    for (size_t c = 0; c < block->caches; c++) {
        const kvern_row *old = caches[c].rows;
        kvern_row_block_place(&larger, c, &caches[c]);
        memcpy(caches[c].rows, old, held * sizeof *old);
    }
    memcpy(larger.lengths, block->lengths, held * sizeof larger.lengths[0]);
    kvern_row_block_free(heap, block);
    *block = larger;
    return KVERN_OK;
}
