// SPDX-License-Identifier: MIT
#include "engine/model/attention_layer.h"

#include <kvern/math.h>
#include <string.h>

static void want_rotated(tensor_spec *spec, const model_layer_facts *facts)
{
    spec->kind = MODEL_TENSOR_ROTATED;
    spec->head = facts->head_dim;
}

static void list_queries(attention_layer *layer, const model_layer_facts *facts, size_t width,
                         tensor_specs *list)
{
    const size_t queries = (size_t)facts->heads * facts->head_dim;
    want_rotated(tensor_spec_matrix(list, "attn_q.weight", queries, width, &layer->q), facts);
}

static void list_output(attention_layer *layer, const model_layer_facts *facts, size_t width,
                        tensor_specs *list)
{
    const size_t mixed = (size_t)facts->heads * facts->value_dim;
    tensor_spec_matrix(list, "attn_output.weight", width, mixed, &layer->output);
}

static void list_keys(attention_layer *layer, const model_layer_facts *facts, size_t width,
                      tensor_specs *list)
{
    const size_t keys = (size_t)facts->kv_heads * facts->head_dim;
    want_rotated(tensor_spec_matrix(list, "attn_k.weight", keys, width, &layer->k), facts);
}

static void list_other_matrices(attention_layer *layer, const model_layer_facts *facts,
                                size_t width, tensor_specs *list)
{
    const size_t values = (size_t)facts->kv_heads * facts->value_dim;
    list_keys(layer, facts, width, list);
    tensor_spec_matrix(list, "attn_v.weight", values, width, &layer->v);
    list_output(layer, facts, width, list);
}

void attention_list_shared_tensors(attention_layer *layer, const model_layer_facts *facts,
                                   size_t width, tensor_specs *list)
{
    list_queries(layer, facts, width, list);
    list_output(layer, facts, width, list);
}

void attention_list_keys_tensors(attention_layer *layer, const model_layer_facts *facts,
                                 size_t width, tensor_specs *list)
{
    layer->values_are_keys = true;
    list_queries(layer, facts, width, list);
    list_keys(layer, facts, width, list);
    list_output(layer, facts, width, list);
}

void attention_list_tensors(attention_layer *layer, const model_layer_facts *facts, size_t width,
                            tensor_specs *list)
{
    list_queries(layer, facts, width, list);
    list_other_matrices(layer, facts, width, list);
}

void attention_list_fused_tensors(attention_layer *layer, const model_layer_facts *facts,
                                  size_t width, tensor_specs *list)
{
    static const char fused[] = "attn_qkv.weight";
    size_t queries = (size_t)facts->heads * facts->head_dim;
    size_t keys = (size_t)facts->kv_heads * facts->head_dim;
    size_t values = (size_t)facts->kv_heads * facts->value_dim;
    size_t mixed = (size_t)facts->heads * facts->value_dim;
    size_t all = queries + keys + values;
    want_rotated(tensor_spec_part(list, fused, all, 0, queries, width, &layer->q), facts);
    want_rotated(tensor_spec_part(list, fused, all, queries, keys, width, &layer->k), facts);
    tensor_spec_part(list, fused, all, queries + keys, values, width, &layer->v);
    tensor_spec_matrix(list, "attn_output.weight", width, mixed, &layer->output);
}

void attention_list_gated_tensors(attention_layer *layer, const model_layer_facts *facts,
                                  size_t width, tensor_specs *list)
{
    const size_t dim = facts->head_dim, queries = facts->heads * dim;
    linear *const parts[] = {&layer->q, &layer->gate};
    layer->gated = true;
    for (size_t i = 0; i < 2; i++) {
        tensor_spec *spec =
            tensor_spec_part(list, "attn_q.weight", 2 * queries, i * dim, queries, width, parts[i]);
        spec->pieces = facts->heads;
        if (i == 0) {
            want_rotated(spec, facts);
        }
    }
    list_other_matrices(layer, facts, width, list);
}

void attention_list_input_biases(attention_layer *layer, const model_layer_facts *facts,
                                 tensor_specs *list)
{
    size_t queries = (size_t)facts->heads * facts->head_dim;
    size_t keys = (size_t)facts->kv_heads * facts->head_dim;
    size_t values = (size_t)facts->kv_heads * facts->value_dim;
    want_rotated(tensor_spec_vector(list, "attn_q.bias", queries, &layer->q_bias), facts);
    want_rotated(tensor_spec_vector(list, "attn_k.bias", keys, &layer->k_bias), facts);
    tensor_spec_vector(list, "attn_v.bias", values, &layer->v_bias);
}

void attention_list_biases(attention_layer *layer, const model_layer_facts *facts, size_t width,
                           tensor_specs *list)
{
    size_t first = list->count;
    attention_list_input_biases(layer, facts, list);
    tensor_spec_vector(list, "attn_output.bias", width, &layer->output_bias);
    for (size_t i = first; i < list->count; i++) {
        list->spec[i].optional = true;
    }
}

void attention_list_norms(attention_layer *layer, const model_layer_facts *facts,
                          tensor_specs *list)
{
    tensor_spec_norm(list, "attn_q_norm.weight", facts->head_dim, &layer->q_norm);
    tensor_spec_norm(list, "attn_k_norm.weight", facts->head_dim, &layer->k_norm);
    list->query_norm = &layer->q_norm;
    list->key_norm = &layer->k_norm;
}

