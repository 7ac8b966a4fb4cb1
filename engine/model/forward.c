// SPDX-License-Identifier: MIT
#include "engine/model/forward.h"

#include <string.h>

// Fewer values than this are worked on faster by one thread than by waking another.
#define FORWARD_PARALLEL_ELEMENTS 4096

// Tokens shared out among tasks.
typedef struct token_split {
    const forward_pass *pass;
    forward_work work;
    const void *arg;
    size_t tokens;
    size_t tasks;
} token_split;

static void run_task(void *arg, size_t index)
{
    const token_split *split = arg;
    const model_workspace *w = split->pass->workspace;
    size_t begin = split->tokens * index / split->tasks;
    size_t end = split->tokens * (index + 1) / split->tasks;
    split->work(split->pass, split->arg, begin, end, w->scratch + index * w->scratch_stride);
}

void forward_each_token(const forward_pass *pass, size_t tokens, size_t elements, forward_work work,
                        const void *arg)
{
    size_t most = pass->workspace->tasks;
    token_split split = {.pass = pass,
                         .work = work,
                         .arg = arg,
                         .tokens = tokens,
                         .tasks = tokens < most ? tokens : most};
    if (pass->executor.threads == 1 || tokens < 2 ||
        tokens < FORWARD_PARALLEL_ELEMENTS / elements) {
        work(pass, arg, 0, tokens, pass->workspace->scratch);
        return;
    }
    pass->executor.run(pass->executor.user, split.tasks, run_task, &split);
}

void forward_begin_input(const forward_pass *pass, size_t tokens, size_t cols,
                         const linear *const *matrices, size_t count)
{
    uint32_t formats = 0;
    for (size_t i = 0; i < count; i++) {
        formats |= LINEAR_FORMAT_BIT(matrices[i]->format);
    }
    model_workspace *w = pass->workspace;
    linear_input_init(&w->input, w->input_memory, cols, tokens, formats, pass->features);
}

static void norm_rows(const forward_pass *pass, const void *weight, size_t begin, size_t end,
                      float *scratch)
{
    const model_workspace *w = pass->workspace;
    size_t width = pass->facts->width;
    for (size_t t = begin; t < end; t++) {
        const float *x = w->array[SCRATCH_X] + t * width;
        if (weight) {
            pass->ops->rms_norm(x, weight, pass->facts->norm_epsilon, width, scratch);
        }
        linear_input_row(&w->input, t, weight ? scratch : x);
    }
}

void forward_norm_input(const forward_pass *pass, const float *weight,
                        const linear *const *matrices, size_t count)
{
    forward_begin_input(pass, pass->tokens, pass->facts->width, matrices, count);
    forward_each_token(pass, pass->tokens, pass->facts->width, norm_rows, weight);
}

static void plain_rows(const forward_pass *pass, const void *values, size_t begin, size_t end,
                       float *scratch)
{
    (void)scratch;
    const linear_input *input = &pass->workspace->input;
    for (size_t t = begin; t < end; t++) {
        linear_input_row(input, t, (const float *)values + t * input->cols);
    }
}

void forward_plain_input(const forward_pass *pass, const float *values, const linear *matrix)
{
    forward_begin_input(pass, pass->tokens, matrix->cols, &matrix, 1);
    forward_each_token(pass, pass->tokens, matrix->cols, plain_rows, values);
}

typedef struct gated_work {
    forward_activation activation;
    const float *values;
    size_t stride;
} gated_work;

static void gated_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                       float *scratch)
{
    (void)scratch;
    const gated_work *work = arg;
    const model_workspace *w = pass->workspace;
    size_t inner = w->input.cols;
    for (size_t t = begin; t < end; t++) {
        float *gate = w->array[SCRATCH_GATE] + t * inner;
        work->activation(pass->features, inner, gate, gate);
        pass->ops->multiply(gate, work->values + t * work->stride, inner);
        linear_input_row(&w->input, t, gate);
    }
}

void forward_gated_input(const forward_pass *pass, forward_activation activation,
                         const float *values, size_t stride, const linear *matrix)
{
    const gated_work work = {activation, values, stride};
    forward_begin_input(pass, pass->tokens, matrix->cols, &matrix, 1);
    forward_each_token(pass, pass->tokens, matrix->cols, gated_rows, &work);
}

typedef struct add_norm_work {
    const float *values;
    const float *weight;
} add_norm_work;

static void add_norm_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                          float *scratch)
{
    const add_norm_work *work = arg;
    size_t width = pass->facts->width;
    for (size_t t = begin; t < end; t++) {
        pass->ops->rms_norm(work->values + t * width, work->weight, pass->facts->norm_epsilon,
                            width, scratch);
        pass->ops->add(pass->workspace->array[SCRATCH_X] + t * width, scratch, width);
    }
}

void forward_add_norm(const forward_pass *pass, const float *values, const float *weight)
{
    const add_norm_work work = {values, weight};
    forward_each_token(pass, pass->tokens, pass->facts->width, add_norm_rows, &work);
}

// The weight of a norm without one: multiplying by it changes no bit.
#define ONES_8 1, 1, 1, 1, 1, 1, 1, 1
#define ONES_64 ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8
static const float ones[] = {ONES_64, ONES_64, ONES_64, ONES_64, ONES_64,
                             ONES_64, ONES_64, ONES_64, ONES_64};
_Static_assert(sizeof ones / sizeof ones[0] == KVERN_MAX_HEAD_DIM, "the longest head");

