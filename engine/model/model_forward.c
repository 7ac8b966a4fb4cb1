// SPDX-License-Identifier: MIT
// One forward pass: embeddings, the family's layers, logits where they are wanted.

#include "engine/model/layer_inputs.h"
#include "engine/model/model_internal.h"

#include <kvern/math.h>

// Tokens of row r whose logits are wanted, the newest ones.
static int64_t wanted_tokens(const model_step *step, size_t r)
{
    if (!step->logits) {
        return 0;
    }
    if (step->logits_counts) {
        return step->logits_counts[r];
    }
    return step->counts[r] > 0 ? 1 : 0;
}

// The number of logit vectors that a step writes, for a state of `rows` rows.
static size_t count_logits(const model_step *step, size_t rows)
{
    size_t sum = 0;
    for (size_t r = 0; r < rows; r++) {
        sum += (size_t)wanted_tokens(step, r);
    }
    return sum;
}

static kvern_status check_counts(const model_workspace *w, size_t rows, const model_step *step,
                                 size_t *tokens, engine_error *error)
{
    if (rows > w->max_rows) {
        return engine_fail(error, KVERN_ERR_RANGE, "%zu rows, but the workspace has room for %zu",
                           rows, w->max_rows);
    }
    *tokens = 0;
    for (size_t r = 0; r < rows; r++) {
        int64_t count = step->counts[r];
        if (count < 0 || (uint64_t)count > w->max_tokens - *tokens) {
            return engine_fail(error, KVERN_ERR_RANGE,
                               "row %zu brings %lld tokens after %zu others; the workspace has "
                               "room for %zu",
                               r, (long long)count, *tokens, w->max_tokens);
        }
        *tokens += (size_t)count;
        if (wanted_tokens(step, r) < 0 || wanted_tokens(step, r) > count) {
            return engine_fail(error, KVERN_ERR_RANGE,
                               "logits of %lld tokens of row %zu are wanted, but it brings %lld",
                               (long long)wanted_tokens(step, r), r, (long long)count);
        }
    }
    return KVERN_OK;
}

static kvern_status check_tokens(const model_facts *facts, const int32_t *tokens, size_t count,
                                 engine_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= facts->vocabulary) {
            return engine_fail(error, KVERN_ERR_RANGE,
                               "token %d at index %zu is outside the vocabulary of %zu", tokens[i],
                               i, facts->vocabulary);
        }
    }
    return KVERN_OK;
}

// What a layer is, however it is stored.
static bool same_layer(const kvern_layer *plan, const kvern_layer *wanted)
{
    return plan->kind == wanted->kind && plan->kv_heads == wanted->kv_heads &&
           plan->k_dim == wanted->k_dim && plan->v_dim == wanted->v_dim &&
           plan->window == wanted->window && plan->keep == wanted->keep &&
           plan->recurrence == wanted->recurrence && plan->key_heads == wanted->key_heads &&
           plan->value_heads == wanted->value_heads && plan->conv_kernel == wanted->conv_kernel &&
           plan->latent_dim == wanted->latent_dim && plan->rope_dim == wanted->rope_dim &&
           plan->index_dim == wanted->index_dim && plan->donor == wanted->donor &&
           plan->chunk == wanted->chunk;
}

static kvern_status check_geometry(const model *model, const kvern_composition *composition,
                                   engine_error *error)
{
    bool same = kvern_composition_layers(composition) == model->facts.layers;
    for (size_t i = 0; i < model->facts.layers && same; i++) {
        same = same_layer(kvern_composition_layer(composition, i), &model->plans[i]);
    }
    return same ? KVERN_OK
                : engine_fail(error, KVERN_ERR_ARGUMENT,
                              "the KV cache was planned for another model's geometry");
}

static void fill_rotary(const forward_pass *pass, const engine_rope *rope, float *row,
                        const int64_t *counts)
{
    for (size_t r = 0; r < kvern_state_rows(pass->state); r++) {
        int64_t first = kvern_step_position(pass->state, r);
        for (int64_t i = 0; i < counts[r]; i++) {
            engine_rope_fill(rope, first + i, row);
            row += engine_rope_row(rope);
        }
    }
}

// The embedding matrix and the tokens to look up.
typedef struct embedding_work {
    const linear *embedding;
    const int32_t *tokens;
} embedding_work;

static void embed_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                       float *scratch)
{
    (void)scratch;
    const embedding_work *work = arg;
    size_t width = pass->facts->width;
    float scale = pass->facts->embedding_scale;
    for (size_t t = begin; t < end; t++) {
        float *x = pass->workspace->array[SCRATCH_X] + t * width;
        linear_row(work->embedding, (size_t)work->tokens[t], x);
        for (size_t i = 0; i < width; i++) {
            x[i] *= scale;
        }
    }
}

// Norms a token into a row of the input of the output matrix.
static void norm_token(const model *model, const forward_pass *pass, size_t token, size_t row)
{
    const model_workspace *w = pass->workspace;
    const size_t width = model->facts.width;
    model->ops->rms_norm(w->array[SCRATCH_X] + token * width, model->parts.output_norm,
                         model->facts.norm_epsilon, width, w->scratch);
    linear_input_row(&w->input, row, w->scratch);
}

