// SPDX-License-Identifier: MIT
// Recurrent layers: the slots of an ArraysCache.
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/mlx/mlx_fill.h"
#include "src/file/mlx/mlx_slots.h"
#include "src/math/element.h"

#include <string.h>

kvern_mlx_slot_list kvern_mlx_slots_of(const kvern_layer *plan, bool split)
{
    kvern_mlx_slot_list list = {0};
    const size_t keys = plan->key_heads * plan->k_dim, values = plan->value_heads * plan->v_dim;
    const size_t channels[3] = {keys, keys, values};
    size_t at = 0;
    for (size_t i = 0; plan->conv_kernel && i < (split ? 3 : 1); i++) {
        const size_t dim = split ? channels[i] : plan->conv_dim;
        list.slots[list.count++] =
            (kvern_mlx_slot){.dims = 2, .shape = {plan->conv_kernel - 1, dim}, .channel = at};
        at += dim;
    }
    list.slots[list.count++] = (kvern_mlx_slot){
        .dims = 3, .shape = {plan->value_heads, plan->v_dim, plan->k_dim}, .is_state = true};
    return list;
}

size_t kvern_mlx_slot_elements(const kvern_mlx_slot *slot)
{
    size_t elements = 1;
    for (size_t d = 0; d < slot->dims; d++)
        elements *= slot->shape[d];
    return elements;
}

static bool fits(const kvern_tensor *tensor, const kvern_mlx_slot *slot)
{
    bool same = tensor->dims == slot->dims + 1;
    for (size_t d = 0; same && d < slot->dims; d++)
        same = tensor->shape[d + 1] == slot->shape[d];
    return same;
}

static kvern_status check_slots(const kvern_mlx_source *source, const kvern_cache *cache,
                                const kvern_mlx_slot_list *list)
{
    const kvern_mlx_item *item = source->item;
    if (item->slot_count != list->count)
        return kvern_mlx_misfit(source, cache, "%zu slots, where the layer has %zu",
                                item->slot_count, list->count);
    for (size_t e = 0; e < list->count; e++) {
        if (item->slots[e] && !fits(item->slots[e], &list->slots[e]))
            return kvern_mlx_misfit(source, cache, "slot %zu is not of the layer's dims", e);
    }
    return KVERN_OK;
}

// Row `row` of a slot, to where the layer's own arrays have it. None leaves zeros.
static void load_slot(const kvern_tensor *tensor, const kvern_mlx_slot *slot, size_t row,
                      const kvern_layer *plan, const kvern_recur_state *to)
{
    const size_t elements = kvern_mlx_slot_elements(slot);
    const size_t inner = slot->is_state ? elements : slot->shape[1];
    if (!tensor)
        return;
    const kvern_type type = kvern_mlx_type_of(tensor);
    for (size_t i = 0; i < elements; i++) {
        const float value = kvern_load_element(type, tensor->data, (int64_t)(row * elements + i));
        if (slot->is_state)
            to->s[i] = value;
        else
            to->conv[i / inner * plan->conv_dim + slot->channel + i % inner] = value;
    }
}

static kvern_status fill_row(const kvern_mlx_source *source, kvern_cache *cache,
                             const kvern_mlx_slot_list *list, size_t row, void *block, size_t bytes)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    const size_t conv = plan->conv_kernel ? (plan->conv_kernel - 1) * plan->conv_dim : 0;
    const kvern_recur_state state = {
        .size = sizeof state, .conv = plan->conv_kernel ? block : NULL, .s = (float *)block + conv};
    memset(block, 0, bytes);
    for (size_t e = 0; e < list->count; e++)
        load_slot(source->item->slots[e], &list->slots[e], row, plan, &state);
    return kvern_cache_fill_recurrent(cache, row, source->lengths[row], &state);
}

size_t kvern_mlx_state_floats(const kvern_layer *plan)
{
    const size_t conv = plan->conv_kernel ? (plan->conv_kernel - 1) * plan->conv_dim : 0;
    return conv + plan->value_heads * plan->v_dim * plan->k_dim;
}

kvern_status kvern_mlx_fill_recurrent(const kvern_mlx_source *source, kvern_cache *cache)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    const kvern_mlx_item *item = source->item;
    if (item->class != KVERN_MLX_ARRAYS)
        return kvern_mlx_misfit(source, cache, "the layer's state is in an ArraysCache");
    if (plan->recurrence == KVERN_RECURRENCE_LANE)
        return kvern_mlx_misfit(source, cache, "what is in a lane only its caller knows");
    const bool split =
        plan->conv_kernel && item->slot_count == 4 && plan->recurrence != KVERN_RECURRENCE_SSD;
    const kvern_mlx_slot_list list = kvern_mlx_slots_of(plan, split);
    kvern_status status = check_slots(source, cache, &list);
    if (status || item->rows == 0)
        return status;
    kvern_heap *heap = &kvern_cache_context(cache)->heap;
    const size_t bytes = kvern_mlx_state_floats(plan) * sizeof(float);
    void *block;
    if ((status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block)))
        return status;
    for (size_t r = 0; r < item->rows && !status; r++) {
        if (source->lengths[r] > 0)
            status = fill_row(source, cache, &list, r, block, bytes);
    }
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}
