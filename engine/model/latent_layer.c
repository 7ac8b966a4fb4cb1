// SPDX-License-Identifier: MIT
#include "engine/model/latent_layer.h"

#include "engine/model/head_products.h"

#include <math.h>
#include <string.h>

// Of the norm of index keys, whatever that of the model is.
#define INDEX_EPSILON 1e-6f

// --- What a layer is

static void list_queries(latent_layer *layer, const model_facts *facts, size_t heads,
                         tensor_specs *list)
{
    const model_latent *latent = &facts->latent;
    const size_t rows = heads * (latent->key + latent->rope), rank = latent->q_rank;
    if (rank == 0) {
        tensor_spec_matrix(list, "attn_q.weight", rows, facts->width, &layer->q);
        return;
    }
    tensor_spec_matrix(list, "attn_q_a.weight", rank, facts->width, &layer->q_a);
    tensor_spec_vector(list, "attn_q_a_norm.weight", rank, &layer->q_a_norm);
    tensor_spec_matrix(list, "attn_q_b.weight", rows, rank, &layer->q);
}

// The projections of keys and values: those of a head behind each other in one tensor, or each in a
// tensor of its own, with keys turned.
static void list_projections(latent_layer *layer, const model_latent *latent, size_t heads,
                             tensor_specs *list)
{
    const size_t rank = latent->latent, key = latent->key, value = latent->value;
    if (!latent->fused) {
        tensor_spec_stack(list, "attn_k_b.weight", heads, rank, key, &layer->key);
        tensor_spec_stack(list, "attn_v_b.weight", heads, value, rank, &layer->value);
        return;
    }
    tensor_spec *keys = tensor_spec_stack(list, "attn_kv_b.weight", heads, key, rank, &layer->key);
    keys->fused_rows = key + value;
    keys->flat = keys->turned = true;
    tensor_spec *values =
        tensor_spec_stack(list, "attn_kv_b.weight", heads, value, rank, &layer->value);
    values->fused_rows = key + value;
    values->first_row = key;
    values->flat = true;
}

static void list_indexer(latent_indexer *indexer, const model_facts *facts, tensor_specs *list)
{
    const model_latent *latent = &facts->latent;
    const size_t heads = latent->index_heads, dim = latent->index_dim;
    tensor_spec_matrix(list, "indexer.attn_q_b.weight", heads * dim, latent->q_rank, &indexer->q);
    tensor_spec_matrix(list, "indexer.attn_k.weight", dim, facts->width, &indexer->k);
    tensor_spec_vector(list, "indexer.k_norm.weight", dim, &indexer->norm);
    tensor_spec_vector(list, "indexer.k_norm.bias", dim, &indexer->norm_bias);
    tensor_spec_matrix(list, "indexer.proj.weight", heads, facts->width, &indexer->weights);
}

