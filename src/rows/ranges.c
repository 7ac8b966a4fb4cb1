// SPDX-License-Identifier: MIT
#include "src/rows/ranges.h"

#include "src/base/assert.h"

static size_t bytes_of(size_t count, size_t flag_words)
{
    return sizeof(kvern_ranges) + count * sizeof(kvern_range) + flag_words * sizeof(uint64_t);
}

_Static_assert(sizeof(kvern_ranges) % sizeof(uint64_t) == 0 && sizeof(kvern_range) == 16,
               "flags behind the ranges are aligned");

kvern_status kvern_ranges_create(kvern_heap *heap, size_t count, size_t flag_words,
                                 kvern_ranges **out)
{
    void *block;
    *out = NULL;
    KVERN_ASSERT(count > 0 && count <= KVERN_MAX_RANGES);
    kvern_status status =
        kvern_heap_take(heap, bytes_of(count, flag_words), KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_ranges *ranges = block;
    ranges->references = 1;
    ranges->heap = heap;
    ranges->stored = 0;
    ranges->count = count;
    ranges->flag_words = flag_words;
    ranges->flags = (uint64_t *)(ranges->list + count);
    *out = ranges;
    return KVERN_OK;
}

size_t kvern_ranges_bytes(const kvern_ranges *ranges)
{
    return bytes_of(ranges->count, ranges->flag_words);
}

void kvern_ranges_retain(kvern_ranges *ranges)
{
    if (ranges)
        atomic_fetch_add_explicit(&ranges->references, 1, memory_order_relaxed);
}

void kvern_ranges_release(kvern_ranges *ranges)
{
    if (ranges && atomic_fetch_sub(&ranges->references, 1) == 1)
        kvern_heap_give(ranges->heap, ranges, kvern_ranges_bytes(ranges), KVERN_HEAP_ALIGNMENT);
}

const kvern_range *kvern_ranges_find(const kvern_ranges *ranges, size_t count, int64_t position)
{
    size_t low = 0, high = count; // the ranges before `low` begin at or before the position
    KVERN_ASSERT(count == 0 || count <= ranges->count);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ranges->list[middle].begin <= position)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || ranges->list[low - 1].end <= position)
        return NULL;
    return &ranges->list[low - 1];
}

const kvern_range *kvern_ranges_cut(const kvern_ranges *ranges, size_t count, int64_t length)
{
    const kvern_range *range = kvern_ranges_find(ranges, count, length);
    return range && range->begin < length ? range : NULL;
}

bool kvern_ranges_flag_any(const kvern_ranges *ranges, int64_t at, int64_t count)
{
    uint64_t any = 0;
    KVERN_ASSERT(at % 64 == 0 && count % 64 == 0);
    for (int64_t block = at; block < at + count; block += 64)
        any |= kvern_ranges_flags_at(ranges, block);
    return any != 0;
}