void attention_list_sinks(attention_layer *layer, const model_layer_facts *facts,
                          tensor_specs *list)
{
    tensor_spec_vector(list, "attn_sinks.weight", facts->heads, &layer->sinks);
}

void attention_list_whole_norms(attention_layer *layer, const model_layer_facts *facts,
                                tensor_specs *list)
{
    const size_t dim = facts->head_dim;
    layer->whole_norms = true;
    tensor_spec_norm(list, "attn_q_norm.weight", facts->heads * dim, &layer->q_norm);
    tensor_spec_norm(list, "attn_k_norm.weight", facts->kv_heads * dim, &layer->k_norm);
}

void attention_list_scratch(const model_layer_facts *facts, model_scratch *list)
{
    model_scratch_need(list, SCRATCH_Q, (size_t)facts->heads * facts->head_dim);
    model_scratch_need(list, SCRATCH_K, (size_t)facts->kv_heads * facts->head_dim);
    model_scratch_need(list, SCRATCH_V, (size_t)facts->kv_heads * facts->value_dim);
    model_scratch_need(list, SCRATCH_MIXED, (size_t)facts->heads * facts->value_dim);
}

void attention_list_gated_scratch(const model_layer_facts *facts, model_scratch *list)
{
    attention_list_scratch(facts, list);
    model_scratch_need(list, SCRATCH_GATE, (size_t)facts->heads * facts->value_dim);
}

// The matrices that a layer has, and where each puts its products.
typedef struct projections {
    size_t count;
    const linear *matrix[4];
    const float *bias[4];
    float *to[4];
} projections;

static void add_projection(projections *p, const linear *matrix, const float *bias, float *to)
{
    p->matrix[p->count] = matrix;
    p->bias[p->count] = bias;
    p->to[p->count++] = to;
}

static projections projections_of(const attention_layer *layer, const forward_pass *pass,
                                  size_t index)
{
    float *const *scratch = pass->workspace->array;
    projections p = {0};
    add_projection(&p, &layer->q, layer->q_bias, scratch[SCRATCH_Q]);
    if (!pass->facts->layer[index].shared) {
        add_projection(&p, &layer->k, layer->k_bias, scratch[SCRATCH_K]);
        if (!layer->values_are_keys) {
            add_projection(&p, &layer->v, layer->v_bias, scratch[SCRATCH_V]);
        }
    }
    if (layer->gated) {
        add_projection(&p, &layer->gate, NULL, scratch[SCRATCH_GATE]);
    }
    return p;
}

// Values are what keys are before their norms.
static void make_values(const attention_layer *layer, const forward_pass *pass, size_t index)
{
    float *const *scratch = pass->workspace->array;
    const model_layer_facts *facts = &pass->facts->layer[index];
    const size_t floats = pass->tokens * facts->kv_heads * facts->value_dim;
    if (facts->shared) {
        return;
    }
    if (layer->values_are_keys) {
        memcpy(scratch[SCRATCH_V], scratch[SCRATCH_K], floats * sizeof(float));
    }
    if (layer->unit_values) {
        forward_norm_parts(pass, scratch[SCRATCH_V], facts->kv_heads, facts->value_dim, NULL);
    }
}

kvern_status attention_project(const attention_layer *layer, const forward_pass *pass, size_t index,
                               const float *norm, engine_error *error)
{
    float *const *scratch = pass->workspace->array;
    const projections p = projections_of(layer, pass, index);
    linear_job jobs[4];
    forward_norm_input(pass, norm, p.matrix, p.count);
    for (size_t i = 0; i < p.count; i++) {
        jobs[i] = forward_product(pass, p.matrix[i], p.bias[i], p.to[i], false);
    }
    kvern_status status = forward_apply(pass, jobs, p.count, error);
    if (status != KVERN_OK) {
        return status;
    }
    make_values(layer, pass, index);
    if (layer->q_norm && layer->whole_norms) {
        forward_norm_parts(pass, scratch[SCRATCH_Q], 1, layer->q.rows, layer->q_norm);
        forward_norm_parts(pass, scratch[SCRATCH_K], 1, layer->k.rows, layer->k_norm);
    } else if (layer->q_norm) {
        forward_norm_heads(pass, index, layer->q_norm, layer->k_norm);
    }
    forward_rotate(pass, index);
    return KVERN_OK;
}

kvern_status attention_run(const attention_layer *layer, const forward_pass *pass, size_t index,
                           float *y, bool add, engine_error *error)
{
    kvern_read *read;
    kvern_status status = forward_append(pass, index, &read, error);
    if (status == KVERN_OK) {
        status = forward_attend(pass, index, read, layer->sinks, error);
        kvern_read_release(read);
    }
    if (status != KVERN_OK) {
        return status;
    }
    const float *mixed = pass->workspace->array[SCRATCH_MIXED];
    if (layer->gated) {
        forward_gated_input(pass, kvern_sigmoid_array, mixed, layer->output.cols, &layer->output);
    } else {
        forward_plain_input(pass, mixed, &layer->output);
    }
    const linear_job output = forward_product(pass, &layer->output, layer->output_bias, y, add);
    return forward_apply(pass, &output, 1, error);
}
