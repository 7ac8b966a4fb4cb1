// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LAYER_INPUTS_H
#define KVERN_ENGINE_LAYER_INPUTS_H

// Embeddings of a token that are not of the stream but of a layer, model_facts.layer_inputs numbers
// for each: what Gemma 3n and 4 call per-layer inputs.

#include "engine/model/forward.h"

typedef struct layer_inputs {
    linear embedding;  // [vocabulary, layers * numbers]
    linear projection; // [layers * numbers, width]
    float *norm;       // [numbers]
} layer_inputs;

// Makes the inputs of all layers from the step's tokens and what the stream begins with: workspace
// SCRATCH_LAYER_INPUTS, [tokens, layers, numbers].
KVERN_CHECK kvern_status layer_inputs_make(const layer_inputs *inputs, const forward_pass *pass,
                                           const int32_t *tokens, engine_error *error);

// Where those of a layer are for the first token, and how far those of the next one are behind.
const float *layer_inputs_of(const forward_pass *pass, size_t layer, size_t *stride);

#endif
