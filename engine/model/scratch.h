// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_SCRATCH_H
#define KVERN_ENGINE_MODEL_SCRATCH_H

// Which arrays of a workspace a model uses, and how wide each is: floats per token.

#include <stddef.h>

typedef enum model_array {
    SCRATCH_X,             // the residual stream
    SCRATCH_Q,             // queries of a layer
    SCRATCH_K,             // keys
    SCRATCH_V,             // values
    SCRATCH_MIXED,         // what attention gives
    SCRATCH_GATE,          // the two inner vectors of a feed-forward network
    SCRATCH_UP,            //
    SCRATCH_BRANCH,        // what is normed before it is added to the stream
    SCRATCH_NORMED,        // what experts read
    SCRATCH_ROUTER,        // logits of the experts
    SCRATCH_SCORES,        // of the router, twice
    SCRATCH_EXPERTS,       // the sum of what experts give
    SCRATCH_SHARED_GATE,   // one value
    SCRATCH_Q_RANK,        // what queries are made of, of latent attention
    SCRATCH_ABSORBED,      // queries of latents
    SCRATCH_LATENTS,       // what attention to latents gives
    SCRATCH_DECAY_RANK,    // what decays are made of, of a delta rule,
    SCRATCH_GATE_RANK,     // and gates
    SCRATCH_INDEX_Q,       // of an indexer: queries,
    SCRATCH_INDEX_K,       // keys,
    SCRATCH_INDEX_WEIGHTS, // and weights of its heads
    SCRATCH_TEMPERATURE,   // what queries that do not rotate are multiplied by: one value
    SCRATCH_LAYER_INPUTS,  // what each layer gets of a token besides the stream
    SCRATCH_ARRAYS
} model_array;

// What experts need besides: see engine/model/experts_scratch.h.
typedef struct experts_sizes {
    size_t experts; // 0: none
    size_t used;
    size_t inner; // of an expert
} experts_sizes;

// What products with a matrix for each head need: see engine/model/head_products.h.
typedef struct head_sizes {
    size_t heads; // 0: none
    size_t cols;  // inputs of such a matrix
} head_sizes;

typedef struct model_scratch {
    size_t width[SCRATCH_ARRAYS];
    experts_sizes experts;
    head_sizes heads;
    size_t top_k; // positions that an indexer selects; 0: there is none
} model_scratch;

static inline void model_scratch_need(model_scratch *list, model_array array, size_t width)
{
    if (list->width[array] < width) {
        list->width[array] = width;
    }
}

#endif
