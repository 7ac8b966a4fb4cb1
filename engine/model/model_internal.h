// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_INTERNAL_H
#define KVERN_ENGINE_MODEL_INTERNAL_H

// The inside of a model, for the files that make it, size its workspace and run it.

#include "engine/model/families/model_family.h"

struct model {
    gguf_file *file; // owned
    kvern_context *context;
    kvern_executor executor;
    uint32_t features;
    const engine_ops *ops;
    model_facts facts;
    tokenizer *tokenizer; // owned, or NULL
    model_ropes ropes;
    linear_arena *arena; // of every matrix
    uint64_t weight_bytes;
    linear embedding;   // [vocabulary, width]
    float *output_norm; // [width], owned
    linear output;      // [vocabulary, width]; the embedding itself when tied
    uint32_t formats;   // linear formats that the matrices read, a set of LINEAR_FORMAT_BIT
    const model_family *family;
    void *layers; // [facts.layers] of the family's objects, owned; model_layer finds one
};

static inline void *model_layer(const model *m, size_t index)
{
    return (char *)m->layers + index * m->family->layer_bytes;
}

#endif