void latent_list_tensors(latent_layer *layer, const model_facts *facts, size_t index,
                         tensor_specs *list)
{
    const model_latent *latent = &facts->latent;
    const size_t heads = facts->layer[index].heads, width = facts->width;
    list_queries(layer, facts, heads, list);
    tensor_spec_matrix(list, "attn_kv_a_mqa.weight", latent->latent + latent->rope, width,
                       &layer->kv_a);
    tensor_spec_vector(list, "attn_kv_a_norm.weight", latent->latent, &layer->kv_a_norm);
    list_projections(layer, latent, heads, list);
    tensor_spec_matrix(list, "attn_output.weight", width, heads * latent->value, &layer->output);
    if (facts->layer[index].indexed) {
        list_indexer(&layer->indexer, facts, list);
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void latent_list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    const model_latent *latent = &facts->latent;
    const size_t heads = facts->layer[index].heads;
    model_scratch_need(list, SCRATCH_Q, heads * (latent->key + latent->rope));
    model_scratch_need(list, SCRATCH_Q_RANK, latent->q_rank);
    model_scratch_need(list, SCRATCH_K, latent->latent + latent->rope);
    model_scratch_need(list, SCRATCH_ABSORBED, heads * (latent->latent + latent->rope));
    model_scratch_need(list, SCRATCH_LATENTS, heads * latent->latent);
    model_scratch_need(list, SCRATCH_MIXED, heads * latent->value);
    model_scratch_need(list, SCRATCH_INDEX_Q, latent->index_heads * latent->index_dim);
    model_scratch_need(list, SCRATCH_INDEX_K, latent->index_dim);
    model_scratch_need(list, SCRATCH_INDEX_WEIGHTS, latent->index_heads);
    list->heads.heads = larger(list->heads.heads, heads);
    list->heads.cols = larger(list->heads.cols, larger(latent->key, latent->latent));
    list->top_k = latent->index_heads ? latent->index_top_k : 0;
}

kvern_layer latent_plan_layer(const model_facts *facts, size_t index)
{
    const model_latent *latent = &facts->latent;
    return kvern_layer_latent(latent->latent, latent->rope,
                              facts->layer[index].indexed ? latent->index_dim : 0);
}

// --- Queries, latents, index keys

static void norm_q_rank(const forward_pass *pass, const void *norm, size_t begin, size_t end,
                        float *scratch)
{
    const model_workspace *w = pass->workspace;
    const model_latent *latent = &pass->facts->latent;
    const size_t rank = latent->q_rank;
    for (size_t t = begin; t < end; t++) {
        pass->ops->rms_norm(w->array[SCRATCH_Q_RANK] + t * rank, norm, latent->norm_epsilon, rank,
                            scratch);
        linear_input_row(&w->input, t, scratch);
    }
}

// Everything that is made of the normed stream.
static kvern_status project_stream(const latent_layer *layer, const forward_pass *pass,
                                   size_t index, const float *norm, engine_error *error)
{
    float *const *array = pass->workspace->array;
    const bool ranked = pass->facts->latent.q_rank > 0, indexed = pass->facts->layer[index].indexed;
    const linear *q = ranked ? &layer->q_a : &layer->q;
    const linear *readers[] = {q, &layer->kv_a, &layer->indexer.k, &layer->indexer.weights};
    forward_norm_input(pass, norm, readers, indexed ? 4 : 2);
    const linear_job jobs[] = {
        forward_product(pass, q, NULL, array[ranked ? SCRATCH_Q_RANK : SCRATCH_Q], false),
        forward_product(pass, &layer->kv_a, NULL, array[SCRATCH_K], false),
        forward_product(pass, &layer->indexer.k, NULL, array[SCRATCH_INDEX_K], false),
        forward_product(pass, &layer->indexer.weights, NULL, array[SCRATCH_INDEX_WEIGHTS], false),
    };
    return forward_apply(pass, jobs, indexed ? 4 : 2, error);
}

// What is made of the queries' rank.
static kvern_status project_rank(const latent_layer *layer, const forward_pass *pass, size_t index,
                                 engine_error *error)
{
    float *const *array = pass->workspace->array;
    const size_t rank = pass->facts->latent.q_rank;
    const bool indexed = pass->facts->layer[index].indexed;
    const linear *readers[] = {&layer->q, &layer->indexer.q};
    if (rank == 0) {
        return KVERN_OK;
    }
    forward_begin_input(pass, pass->tokens, rank, readers, indexed ? 2 : 1);
    forward_each_token(pass, pass->tokens, rank, norm_q_rank, layer->q_a_norm);
    const linear_job jobs[] = {
        forward_product(pass, &layer->q, NULL, array[SCRATCH_Q], false),
        forward_product(pass, &layer->indexer.q, NULL, array[SCRATCH_INDEX_Q], false),
    };
    return forward_apply(pass, jobs, indexed ? 2 : 1, error);
}

static void rotate(const forward_pass *pass, uint32_t index, size_t token, float *x, size_t heads,
                   size_t stride)
{
    const engine_rope *rope = &pass->ropes[index];
    const float *row = pass->workspace->rotary[index] + token * engine_rope_row(rope);
    if (rope->style == ENGINE_ROPE_PAIRS) {
        pass->ops->rotate_pairs(x, heads, stride, row, rope->dim);
    } else {
        pass->ops->rotate_halves(x, heads, stride, row, rope->dim);
    }
}

// Norms a token's latent, rotates its key and the ends of its queries (where a model does), which
// are queries of latents there already.
static void finish_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                        float *scratch)
{
    const latent_layer *layer = arg;
    const model_latent *latent = &pass->facts->latent;
    float *const *array = pass->workspace->array;
    const size_t heads = layer->key.count, rope = latent->rope, rank = latent->latent;
    const size_t query = latent->key + rope, absorbed = rank + rope;
    for (size_t t = begin; t < end; t++) {
        float *kv = array[SCRATCH_K] + t * absorbed, *q = array[SCRATCH_Q] + t * heads * query;
        float *to = array[SCRATCH_ABSORBED] + t * heads * absorbed + rank;
        pass->ops->rms_norm(kv, layer->kv_a_norm, latent->norm_epsilon, rank, scratch);
        memcpy(kv, scratch, rank * sizeof *kv);
        if (pass->facts->ropes > 0) {
            rotate(pass, 0, t, kv + rank, 1, absorbed);
            rotate(pass, 0, t, q + latent->key, heads, query);
        }
        for (size_t h = 0; h < heads; h++) {
            memcpy(to + h * absorbed, q + h * query + latent->key, rope * sizeof *to);
        }
    }
}

