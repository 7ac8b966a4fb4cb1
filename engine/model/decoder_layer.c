// SPDX-License-Identifier: MIT
#include "engine/model/decoder_layer.h"

#include <kvern/math.h>

static void list_norms(const model_facts *facts, decoder_layer *layer, tensor_specs *list)
{
    tensor_spec_norm(list, "attn_norm.weight", facts->width, &layer->attention_norm);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
}

void decoder_list_fused_tensors(const model_facts *facts, size_t index, void *object,
                                tensor_specs *list)
{
    decoder_layer *layer = object;
    const model_layer_facts *sizes = &facts->layer[index];
    list_norms(facts, layer, list);
    attention_list_fused_tensors(&layer->attention, sizes, facts->width, list);
    feed_forward_list_fused_tensors(&layer->feed_forward, sizes, facts->width, list);
}

void decoder_list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    const model_layer_facts *sizes = &facts->layer[index];
    list_norms(facts, layer, list);
    attention_list_tensors(&layer->attention, sizes, facts->width, list);
    feed_forward_list_tensors(&layer->feed_forward, sizes, facts->width, list);
}

void decoder_list_post_norms(decoder_layer *layer, size_t width, tensor_specs *list)
{
    tensor_spec_norm(list, "post_attention_norm.weight", width, &layer->post_attention_norm);
    tensor_spec_norm(list, "post_ffw_norm.weight", width, &layer->post_feed_forward_norm);
}

void decoder_list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    attention_list_scratch(&facts->layer[index], list);
    feed_forward_list_scratch(&facts->layer[index], list);
}

void decoder_list_post_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    decoder_list_scratch(facts, index, list);
    model_scratch_need(list, SCRATCH_BRANCH, facts->width);
}

kvern_layer decoder_plan_layer(const model_facts *facts, size_t index)
{
    const model_layer_facts *layer = &facts->layer[index];
    kvern_layer plan = kvern_layer_default(layer->kv_heads, layer->head_dim);
    if (layer->kind == MODEL_LAYER_WINDOW) {
        plan = kvern_layer_window(layer->kv_heads, layer->head_dim, (int64_t)layer->window);
    }
    if (layer->kind == MODEL_LAYER_CHUNKED) {
        plan = kvern_layer_chunked(layer->kv_heads, layer->head_dim, (int64_t)layer->window);
    }
    plan.v_dim = layer->value_dim;
    if (layer->shared) {
        plan = kvern_layer_shared(&plan, 0);
        plan.donor = layer->donor;
    }
    return plan;
}

// Where a half's output goes: to the stream at once, or into the branch that is normed first.
static float *output_of(const forward_pass *pass, const float *post_norm)
{
    return pass->workspace->array[post_norm ? SCRATCH_BRANCH : SCRATCH_X];
}

kvern_status decoder_run_attention(const decoder_layer *layer, size_t index,
                                   const forward_pass *pass, engine_error *error)
{
    const float *post_norm = layer->post_attention_norm;
    float *output = output_of(pass, post_norm);
    kvern_status status =
        attention_project(&layer->attention, pass, index, layer->attention_norm, error);
    if (status == KVERN_OK) {
        status = attention_run(&layer->attention, pass, index, output, !post_norm, error);
    }
    if (status == KVERN_OK && post_norm) {
        forward_add_norm(pass, output, post_norm);
    }
    return status;
}

kvern_status decoder_run_feed_forward(const decoder_layer *layer, const forward_pass *pass,
                                      forward_activation activation, engine_error *error)
{
    const float *post_norm = layer->post_feed_forward_norm;
    float *output = output_of(pass, post_norm);
    kvern_status status = feed_forward_run(&layer->feed_forward, pass, layer->feed_forward_norm,
                                           activation, output, !post_norm, error);
    if (status == KVERN_OK && post_norm) {
        forward_add_norm(pass, output, post_norm);
    }
    return status;
}

static kvern_status run_both(const decoder_layer *layer, size_t index, const forward_pass *pass,
                             forward_activation activation, engine_error *error)
{
    kvern_status status = decoder_run_attention(layer, index, pass, error);
    return status == KVERN_OK ? decoder_run_feed_forward(layer, pass, activation, error) : status;
}

kvern_status decoder_run_silu(const void *layer, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    return run_both(layer, index, pass, kvern_silu_array, error);
}

kvern_status decoder_run_gelu(const void *layer, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    return run_both(layer, index, pass, kvern_gelu_array, error);
}
