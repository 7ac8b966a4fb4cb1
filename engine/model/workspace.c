// SPDX-License-Identifier: MIT
// Sizing and carving the scratch of a forward pass.

#include "engine/model/model_internal.h"

#include <stdlib.h>

#define WORKSPACE_ALIGNMENT 64
#define WORKSPACE_TASKS_PER_THREAD 4

// One array of the workspace: where its pointer goes and how many floats it has.
typedef struct workspace_array {
    float **pointer;
    size_t count; // things: tokens or tasks
    size_t width; // floats of each
} workspace_array;

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

// The most bytes that an input of any matrix of the model can need.
static kvern_status input_bytes(const model *model, size_t tokens, size_t *bytes)
{
    const model_facts *facts = &model->facts;
    const size_t widths[] = {facts->width, facts->heads * facts->value_dim, facts->feed_forward};
    *bytes = 0;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        size_t one;
        kvern_status status = linear_input_bytes(widths[i], tokens, model->formats, &one);
        if (status != KVERN_OK) {
            return status;
        }
        *bytes = larger(*bytes, one);
    }
    return KVERN_OK;
}

// Measures the arrays (memory NULL) or points them into `memory`. False on overflow.
static bool carve(const model *model, model_workspace *w, unsigned char *memory, size_t *bytes)
{
    const model_facts *facts = &model->facts;
    const workspace_array arrays[] = {
        {&w->x, w->max_tokens, facts->width},
        {&w->q, w->max_tokens, facts->heads * facts->head_dim},
        {&w->k, w->max_tokens, facts->kv_heads * facts->head_dim},
        {&w->v, w->max_tokens, facts->kv_heads * facts->value_dim},
        {&w->mixed, w->max_tokens, facts->heads * facts->value_dim},
        {&w->gate, w->max_tokens, facts->feed_forward},
        {&w->up, w->max_tokens, facts->feed_forward},
        {&w->branch, w->max_tokens, facts->width},
        {&w->rotary, w->max_tokens, engine_rope_row(&model->ropes.full)},
        {&w->window_rotary, w->max_tokens, engine_rope_row(&model->ropes.window)},
        {&w->scratch, w->tasks, w->scratch_stride},
    };
    *bytes = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        if (memory) {
            *arrays[i].pointer = (float *)(memory + *bytes);
        }
        if (!add_floats(bytes, arrays[i].count, arrays[i].width)) {
            return false;
        }
    }
    return true;
}

static kvern_status allocate(const model *model, model_workspace *w, engine_error *error)
{
    size_t arrays;
    size_t input;
    size_t total;
    if (!carve(model, w, NULL, &arrays) || input_bytes(model, w->max_tokens, &input) != KVERN_OK ||
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
    w->scratch_stride = larger(model->facts.width, model->facts.head_dim);
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