// (x - mean) / deviation * norm + bias, in place. Sums ascend.
static void layer_norm(float *x, size_t n, const float *norm, const float *bias)
{
    float sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    const float mean = sum / (float)n;
    for (size_t i = 0; i < n; i++) {
        x[i] -= mean;
        squares = fmaf(x[i], x[i], squares);
    }
    const float scale = 1.0f / sqrtf(squares / (float)n + INDEX_EPSILON);
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] * scale * norm[i] + bias[i];
    }
}

static void finish_index_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                              float *unused)
{
    (void)unused;
    const latent_indexer *indexer = arg;
    const model_latent *latent = &pass->facts->latent;
    float *const *array = pass->workspace->array;
    const size_t heads = latent->index_heads, dim = latent->index_dim;
    const float scale = (1.0f / sqrtf((float)heads)) * (1.0f / sqrtf((float)dim));
    for (size_t t = begin; t < end; t++) {
        float *k = array[SCRATCH_INDEX_K] + t * dim;
        float *weights = array[SCRATCH_INDEX_WEIGHTS] + t * heads;
        layer_norm(k, dim, indexer->norm, indexer->norm_bias);
        rotate(pass, latent->index_rope, t, k, 1, dim);
        rotate(pass, latent->index_rope, t, array[SCRATCH_INDEX_Q] + t * heads * dim, heads, dim);
        for (size_t h = 0; h < heads; h++) {
            weights[h] *= scale;
        }
    }
}