// `heads` vectors one after the other, in place.
static void norm_heads(const forward_pass *pass, float *x, size_t heads, size_t dim,
                       const float *weight, float *scratch)
{
    weight = weight ? weight : ones;
    for (size_t head = 0; head < heads; head++, x += dim) {
        pass->ops->rms_norm(x, weight, pass->facts->norm_epsilon, dim, scratch);
        memcpy(x, scratch, dim * sizeof *x);
    }
}

// KV heads that a layer has keys for.
static size_t keys_of(const model_layer_facts *layer)
{
    return layer->shared ? 0 : layer->kv_heads;
}

typedef struct norm_heads_work {
    const model_layer_facts *layer;
    const float *q_weight;
    const float *k_weight;
} norm_heads_work;

static void norm_heads_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                            float *scratch)
{
    const norm_heads_work *work = arg;
    float *const *array = pass->workspace->array;
    size_t dim = work->layer->head_dim, heads = work->layer->heads;
    size_t keys = keys_of(work->layer);
    size_t tokens = end - begin;
    norm_heads(pass, array[SCRATCH_Q] + begin * heads * dim, tokens * heads, dim, work->q_weight,
               scratch);
    norm_heads(pass, array[SCRATCH_K] + begin * keys * dim, tokens * keys, dim, work->k_weight,
               scratch);
}

typedef struct norm_parts_work {
    float *values;
    size_t heads;
    size_t dim;
    const float *weight;
} norm_parts_work;

static void norm_parts_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                            float *scratch)
{
    const norm_parts_work *work = arg;
    norm_heads(pass, work->values + begin * work->heads * work->dim, (end - begin) * work->heads,
               work->dim, work->weight, scratch);
}

void forward_norm_parts(const forward_pass *pass, float *values, size_t heads, size_t dim,
                        const float *weight)
{
    const norm_parts_work work = {values, heads, dim, weight};
    forward_each_token(pass, pass->tokens, heads * dim, norm_parts_rows, &work);
}

static size_t rotating_elements(const model_layer_facts *layer)
{
    return (layer->heads + keys_of(layer)) * layer->head_dim;
}

void forward_norm_heads(const forward_pass *pass, size_t layer, const float *q_weight,
                        const float *k_weight)
{
    const norm_heads_work work = {&pass->facts->layer[layer], q_weight, k_weight};
    forward_each_token(pass, pass->tokens, rotating_elements(work.layer), norm_heads_rows, &work);
}

static void rotate_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                        float *scratch)
{
    (void)scratch;
    const model_layer_facts *layer = arg;
    const model_workspace *w = pass->workspace;
    const engine_rope *rope = &pass->ropes[layer->rope];
    size_t dim = layer->head_dim, heads = layer->heads, keys = keys_of(layer);
    void (*rotate)(float *, size_t, size_t, const float *, size_t) =
        rope->style == ENGINE_ROPE_PAIRS ? pass->ops->rotate_pairs : pass->ops->rotate_halves;
    for (size_t t = begin; t < end; t++) {
        const float *row = w->rotary[layer->rope] + t * engine_rope_row(rope);
        rotate(w->array[SCRATCH_Q] + t * heads * dim, heads, dim, row, rope->dim);
        rotate(w->array[SCRATCH_K] + t * keys * dim, keys, dim, row, rope->dim);
    }
}

void forward_rotate(const forward_pass *pass, size_t layer)
{
    const model_layer_facts *facts = &pass->facts->layer[layer];
    forward_each_token(pass, pass->tokens, rotating_elements(facts), rotate_rows, facts);
}

const kvern_layer *forward_plan(const forward_pass *pass, size_t layer)
{
    return kvern_composition_layer(kvern_state_composition(pass->state), layer);
}

kvern_status forward_append(const forward_pass *pass, size_t layer, kvern_read **read,
                            engine_error *error)
{
    const model_workspace *w = pass->workspace;
    if (pass->facts->layer[layer].shared) {
        kvern_status found = kvern_step_read_donor(pass->state, layer, read);
        return found == KVERN_OK ? KVERN_OK
                                 : engine_fail_kvern(error, found, "reading another layer's keys");
    }
    kvern_tokens tokens = kvern_tokens_default(forward_plan(pass, layer));
    tokens.k = w->array[SCRATCH_K];
    tokens.v = w->array[SCRATCH_V];
    kvern_status status = kvern_step_append(pass->state, layer, &tokens, read);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "appending keys and values");
}

kvern_status forward_attend(const forward_pass *pass, size_t layer, kvern_read *read,
                            const float *sinks, engine_error *error)
{
    const model_workspace *w = pass->workspace;
    kvern_queries queries =
        kvern_queries_default(forward_plan(pass, layer), pass->facts->layer[layer].heads);
    queries.scale = pass->facts->attention_scale;
    queries.softcap = pass->facts->attention_softcap;
    queries.sinks = sinks;
    queries.q = w->array[SCRATCH_Q];
    queries.out = w->array[SCRATCH_MIXED];
    kvern_status status = kvern_read_attend(read, &queries);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "attending");
}

linear_job forward_product(const forward_pass *pass, const linear *weights, const float *bias,
                           float *y, bool add)
{
    return (linear_job){.weights = weights,
                        .input = &pass->workspace->input,
                        .y = y,
                        .y_stride = weights->rows,
                        .add = add,
                        .bias = bias};
}

kvern_status forward_apply(const forward_pass *pass, const linear_job *jobs, size_t count,
                           engine_error *error)
{
    kvern_status status = linear_apply(jobs, count, &pass->executor);
    return status == KVERN_OK
               ? KVERN_OK
               : engine_fail(error, status, "a matrix product was given what does not fit it");
}
