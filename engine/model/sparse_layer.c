// SPDX-License-Identifier: MIT
#include "engine/model/sparse_layer.h"

#include "engine/model/experts_facts.h"
#include "engine/model/facts_parts.h"

void sparse_list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    sparse_layer *layer = object;
    tensor_spec_norm(list, "attn_norm.weight", facts->width, &layer->attention_norm);
    attention_list_tensors(&layer->attention, &facts->layer[index], facts->width, list);
    experts_list_tensors(&layer->experts, facts, index, list);
}

void sparse_list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    attention_list_scratch(&facts->layer[index], list);
    experts_list_scratch(facts, index, list);
}

static kvern_status run(const sparse_layer *layer, size_t index, const forward_pass *pass,
                        experts_activation activation, engine_error *error)
{
    float *x = pass->workspace->array[SCRATCH_X];
    kvern_status status =
        attention_project(&layer->attention, pass, index, layer->attention_norm, error);
    if (status == KVERN_OK) {
        status = attention_run(&layer->attention, pass, index, x, true, error);
    }
    return status == KVERN_OK ? experts_run(&layer->experts, pass, index, layer->feed_forward_norm,
                                            activation, error)
                              : status;
}

kvern_status sparse_run_silu(const void *layer, size_t index, const forward_pass *pass,
                             engine_error *error)
{
    return run(layer, index, pass, EXPERTS_SILU, error);
}

kvern_status sparse_run_swiglu_oai(const void *layer, size_t index, const forward_pass *pass,
                                   engine_error *error)
{
    return run(layer, index, pass, EXPERTS_SWIGLU_OAI, error);
}

kvern_status sparse_read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = facts_read_experts(reader, facts);
    }
    return status == KVERN_OK ? facts_read_rope(reader, facts) : status;
}
