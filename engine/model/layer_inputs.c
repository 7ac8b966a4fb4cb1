// SPDX-License-Identifier: MIT
#include "engine/model/layer_inputs.h"

#include <math.h>

typedef struct layer_inputs_work {
    const layer_inputs *inputs;
    const int32_t *tokens;
    float embedding_scale;  // the root of the numbers of a layer
    float projection_scale; // 1 / the root of the width
    float half;             // 1 / sqrt(2)
} layer_inputs_work;

// One layer's: half of the normed projection, in place, and half of the embedding, in the sense of
// their squares.
static void mix(const layer_inputs_work *work, const forward_pass *pass, const float *embedding,
                float *projected, float *normed)
{
    const size_t numbers = pass->facts->layer_inputs;
    for (size_t i = 0; i < numbers; i++) {
        projected[i] *= work->projection_scale;
    }
    pass->ops->rms_norm(projected, work->inputs->norm, pass->facts->norm_epsilon, numbers, normed);
    for (size_t i = 0; i < numbers; i++) {
        const float scaled = embedding[i] * work->embedding_scale;
        projected[i] = (normed[i] + scaled) * work->half;
    }
}

static void mix_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                     float *scratch)
{
    const layer_inputs_work *work = arg;
    const size_t numbers = pass->facts->layer_inputs, layers = pass->facts->layers;
    float *rows = pass->workspace->array[SCRATCH_LAYER_INPUTS];
    for (size_t t = begin; t < end; t++) {
        linear_row(&work->inputs->embedding, (size_t)work->tokens[t], scratch);
        for (size_t l = 0; l < layers; l++) {
            mix(work, pass, scratch + l * numbers, rows + (t * layers + l) * numbers,
                scratch + layers * numbers);
        }
    }
}

kvern_status layer_inputs_make(const layer_inputs *inputs, const forward_pass *pass,
                               const int32_t *tokens, engine_error *error)
{
    const model_facts *facts = pass->facts;
    float *const *array = pass->workspace->array;
    const layer_inputs_work work = {
        .inputs = inputs,
        .tokens = tokens,
        .embedding_scale = facts->layer_inputs_scale,
        .projection_scale = 1 / sqrtf((float)facts->width),
        .half = sqrtf(0.5F),
    };
    forward_plain_input(pass, array[SCRATCH_X], &inputs->projection);
    const linear_job job =
        forward_product(pass, &inputs->projection, NULL, array[SCRATCH_LAYER_INPUTS], false);
    kvern_status status = forward_apply(pass, &job, 1, error);
    if (status == KVERN_OK) {
        forward_each_token(pass, pass->tokens, facts->layers * facts->layer_inputs, mix_rows,
                           &work);
    }
    return status;
}

const float *layer_inputs_of(const forward_pass *pass, size_t layer, size_t *stride)
{
    const size_t numbers = pass->facts->layer_inputs;
    *stride = pass->facts->layers * numbers;
    return pass->workspace->array[SCRATCH_LAYER_INPUTS] + layer * numbers;
}
