// SPDX-License-Identifier: MIT
// Recurrent layers as an ArraysCache.
#include "src/file/mlx/mlx_export.h"
#include "src/file/mlx/mlx_slots.h"
#include "src/math/element.h"
#include "src/math/fpenv.h"
#include "src/state/state.h"

#include <kvern/recurrent.h>
#include <stdio.h>

static bool is_split(const kvern_mlx_exporter *x, const kvern_layer *plan)
{
    if (x->options.slots == KVERN_MLX_SLOTS_BY_KIND)
        return plan->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS;
    return x->options.slots == KVERN_MLX_SLOTS_SPLIT;
}

static kvern_type type_of(const kvern_mlx_exporter *x, const kvern_mlx_slot *slot)
{
    return slot->is_state ? KVERN_F32 : x->options.conv;
}

static kvern_status describe_slot(kvern_mlx_exporter *x, const kvern_mlx_place *at,
                                  const char *leaf, const kvern_mlx_slot *slot)
{
    const kvern_type type = type_of(x, slot);
    const kvern_dtype dtype = type == KVERN_F32    ? KVERN_DTYPE_F32
                              : type == KVERN_BF16 ? KVERN_DTYPE_BF16
                                                   : KVERN_DTYPE_F16;
    uint64_t shape[4] = {x->rows};
    for (size_t d = 0; d < slot->dims; d++)
        shape[d + 1] = slot->shape[d];
    return kvern_mlx_describe(&x->sink, at, leaf, dtype, slot->dims + 1, shape);
}

// `conv` is where a row's convolution has this slot's first number.
static kvern_status put_conv(kvern_mlx_exporter *x, const kvern_layer *plan,
                             const kvern_mlx_slot *slot, const float *conv)
{
    unsigned char number[4];
    const kvern_type type = x->options.conv;
    kvern_status status = KVERN_OK;
    for (size_t tap = 0; tap < slot->shape[0]; tap++) {
        for (size_t c = 0; c < slot->shape[1] && !status; c++) {
            kvern_store_element(type, number, 0, conv[tap * plan->conv_dim + c]);
            status = kvern_mlx_put(&x->sink, number, kvern_type_bytes(type));
        }
    }
    return status;
}

static kvern_status put_slot(kvern_mlx_exporter *x, const kvern_cache *cache,
                             const kvern_mlx_slot *slot, float *room)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    kvern_recur_state state = {.size = sizeof state};
    kvern_status status = KVERN_OK;
    *(slot->is_state ? &state.s : &state.conv) = room;
    for (size_t r = 0; r < x->rows && !status; r++) {
        if ((status = kvern_cache_export_recurrent(cache, r, &state)))
            break;
        status = slot->is_state
                     ? kvern_mlx_put(&x->sink, room, kvern_mlx_slot_elements(slot) * sizeof *room)
                     : put_conv(x, plan, slot, room + slot->channel);
    }
    return status;
}

static kvern_status export_list(kvern_mlx_exporter *x, const kvern_cache *cache,
                                const kvern_mlx_place *at, const kvern_mlx_slot_list *list,
                                float *room)
{
    kvern_status status = KVERN_OK;
    for (size_t e = 0; e < list->count && !status; e++) {
        char leaf[16];
        snprintf(leaf, sizeof leaf, x->sink.layout == KVERN_MLX_STATES ? "0.%zu" : "%zu", e);
        status = x->sink.describing ? describe_slot(x, at, leaf, &list->slots[e])
                                    : put_slot(x, cache, &list->slots[e], room);
    }
    if (!status)
        status = kvern_mlx_none(&x->sink, at, "1");
    return status ? status : kvern_mlx_none(&x->sink, at, "2");
}

kvern_status kvern_mlx_export_slots(kvern_mlx_exporter *x, const kvern_cache *cache,
                                    const kvern_mlx_place *at)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    const kvern_mlx_slot_list list = kvern_mlx_slots_of(plan, is_split(x, plan));
    const size_t bytes = kvern_mlx_state_floats(plan) * sizeof(float);
    kvern_heap *heap = &kvern_cache_context(cache)->heap;
    void *block;
    kvern_status status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    const kvern_fp_saved saved = kvern_fp_enter();
    status = export_list(x, cache, at, &list, block);
    kvern_fp_leave(saved);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}
