// SPDX-License-Identifier: MIT
// What of a page is written. Slots without a position, and what a recurrent state leaves free, hold
// what the memory held before, perhaps for somebody else; in a file they are zeros.
#include "src/base/assert.h"
#include "src/file/container/container.h"
#include "src/layer/recurrent/recurrent.h"

#include <string.h>

// Copies slots [begin, end) of all streams.
static void copy_slots(const kvern_geometry *g, void *page, size_t begin, size_t end, void *to)
{
    uint8_t slots[KVERN_PAGE_POSITIONS];
    for (size_t i = begin; i < end; i++)
        slots[i - begin] = (uint8_t)i;
    for (size_t s = 0; s < g->stream_count; s++)
        kvern_stream_gather(&g->streams[s], page, slots, end - begin, to, begin);
}

static void copy_positions(const kvern_geometry *g, void *page, uint64_t slots, void *to)
{
    memset(to, 0, g->page_bytes);
    for (size_t begin = 0; begin < KVERN_PAGE_POSITIONS;) {
        size_t end = begin;
        while (end < KVERN_PAGE_POSITIONS && (slots >> end & 1))
            end++;
        if (end > begin)
            copy_slots(g, page, begin, end, to);
        begin = end + 1;
    }
}

static void copy_state(const kvern_planned_layer *layer, const void *page, char *to)
{
    memcpy(to, page, layer->geometry.page_bytes);
    if (kvern_recurrent_is_lane(layer)) {
        memset(to + layer->plan.lane_bytes, 0, layer->geometry.page_bytes - layer->plan.lane_bytes);
        return;
    }
    const kvern_recurrence_shape shape = kvern_recurrent_shape(&layer->plan);
    const size_t tail = kvern_recurrence_tail_floats(&shape);
    memset(to + tail * sizeof(float), 0,
           (kvern_recurrence_s_offset(&shape) - tail) * sizeof(float));
}

// Blocks have no room but for their slots.
const void *kvern_page_content(const kvern_planned_layer *layer, const kvern_geometry *geometry,
                               const kvern_page *page, uint64_t slots, void *scratch)
{
    KVERN_ASSERT(kvern_page_bytes(page) >= geometry->page_bytes);
    if (geometry->whole)
        copy_state(layer, page->data, scratch);
    else if (slots == UINT64_MAX)
        return page->data;
    else
        copy_positions(geometry, page->data, slots, scratch);
    return scratch;
}
