// SPDX-License-Identifier: MIT
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/file/container/container.h"

#include <string.h>

#define MOST_PAGES ((size_t)UINT32_MAX / 4)

kvern_status kvern_page_numbers_create(kvern_heap *heap, size_t most, kvern_page_numbers *out)
{
    void *block;
    *out = (kvern_page_numbers){.heap = heap, .slot_count = 16};
    if (most > MOST_PAGES)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu pages in one file", most);
    while (out->slot_count < 2 * most)
        out->slot_count *= 2;
    kvern_status status =
        kvern_heap_take_zeroed(heap, out->slot_count * sizeof out->slots[0], &block);
    if (status)
        return status;
    out->slots = block;
    out->capacity = most + 1;
    status =
        kvern_heap_take(heap, out->capacity * sizeof out->list[0], KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        kvern_page_numbers_free(out);
    else
        out->list = block;
    return status;
}

void kvern_page_numbers_free(kvern_page_numbers *numbers)
{
    if (numbers->slots)
        kvern_heap_give(numbers->heap, numbers->slots,
                        numbers->slot_count * sizeof numbers->slots[0], KVERN_HEAP_ALIGNMENT);
    if (numbers->list)
        kvern_heap_give(numbers->heap, numbers->list, numbers->capacity * sizeof numbers->list[0],
                        KVERN_HEAP_ALIGNMENT);
    *numbers = (kvern_page_numbers){0};
}

// Where the page is, or where it would be. Addresses of pages are multiples of 8.
static uint32_t *slot_of(const kvern_page_numbers *numbers, const kvern_page *page)
{
    size_t at = (size_t)(((uintptr_t)page >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    for (;; at++) {
        uint32_t *slot = &numbers->slots[at & (numbers->slot_count - 1)];
        if (*slot == 0 || numbers->list[*slot - 1].page == page)
            return slot;
    }
}

size_t kvern_page_numbers_add(kvern_page_numbers *numbers, kvern_page *page, uint64_t slots)
{
    uint32_t *slot = slot_of(numbers, page);
    if (*slot == 0) {
        KVERN_ASSERT(numbers->count < numbers->capacity);
        numbers->list[numbers->count++] = (kvern_numbered_page){page, 0};
        *slot = (uint32_t)numbers->count;
    }
    numbers->list[*slot - 1].slots |= slots;
    return *slot - 1;
}

size_t kvern_page_numbers_find(const kvern_page_numbers *numbers, const kvern_page *page)
{
    const uint32_t *slot = slot_of(numbers, page);
    KVERN_ASSERT(*slot > 0);
    return *slot - 1;
}