static kvern_status project(const latent_layer *layer, const forward_pass *pass, size_t index,
                            const float *norm, engine_error *error)
{
    const model_latent *latent = &pass->facts->latent;
    float *const *array = pass->workspace->array;
    const size_t heads = layer->key.count, query = latent->key + latent->rope;
    const size_t absorbed = latent->latent + latent->rope;
    kvern_status status = project_stream(layer, pass, index, norm, error);
    if (status == KVERN_OK) {
        status = project_rank(layer, pass, index, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    forward_each_token(pass, pass->tokens, heads * absorbed, finish_rows, layer);
    if (pass->facts->layer[index].indexed) {
        forward_each_token(pass, pass->tokens, latent->index_heads * latent->index_dim,
                           finish_index_rows, &layer->indexer);
    }
    const head_vectors q = {array[SCRATCH_Q], heads * query, query};
    const head_vectors to = {array[SCRATCH_ABSORBED], heads * absorbed, absorbed};
    return forward_heads(pass, &layer->key, q, to, error);
}

// --- Attention

static const kvern_layer *plan_of_latents(const forward_pass *pass, size_t index)
{
    return kvern_composition_layer(kvern_state_composition(pass->state), index);
}

static kvern_status append(const forward_pass *pass, size_t index, kvern_read **read,
                           engine_error *error)
{
    const model_latent *latent = &pass->facts->latent;
    float *const *array = pass->workspace->array;
    const int64_t stride = (int64_t)(latent->latent + latent->rope);
    kvern_latent_tokens tokens = kvern_latent_tokens_default(plan_of_latents(pass, index));
    tokens.latent = array[SCRATCH_K];
    tokens.rope = latent->rope ? array[SCRATCH_K] + latent->latent : NULL;
    tokens.index = pass->facts->layer[index].indexed ? array[SCRATCH_INDEX_K] : NULL;
    tokens.latent_token_stride = tokens.rope_token_stride = stride;
    kvern_status status = kvern_step_append_latent(pass->state, index, &tokens, read);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "appending latents");
}

// Whether a token may see more positions than are selected.
static bool must_select(const forward_pass *pass, const kvern_read *read)
{
    const model_latent *latent = &pass->facts->latent;
    bool longer = false;
    for (size_t r = 0; r < kvern_state_rows(pass->state) && latent->index_heads > 0; r++) {
        longer = longer || kvern_read_length(read, r) > (int64_t)latent->index_top_k;
    }
    return longer;
}

// The positions of every token of the step.
static kvern_status select_positions(const forward_pass *pass, const kvern_read *read,
                                     engine_error *error)
{
    const model_latent *latent = &pass->facts->latent;
    model_workspace *w = pass->workspace;
    kvern_index_queries queries = kvern_index_queries_default(
        latent->index_heads, latent->index_dim, (int64_t)latent->index_top_k);
    queries.q = w->array[SCRATCH_INDEX_Q];
    queries.weights = w->array[SCRATCH_INDEX_WEIGHTS];
    w->selection = kvern_selection_default(w->selected, w->selected_counts, w->max_tokens,
                                           (int64_t)latent->index_top_k);
    kvern_status status = kvern_read_select(read, &queries, &w->selection);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "selecting positions");
}

static kvern_status attend(const forward_pass *pass, size_t index, kvern_read *read,
                           engine_error *error)
{
    const model_workspace *w = pass->workspace;
    kvern_queries queries =
        kvern_queries_default(plan_of_latents(pass, index), pass->facts->layer[index].heads);
    queries.scale = pass->facts->attention_scale;
    queries.q = w->array[SCRATCH_ABSORBED];
    queries.out = w->array[SCRATCH_LATENTS];
    // Reads of all layers of a step are as long as each other: where a layer shares a selection,
    // the latest one that is indexed has made it in this step.
    const bool selects = must_select(pass, read);
    kvern_status status = selects && pass->facts->layer[index].indexed
                              ? select_positions(pass, read, error)
                              : KVERN_OK;
    if (status != KVERN_OK) {
        return status;
    }
    queries.selection = selects ? &w->selection : NULL;
    status = kvern_read_attend(read, &queries);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "attending");
}

kvern_status latent_run(const latent_layer *layer, const forward_pass *pass, size_t index,
                        const float *norm, engine_error *error)
{
    const model_latent *latent = &pass->facts->latent;
    float *const *array = pass->workspace->array;
    const size_t heads = layer->key.count;
    kvern_read *read;
    kvern_status status = project(layer, pass, index, norm, error);
    if (status == KVERN_OK) {
        status = append(pass, index, &read, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = attend(pass, index, read, error);
    kvern_read_release(read);
    if (status != KVERN_OK) {
        return status;
    }
    const head_vectors latents = {array[SCRATCH_LATENTS], heads * latent->latent, latent->latent};
    const head_vectors values = {array[SCRATCH_MIXED], heads * latent->value, latent->value};
    status = forward_heads(pass, &layer->value, latents, values, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_plain_input(pass, array[SCRATCH_MIXED], &layer->output);
    const linear_job output = forward_product(pass, &layer->output, NULL, array[SCRATCH_X], true);
    return forward_apply(pass, &output, 1, error);
}
