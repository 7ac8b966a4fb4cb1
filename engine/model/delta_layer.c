// SPDX-License-Identifier: MIT
#include "engine/model/delta_layer.h"

#include "engine/kernels/natural_log.h"

#include <kvern/math.h>
#include <kvern/recurrent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// What is added to the sum of squares of queries and keys, whose lengths become 1.
#define DELTA_LENGTH_EPSILON 1e-6f

static size_t key_channels(const model_delta *delta)
{
    return delta->key_heads * delta->key_dim;
}

static size_t value_channels(const model_delta *delta)
{
    return delta->value_heads * delta->value_dim;
}

static size_t conv_channels(const model_delta *delta)
{
    return 2 * key_channels(delta) + value_channels(delta);
}

static size_t decays(const model_delta *delta)
{
    return delta->value_heads * (delta->rank ? delta->key_dim : 1);
}

kvern_layer delta_plan(const model_facts *facts)
{
    const model_delta *delta = &facts->delta;
    return kvern_layer_recurrent(
        delta->rank ? KVERN_RECURRENCE_DELTA_CHANNELS : KVERN_RECURRENCE_DELTA, delta->key_heads,
        delta->value_heads, delta->key_dim, delta->value_dim, (uint32_t)delta->taps);
}

// --- Tensors

// Parts of a matrix that has, for each key head, the rows of all of them behind each other.
static void list_pieces(tensor_specs *list, const model_facts *facts, const char *name,
                        linear *const *parts, const size_t *rows, size_t count)
{
    size_t all = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        all += rows[i];
    }
    for (size_t i = 0; i < count; i++) {
        tensor_spec *spec =
            tensor_spec_part(list, name, all, first, rows[i], facts->width, parts[i]);
        spec->pieces = facts->delta.key_heads;
        first += rows[i] / facts->delta.key_heads;
    }
}

static void list_inputs(delta_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const size_t keys = key_channels(&facts->delta), values = value_channels(&facts->delta);
    const size_t all = conv_channels(&facts->delta), width = facts->width;
    if (facts->delta.fused_inputs) {
        linear *const parts[] = {&layer->q, &layer->k, &layer->v, &layer->z};
        list_pieces(list, facts, "ssm_in.weight", parts,
                    (const size_t[]){keys, keys, values, values}, 4);
        return;
    }
    static const char fused[] = "attn_qkv.weight";
    tensor_spec_part(list, fused, all, 0, keys, width, &layer->q);
    tensor_spec_part(list, fused, all, keys, keys, width, &layer->k);
    tensor_spec_part(list, fused, all, 2 * keys, values, width, &layer->v);
    tensor_spec_matrix(list, "attn_gate.weight", values, width, &layer->z);
}

static void list_gates(delta_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const size_t heads = facts->delta.value_heads, width = facts->width;
    if (facts->delta.fused_gates) {
        linear *const parts[] = {&layer->b, &layer->a};
        list_pieces(list, facts, "ssm_ba.weight", parts, (const size_t[]){heads, heads}, 2);
        return;
    }
    tensor_spec_matrix(list, "ssm_beta.weight", heads, width, &layer->b);
    tensor_spec_matrix(list, "ssm_alpha.weight", heads, width, &layer->a);
}

static void list_convolution(tensor_specs *list, const model_delta *delta, const char *name,
                             size_t channels, float **out)
{
    tensor_spec_vector(list, name, delta->taps, out)->count = channels;
}

// All but vectors, of a layer with a rank.
static void list_ranked(delta_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const model_delta *delta = &facts->delta;
    const size_t keys = key_channels(delta), values = value_channels(delta), width = facts->width;
    tensor_spec_matrix(list, "attn_q.weight", keys, width, &layer->q);
    tensor_spec_matrix(list, "attn_k.weight", keys, width, &layer->k);
    tensor_spec_matrix(list, "attn_v.weight", values, width, &layer->v);
    tensor_spec_matrix(list, "ssm_f_a.weight", delta->rank, width, &layer->a_rank);
    tensor_spec_matrix(list, "ssm_f_b.weight", decays(delta), delta->rank, &layer->a);
    tensor_spec_matrix(list, "ssm_g_a.weight", delta->rank, width, &layer->z_rank);
    tensor_spec_matrix(list, "ssm_g_b.weight", values, delta->rank, &layer->z);
    tensor_spec_matrix(list, "ssm_beta.weight", delta->value_heads, width, &layer->b);
    list_convolution(list, delta, "ssm_conv1d_q.weight", keys, &layer->convolution);
    list_convolution(list, delta, "ssm_conv1d_k.weight", keys, &layer->k_convolution);
    list_convolution(list, delta, "ssm_conv1d_v.weight", values, &layer->v_convolution);
    tensor_spec_matrix(list, "attn_output.weight", width, values, &layer->output);
}

static void list_fused(delta_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const model_delta *delta = &facts->delta;
    list_inputs(layer, facts, list);
    list_gates(layer, facts, list);
    list_convolution(list, delta, "ssm_conv1d.weight", conv_channels(delta), &layer->convolution);
    tensor_spec_matrix(list, "ssm_out.weight", facts->width, value_channels(delta), &layer->output);
}

