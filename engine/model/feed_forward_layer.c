// SPDX-License-Identifier: MIT
#include "engine/model/feed_forward_layer.h"

void feed_forward_list_tensors(feed_forward_layer *layer, const model_layer_facts *facts,
                               size_t width, tensor_specs *list)
{
    size_t inner = facts->feed_forward;
    tensor_spec_matrix(list, "ffn_gate.weight", inner, width, &layer->gate);
    tensor_spec_matrix(list, "ffn_up.weight", inner, width, &layer->up);
    tensor_spec_matrix(list, "ffn_down.weight", width, inner, &layer->down);
}

void feed_forward_list_fused_tensors(feed_forward_layer *layer, const model_layer_facts *facts,
                                     size_t width, tensor_specs *list)
{
    static const char fused[] = "ffn_up.weight";
    size_t inner = facts->feed_forward;
    tensor_spec_part(list, fused, 2 * inner, 0, inner, width, &layer->gate);
    tensor_spec_part(list, fused, 2 * inner, inner, inner, width, &layer->up);
    tensor_spec_matrix(list, "ffn_down.weight", width, inner, &layer->down);
}

void feed_forward_list_scratch(const model_layer_facts *facts, model_scratch *list)
{
    model_scratch_need(list, SCRATCH_GATE, facts->feed_forward);
    model_scratch_need(list, SCRATCH_UP, facts->feed_forward);
}

kvern_status feed_forward_run(const feed_forward_layer *layer, const forward_pass *pass,
                              const float *norm, forward_activation activation, float *y, bool add,
                              engine_error *error)
{
    float *const *scratch = pass->workspace->array;
    const linear *readers[] = {&layer->gate, &layer->up};
    forward_norm_input(pass, norm, readers, 2);
    const linear_job projections[] = {
        forward_product(pass, &layer->gate, NULL, scratch[SCRATCH_GATE], false),
        forward_product(pass, &layer->up, NULL, scratch[SCRATCH_UP], false),
    };
    kvern_status status = forward_apply(pass, projections, 2, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_gated_input(pass, activation, scratch[SCRATCH_UP], layer->down.cols, &layer->down);
    const linear_job down = forward_product(pass, &layer->down, NULL, y, add);
    return forward_apply(pass, &down, 1, error);
}