// Norms the wanted tokens, one after the other.
static void norm_wanted(const model *model, const forward_pass *pass, const model_step *step)
{
    size_t end = 0;
    size_t row = 0;
    for (size_t r = 0; r < kvern_state_rows(pass->state); r++) {
        end += (size_t)step->counts[r];
        for (size_t t = end - (size_t)wanted_tokens(step, r); t < end; t++) {
            norm_token(model, pass, t, row++);
        }
    }
}

// cap * tanh(logit / cap) of one token's logits each.
static void softcap_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                         float *scratch)
{
    (void)scratch;
    float cap = pass->facts->logit_softcap;
    size_t count = pass->facts->vocabulary;
    for (size_t t = begin; t < end; t++) {
        float *logits = *(float *const *)arg + t * count;
        for (size_t i = 0; i < count; i++) {
            logits[i] /= cap;
        }
        kvern_tanh_array(pass->features, count, logits, logits);
        for (size_t i = 0; i < count; i++) {
            logits[i] *= cap;
        }
    }
}

static void begin_logits(const model *model, const forward_pass *pass, size_t wanted)
{
    const linear *output = &model->parts.output;
    forward_begin_input(pass, wanted, model->facts.width, &output, 1);
}

// The logits of `wanted` tokens that were normed.
static kvern_status finish_logits(const model *model, const forward_pass *pass, size_t wanted,
                                  float *logits, engine_error *error)
{
    const linear_job job = forward_product(pass, &model->parts.output, NULL, logits, false);
    kvern_status status = forward_apply(pass, &job, 1, error);
    if (status == KVERN_OK && model->facts.logit_softcap > 0) {
        forward_each_token(pass, wanted, model->facts.vocabulary, softcap_rows, &logits);
    }
    return status;
}

static kvern_status write_logits(const model *model, const forward_pass *pass,
                                 const model_step *step, engine_error *error)
{
    size_t wanted = count_logits(step, kvern_state_rows(pass->state));
    if (wanted == 0) {
        return KVERN_OK;
    }
    begin_logits(model, pass, wanted);
    norm_wanted(model, pass, step);
    return finish_logits(model, pass, wanted, step->logits, error);
}

static kvern_status run_step(const model *model, const forward_pass *pass, const model_step *step,
                             engine_error *error)
{
    const embedding_work embedding = {&model->parts.embedding, step->tokens};
    for (size_t i = 0; i < model->facts.ropes; i++) {
        fill_rotary(pass, &model->ropes[i], pass->workspace->rotary[i], step->counts);
    }
    forward_each_token(pass, pass->tokens, model->facts.width, embed_rows, &embedding);
    kvern_status status = KVERN_OK;
    if (model->facts.layer_inputs) {
        status = layer_inputs_make(&model->parts.inputs, pass, step->tokens, error);
    }
    for (size_t i = 0; i < model->facts.layers && status == KVERN_OK; i++) {
        status = model->facts.family->run_layer(model_layer(model, i), i, pass, error);
    }
    if (status == KVERN_OK) {
        status = write_logits(model, pass, step, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_step_end(pass->state);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "ending a step");
}

static forward_pass make_pass(const model *model, model_workspace *workspace, kvern_state *state)
{
    return (forward_pass){.facts = &model->facts,
                          .executor = model->executor,
                          .ops = model->ops,
                          .features = model->features,
                          .ropes = model->ropes,
                          .workspace = workspace,
                          .state = state};
}

kvern_status model_forward(const model *model, model_workspace *workspace, kvern_state *state,
                           const model_step *step, engine_error *error)
{
    forward_pass pass = make_pass(model, workspace, state);
    workspace->tokens = 0;
    kvern_status status = check_geometry(model, kvern_state_composition(state), error);
    if (status == KVERN_OK) {
        status = check_counts(workspace, kvern_state_rows(state), step, &pass.tokens, error);
    }
    if (status == KVERN_OK) {
        status = check_tokens(&model->facts, step->tokens, pass.tokens, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_step_begin(state, step->phase, step->counts);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "beginning a step");
    }
    status = run_step(model, &pass, step, error);
    if (status != KVERN_OK) {
        kvern_step_abandon(state);
        return status;
    }
    workspace->tokens = pass.tokens;
    return KVERN_OK;
}

kvern_status model_logits(const model *model, model_workspace *workspace, const size_t *indices,
                          size_t count, float *logits, engine_error *error)
{
    const forward_pass pass = make_pass(model, workspace, NULL);
    if (count > workspace->max_tokens) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "logits of %zu tokens, but the workspace has room for %zu", count,
                           workspace->max_tokens);
    }
    for (size_t i = 0; i < count; i++) {
        if (indices[i] >= workspace->tokens) {
            return engine_fail(error, KVERN_ERR_RANGE, "logits of token %zu of a step of %zu",
                               indices[i], workspace->tokens);
        }
    }
    if (count == 0) {
        return KVERN_OK;
    }
    begin_logits(model, &pass, count);
    for (size_t i = 0; i < count; i++) {
        norm_token(model, &pass, indices[i], i);
    }
    return finish_logits(model, &pass, count, logits, error);
}