void delta_list_tensors(delta_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const model_delta *delta = &facts->delta;
    if (delta->rank) {
        list_ranked(layer, facts, list);
    } else {
        list_fused(layer, facts, list);
    }
    tensor_spec_vector(list, "ssm_a", delta->value_heads, &layer->a_log);
    tensor_spec_vector(list, "ssm_dt.bias", decays(delta), &layer->dt_bias);
    tensor_spec_vector(list, "ssm_norm.weight", delta->value_dim, &layer->norm);
}

void delta_list_scratch(const model_facts *facts, model_scratch *list)
{
    const model_delta *delta = &facts->delta;
    model_scratch_need(list, SCRATCH_Q, conv_channels(delta));
    model_scratch_need(list, SCRATCH_K, decays(delta));
    model_scratch_need(list, SCRATCH_V, delta->value_heads);
    model_scratch_need(list, SCRATCH_GATE, value_channels(delta));
    model_scratch_need(list, SCRATCH_MIXED, value_channels(delta));
    model_scratch_need(list, SCRATCH_DECAY_RANK, delta->rank);
    model_scratch_need(list, SCRATCH_GATE_RANK, delta->rank);
}

// --- The order of value heads

// With `tiled` value heads a file has those of key head 0, 1, ... in turn, where the library wants
// those of one key head behind each other. Puts `values`, of `dim` numbers per head, into that
// order, or back; `room` is as large.
static void reorder(const model_delta *delta, bool back, size_t dim, float *values, float *room)
{
    const size_t keys = delta->key_heads, ratio = delta->value_heads / keys;
    for (size_t key = 0; key < keys; key++) {
        for (size_t i = 0; i < ratio; i++) {
            const size_t grouped = key * ratio + i, tiled = i * keys + key;
            memcpy(room + (back ? tiled : grouped) * dim, values + (back ? grouped : tiled) * dim,
                   dim * sizeof *values);
        }
    }
    memcpy(values, room, delta->value_heads * dim * sizeof *values);
}

static void group_rows(const forward_pass *pass, const void *unused, size_t begin, size_t end,
                       float *scratch)
{
    (void)unused;
    const model_delta *delta = &pass->facts->delta;
    float *const *array = pass->workspace->array;
    const size_t channels = conv_channels(delta), first = 2 * key_channels(delta);
    for (size_t t = begin; t < end; t++) {
        reorder(delta, false, delta->value_dim, array[SCRATCH_Q] + t * channels + first, scratch);
        reorder(delta, false, 1, array[SCRATCH_K] + t * delta->value_heads, scratch);
        reorder(delta, false, 1, array[SCRATCH_V] + t * delta->value_heads, scratch);
    }
}

static void tile_rows(const forward_pass *pass, const void *unused, size_t begin, size_t end,
                      float *scratch)
{
    (void)unused;
    const model_delta *delta = &pass->facts->delta;
    for (size_t t = begin; t < end; t++) {
        reorder(delta, true, delta->value_dim,
                pass->workspace->array[SCRATCH_MIXED] + t * value_channels(delta), scratch);
    }
}

// --- What a file has otherwise

// From [count, taps] to the channels from `first` on of [taps, channels].
static void turn_taps(const model_delta *delta, const float *in, size_t count, size_t first,
                      float *out)
{
    const size_t channels = conv_channels(delta);
    for (size_t c = 0; c < count; c++) {
        for (size_t j = 0; j < delta->taps; j++) {
            out[j * channels + first + c] = in[c * delta->taps + j];
        }
    }
}

// The convolution, or those of queries, keys and values as one.
static void turn_convolution(const model_delta *delta, delta_layer *layer, float *turned)
{
    const size_t keys = key_channels(delta);
    if (delta->rank) {
        turn_taps(delta, layer->convolution, keys, 0, turned);
        turn_taps(delta, layer->k_convolution, keys, keys, turned);
        turn_taps(delta, layer->v_convolution, value_channels(delta), 2 * keys, turned);
    } else {
        turn_taps(delta, layer->convolution, conv_channels(delta), 0, turned);
    }
    free(layer->convolution);
    free(layer->k_convolution);
    free(layer->v_convolution);
    layer->convolution = turned;
    layer->k_convolution = layer->v_convolution = NULL;
}

// -exp(A) back to A. A number that is no such thing becomes a NaN, and so do results.
static void undo_exp(const model_delta *delta, float *a_log)
{
    for (size_t i = 0; i < delta->value_heads; i++) {
        a_log[i] = a_log[i] < 0 ? (float)natural_log(-(double)a_log[i]) : NAN;
    }
}

static void group_vectors(const model_delta *delta, delta_layer *layer, float *room)
{
    const size_t first = 2 * key_channels(delta);
    reorder(delta, false, 1, layer->a_log, room);
    reorder(delta, false, 1, layer->dt_bias, room);
    for (size_t j = 0; j < delta->taps; j++) {
        reorder(delta, false, delta->value_dim,
                layer->convolution + j * conv_channels(delta) + first, room);
    }
}

