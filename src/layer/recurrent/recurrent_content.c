// SPDX-License-Identifier: MIT
// Rows of recurrent layers as data.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/layer/recurrent/recurrent.h"

#include <string.h>

static kvern_status check_part(const kvern_planned_layer *layer, const char *name,
                               const void *array, bool has, bool all)
{
    if (array && !has)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s, which %s does not have", layer->index,
                          name, layer->signature);
    if (!array && has && all)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s is NULL", layer->index, name);
    return KVERN_OK;
}

kvern_status kvern_recurrent_check_content(const kvern_planned_layer *layer,
                                           const kvern_recur_state *content, bool all)
{
    const bool lane = kvern_recurrent_is_lane(layer);
    kvern_status status =
        check_part(layer, "conv", content->conv, layer->plan.conv_kernel != 0, all);
    if (!status)
        status = check_part(layer, "s", content->s, !lane, all);
    return status ? status : check_part(layer, "lane", content->lane, lane, all);
}

// [value_heads, v_dim, k_dim] and [conv_kernel - 1, conv_dim].
static size_t s_bytes(const kvern_layer *plan)
{
    return plan->value_heads * plan->v_dim * plan->k_dim * sizeof(float);
}

static size_t conv_bytes(const kvern_layer *plan)
{
    return plan->conv_kernel ? (plan->conv_kernel - 1) * plan->conv_dim * sizeof(float) : 0;
}

static void export_zeros(const kvern_layer *plan, const kvern_recur_state *content)
{
    if (content->conv)
        memset(content->conv, 0, conv_bytes(plan));
    if (content->s)
        memset(content->s, 0, s_bytes(plan));
    if (content->lane)
        memset(content->lane, 0, plan->lane_bytes);
}

void kvern_recurrent_export(const kvern_planned_layer *layer, const kvern_page *page,
                            const kvern_recur_state *content)
{
    const kvern_layer *plan = &layer->plan;
    if (!page) {
        export_zeros(plan, content);
        return;
    }
    if (content->lane)
        memcpy(content->lane, page->data, plan->lane_bytes);
    if (content->conv)
        memcpy(content->conv, page->data, conv_bytes(plan));
    if (content->s) {
        const kvern_recurrence_shape shape = kvern_recurrent_shape(plan);
        kvern_recurrence_export_s(&shape, page->data, content->s);
    }
}

void kvern_recurrent_import(const kvern_planned_layer *layer, const kvern_recur_state *content,
                            kvern_page *page)
{
    const kvern_layer *plan = &layer->plan;
    KVERN_ASSERT(!kvern_recurrent_check_content(layer, content, true));
    memset(page->data, 0, layer->geometry.page_bytes);
    if (content->lane)
        memcpy(page->data, content->lane, plan->lane_bytes);
    if (content->conv)
        memcpy(page->data, content->conv, conv_bytes(plan));
    if (content->s) {
        const kvern_recurrence_shape shape = kvern_recurrent_shape(plan);
        kvern_recurrence_import_s(&shape, content->s, page->data);
    }
}
