// SPDX-License-Identifier: MIT
#include "engine/model/hybrid_layer.h"

#include "engine/model/decoder_layer.h"

static bool has_delta(const model_facts *facts, size_t index)
{
    return facts->layer[index].kind == MODEL_LAYER_DELTA;
}

void hybrid_list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    hybrid_layer *layer = object;
    sparse_layer *other = &layer->other;
    const model_layer_facts *sizes = &facts->layer[index];
    tensor_spec_norm(list, "attn_norm.weight", facts->width, &other->attention_norm);
    tensor_spec_norm(list, "post_attention_norm.weight", facts->width, &other->feed_forward_norm);
    if (has_delta(facts, index)) {
        delta_list_tensors(&layer->delta, facts, list);
    } else {
        attention_list_gated_tensors(&other->attention, sizes, facts->width, list);
        attention_list_norms(&other->attention, sizes, list);
    }
    experts_list_tensors(&other->experts, facts, index, list);
}

kvern_status hybrid_finish_layer(const model_facts *facts, void *object, engine_error *error)
{
    hybrid_layer *layer = object;
    return layer->delta.convolution ? delta_finish(&layer->delta, facts, error) : KVERN_OK;
}

void hybrid_list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    if (has_delta(facts, index)) {
        delta_list_scratch(facts, list);
    } else {
        attention_list_gated_scratch(&facts->layer[index], list);
    }
    experts_list_scratch(facts, index, list);
}

kvern_layer hybrid_plan_layer(const model_facts *facts, size_t index)
{
    return has_delta(facts, index) ? delta_plan(facts) : decoder_plan_layer(facts, index);
}

static kvern_status run_attention(const sparse_layer *layer, size_t index, const forward_pass *pass,
                                  engine_error *error)
{
    float *x = pass->workspace->array[SCRATCH_X];
    kvern_status status =
        attention_project(&layer->attention, pass, index, layer->attention_norm, error);
    return status == KVERN_OK ? attention_run(&layer->attention, pass, index, x, true, error)
                              : status;
}

kvern_status hybrid_run(const void *object, size_t index, const forward_pass *pass,
                        engine_error *error)
{
    const hybrid_layer *layer = object;
    const sparse_layer *other = &layer->other;
    kvern_status status = has_delta(pass->facts, index)
                              ? delta_run(&layer->delta, pass, index, other->attention_norm, error)
                              : run_attention(other, index, pass, error);
    return status == KVERN_OK ? experts_run(&other->experts, pass, index, other->feed_forward_norm,
                                            EXPERTS_SILU, error)
                              : status;
}