kvern_status delta_finish(delta_layer *layer, const model_facts *facts, engine_error *error)
{
    const model_delta *delta = &facts->delta;
    float *turned = malloc(delta->taps * conv_channels(delta) * sizeof *turned);
    float *room = malloc(value_channels(delta) * sizeof *room);
    if (!turned || !room) {
        free(turned);
        free(room);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a convolution");
    }
    turn_convolution(delta, layer, turned);
    if (delta->decays) {
        undo_exp(delta, layer->a_log);
    }
    if (delta->tiled) {
        group_vectors(delta, layer, room);
    }
    free(room);
    return KVERN_OK;
}

// --- Forward

// A product whose rows are a part of the convolution's channels.
static linear_job channel_product(const forward_pass *pass, const linear *weights, size_t first)
{
    linear_job job =
        forward_product(pass, weights, NULL, pass->workspace->array[SCRATCH_Q] + first, false);
    job.y_stride = conv_channels(&pass->facts->delta);
    return job;
}

static kvern_status project(const delta_layer *layer, const forward_pass *pass, const float *norm,
                            engine_error *error)
{
    float *const *array = pass->workspace->array;
    const size_t keys = key_channels(&pass->facts->delta);
    const bool ranked = pass->facts->delta.rank > 0;
    const linear *z = ranked ? &layer->z_rank : &layer->z, *a = ranked ? &layer->a_rank : &layer->a;
    const linear *readers[] = {&layer->q, &layer->k, &layer->v, z, a, &layer->b};
    forward_norm_input(pass, norm, readers, 6);
    const linear_job projections[] = {
        channel_product(pass, &layer->q, 0),
        channel_product(pass, &layer->k, keys),
        channel_product(pass, &layer->v, 2 * keys),
        forward_product(pass, z, NULL, array[ranked ? SCRATCH_GATE_RANK : SCRATCH_GATE], false),
        forward_product(pass, a, NULL, array[ranked ? SCRATCH_DECAY_RANK : SCRATCH_K], false),
        forward_product(pass, &layer->b, NULL, array[SCRATCH_V], false),
    };
    return forward_apply(pass, projections, 6, error);
}

// One of the matrices behind those of project, where there is a rank between them.
static kvern_status project_rank(const forward_pass *pass, const linear *weights, model_array from,
                                 model_array to, engine_error *error)
{
    float *const *array = pass->workspace->array;
    forward_plain_input(pass, array[from], weights);
    const linear_job job = forward_product(pass, weights, NULL, array[to], false);
    return forward_apply(pass, &job, 1, error);
}

static kvern_status project_ranks(const delta_layer *layer, const forward_pass *pass,
                                  engine_error *error)
{
    kvern_status status = project_rank(pass, &layer->a, SCRATCH_DECAY_RANK, SCRATCH_K, error);
    return status == KVERN_OK
               ? project_rank(pass, &layer->z, SCRATCH_GATE_RANK, SCRATCH_GATE, error)
               : status;
}

static kvern_status recur(const delta_layer *layer, const forward_pass *pass, size_t index,
                          engine_error *error)
{
    float *const *array = pass->workspace->array;
    const kvern_layer *plan = forward_plan(pass, index);
    kvern_recur_weights weights = kvern_recur_weights_default(plan);
    weights.conv_weight = layer->convolution;
    weights.a_log = layer->a_log;
    weights.dt_bias = layer->dt_bias;
    weights.norm_eps = DELTA_LENGTH_EPSILON / (float)plan->k_dim; // it is a mean there
    kvern_recur_tokens tokens = kvern_recur_tokens_default(plan);
    tokens.x = array[SCRATCH_Q];
    tokens.a = array[SCRATCH_K];
    tokens.b = array[SCRATCH_V];
    tokens.y = array[SCRATCH_MIXED];
    tokens.weights = &weights;
    kvern_status status = kvern_step_recur(pass->state, index, &tokens);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "a recurrent layer");
}

kvern_status delta_run(const delta_layer *layer, const forward_pass *pass, size_t index,
                       const float *norm, engine_error *error)
{
    const model_delta *delta = &pass->facts->delta;
    float *const *array = pass->workspace->array;
    kvern_status status = project(layer, pass, norm, error);
    if (status == KVERN_OK && delta->rank) {
        status = project_ranks(layer, pass, error);
    }
    if (status == KVERN_OK && delta->tiled) {
        forward_each_token(pass, pass->tokens, value_channels(delta), group_rows, NULL);
    }
    if (status == KVERN_OK) {
        status = recur(layer, pass, index, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    if (delta->tiled) {
        forward_each_token(pass, pass->tokens, value_channels(delta), tile_rows, NULL);
    }
    forward_norm_parts(pass, array[SCRATCH_MIXED], delta->value_heads, delta->value_dim,
                       layer->norm);
    forward_gated_input(pass, delta->rank ? kvern_sigmoid_array : kvern_silu_array,
                        array[SCRATCH_MIXED], layer->output.cols, &layer->output);
    const linear_job output = forward_product(pass, &layer->output, NULL, array[SCRATCH_X], true);
    return forward_apply(pass, &output, 1, error);
}
