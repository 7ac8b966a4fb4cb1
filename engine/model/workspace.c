// SPDX-License-Identifier: MIT
// Sizing and carving the scratch of a forward pass.

#include "engine/model/carve.h"
#include "engine/model/model_internal.h"

#include <stdlib.h>

#define WORKSPACE_ALIGNMENT 64
#define WORKSPACE_TASKS_PER_THREAD 4

// Adds the bytes of count * width floats, rounded up to the alignment. False on overflow.
static bool add_floats(size_t *bytes, size_t count, size_t width)
{
    size_t floats;
    return !__builtin_mul_overflow(count, width, &floats) &&
           !__builtin_mul_overflow(floats, sizeof(float), &floats) &&
           !__builtin_add_overflow(*bytes, floats, bytes) &&
           !__builtin_add_overflow(*bytes, WORKSPACE_ALIGNMENT - 1, bytes) &&
           ((*bytes &= ~(size_t)(WORKSPACE_ALIGNMENT - 1)), true);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Takes an array of count * width floats behind `*bytes` bytes of memory (NULL: only measures).
// False on overflow.
static bool carve_array(unsigned char *memory, size_t *bytes, float **array, size_t count,
                        size_t width)
{
    if (memory) {
        *array = (float *)(memory + *bytes);
    }
    return add_floats(bytes, count, width);
}

// The positions that an indexer selects for each token.
static bool carve_selection(model_workspace *w, unsigned char *memory, size_t *bytes, size_t top_k)
{
    size_t positions;
    return top_k == 0 || (!__builtin_mul_overflow(w->max_tokens, top_k, &positions) &&
                          carve_take(memory, bytes, &w->selected, positions, sizeof *w->selected) &&
                          carve_take(memory, bytes, &w->selected_counts, w->max_tokens,
                                     sizeof *w->selected_counts));
}

// Measures the arrays (memory NULL) or points them into `memory`. False on overflow.
static bool carve(const model *model, model_workspace *w, unsigned char *memory, size_t *bytes)
{
    const model_facts *facts = &model->facts;
    model_scratch scratch = {.width = {[SCRATCH_X] = facts->width}};
    for (size_t i = 0; i < facts->layers; i++) {
        facts->family->list_scratch(facts, i, &scratch);
    }
    model_scratch_need(&scratch, SCRATCH_LAYER_INPUTS, facts->layers * facts->layer_inputs);
    *bytes = 0;
    bool fits = true;
    for (size_t i = 0; i < SCRATCH_ARRAYS && fits; i++) {
        fits = carve_array(memory, bytes, &w->array[i], w->max_tokens, scratch.width[i]);
    }
    for (size_t i = 0; i < facts->ropes && fits; i++) {
        size_t width = engine_rope_row(&model->ropes[i]);
        fits = carve_array(memory, bytes, &w->rotary[i], w->max_tokens, width);
    }
    w->experts.sizes = scratch.experts;
    w->heads.sizes = scratch.heads;
    return fits && carve_array(memory, bytes, &w->scratch, w->tasks, w->scratch_stride) &&
           experts_scratch_carve(&w->experts, memory, bytes, w->max_tokens, facts->width,
                                 model->formats, model->most_cols) &&
           head_scratch_carve(&w->heads, memory, bytes, w->max_tokens, model->formats) &&
           carve_selection(w, memory, bytes, scratch.top_k);
}

// A row of scratch holds what is normed, the stream or the heads of a layer, or what is put in
// another order: the value heads of a delta rule.
static size_t scratch_stride(const model_facts *facts)
{
    size_t stride = larger(facts->width, facts->delta.value_heads * facts->delta.value_dim);
    for (size_t i = 0; i < facts->layers; i++) {
        stride = larger(stride, (size_t)facts->layer[i].heads * facts->layer[i].head_dim);
        stride = larger(stride, larger(facts->latent.latent, facts->latent.q_rank));
    }
    // The embeddings of all layers, and one part that is normed.
    return larger(stride, (facts->layers + 1) * facts->layer_inputs);
}

static kvern_status allocate(const model *model, model_workspace *w, engine_error *error)
{
    size_t arrays;
    size_t input;
    size_t total;
    if (!carve(model, w, NULL, &arrays) ||
        linear_input_bytes(model->most_cols, w->max_tokens, model->formats, &input) != KVERN_OK ||
        __builtin_add_overflow(arrays, input, &total)) {
        return engine_fail(error, KVERN_ERR_OVERFLOW,
                           "the scratch of %zu tokens does not fit the address space",
                           w->max_tokens);
    }
    total = (total + WORKSPACE_ALIGNMENT - 1) & ~(size_t)(WORKSPACE_ALIGNMENT - 1);
    w->memory = aligned_alloc(WORKSPACE_ALIGNMENT, larger(total, WORKSPACE_ALIGNMENT));
    if (!w->memory) {
        return engine_fail(error, KVERN_ERR_MEMORY,
                           "no memory for the scratch of %zu tokens (%zu bytes)", w->max_tokens,
                           total);
    }
    carve(model, w, w->memory, &arrays);
    w->input_memory = (unsigned char *)w->memory + arrays;
    return KVERN_OK;
}

kvern_status model_workspace_create(const model *model, size_t max_tokens, size_t max_rows,
                                    model_workspace **out, engine_error *error)
{
    *out = NULL;
    if (max_tokens == 0 || max_rows == 0) {
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "a workspace needs room for at least one token and one row");
    }
    model_workspace *w = calloc(1, sizeof *w);
    if (!w) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a workspace");
    }
    w->max_tokens = max_tokens;
    w->max_rows = max_rows;
    w->tasks = model->executor.threads * WORKSPACE_TASKS_PER_THREAD;
    w->scratch_stride = scratch_stride(&model->facts);
    kvern_status status = allocate(model, w, error);
    if (status != KVERN_OK) {
        free(w);
        return status;
    }
    *out = w;
    return KVERN_OK;
}

void model_workspace_destroy(model_workspace *workspace)
{
    if (workspace) {
        free(workspace->memory);
        free(workspace);
    }
}
