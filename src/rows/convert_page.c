// SPDX-License-Identifier: MIT
#include "src/rows/convert_page.h"

#include <string.h>

// Bytes of the largest block of bf16.
#define MOST_BLOCK_BYTES ((size_t)KVERN_PAGE_POSITIONS * KVERN_MAX_HEAD_DIM * 2)

// One head of a stream. Both codecs see its numbers in f32, which holds them exactly.
static void convert_block(const kvern_stream_plan *from, const kvern_stream_plan *to,
                          const void *old, void *fresh, size_t slots)
{
    const kvern_stream form = kvern_stream_form(from);
    float values[4][KVERN_MAX_HEAD_DIM];
    for (size_t slot = 0; slot < slots; slot += 4) {
        const size_t count = slots - slot < 4 ? slots - slot : 4;
        for (size_t i = 0; i < count; i++)
            from->type->decode(&from->codec, form, old, from->dim, slot + i, values[i]);
        kvern_block_encode(to, fresh, slot, count, KVERN_F32, values, sizeof values[0]);
    }
}

void kvern_convert_page(const kvern_geometry *from, const kvern_geometry *to, void *old,
                        void *fresh, size_t slots)
{
    for (size_t s = 0; s < from->stream_count; s++) {
        const kvern_stream_plan *a = &from->streams[s], *b = &to->streams[s];
        for (size_t head = 0; head < a->heads; head++)
            convert_block(a, b, kvern_page_block(a, old, head), kvern_page_block(b, fresh, head),
                          slots);
    }
}

void kvern_convert_head(const kvern_geometry *from, const kvern_geometry *to, void *old,
                        void *fresh, size_t head)
{
    for (size_t s = 0; s < from->stream_count; s++) {
        const kvern_stream_plan *a = &from->streams[s], *b = &to->streams[s];
        convert_block(a, b, kvern_page_block(a, old, head), kvern_page_block(b, fresh, head),
                      KVERN_PAGE_POSITIONS);
    }
}

// The new form may lie over the old one: all of that is read before any of it is written.
static void move_block(const kvern_stream_plan *from, const kvern_stream_plan *to, const void *old,
                       void *fresh, size_t slots)
{
    _Alignas(64) char copy[MOST_BLOCK_BYTES];
    KVERN_ASSERT(from->block_bytes <= sizeof copy);
    memcpy(copy, old, from->block_bytes);
    convert_block(from, to, copy, fresh, slots);
}

// Block by block in the order of the page. No block grows, so none of the new ones ends behind the
// old one, and what is written lies over blocks that have been read.
void kvern_convert_in_place(const kvern_geometry *from, const kvern_geometry *to, void *page,
                            size_t slots)
{
    for (size_t s = 0; s < from->stream_count; s++) {
        const kvern_stream_plan *a = &from->streams[s], *b = &to->streams[s];
        KVERN_ASSERT(b->block_bytes <= a->block_bytes && b->offset <= a->offset);
        for (size_t head = 0; head < a->heads; head++)
            move_block(a, b, kvern_page_block(a, page, head), kvern_page_block(b, page, head),
                       slots);
    }
}
