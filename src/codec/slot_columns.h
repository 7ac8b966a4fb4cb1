// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_SLOT_COLUMNS_H
#define KVERN_CODEC_SLOT_COLUMNS_H

// Blocks, or parts of them, whose rows have an element for each of the 64 slots: a slot is a
// column. So keys lie in every codec.

#include "src/base/assert.h"

#include <kvern/composition.h>

#include <stdint.h>

// Inlined with a constant size of elements below.
static inline __attribute__((always_inline)) void
kvern_gather_columns_of(size_t element_bytes, size_t rows, const char *from, const uint8_t *slots,
                        size_t count, char *to)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < count; i++)
            __builtin_memcpy(to + i * element_bytes, from + slots[i] * element_bytes,
                             element_bytes);
        from += KVERN_PAGE_POSITIONS * element_bytes;
        to += KVERN_PAGE_POSITIONS * element_bytes;
    }
}

// Copies the columns slots[0 .. count - 1] to the ones from `at` on. Elements have 2 or 4 bytes.
static inline void kvern_gather_columns(size_t element_bytes, size_t rows, const void *from,
                                        const uint8_t *slots, size_t count, void *to, size_t at)
{
    char *first = (char *)to + at * element_bytes;
    KVERN_ASSERT(element_bytes == 2 || element_bytes == 4);
    KVERN_ASSERT(at + count <= KVERN_PAGE_POSITIONS);
    KVERN_ASSERT(count == 0 || slots[count - 1] < KVERN_PAGE_POSITIONS); // ascending
    if (element_bytes == 4)
        kvern_gather_columns_of(4, rows, from, slots, count, first);
    else
        kvern_gather_columns_of(2, rows, from, slots, count, first);
}

#endif
