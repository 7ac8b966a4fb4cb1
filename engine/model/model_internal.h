// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_INTERNAL_H
#define KVERN_ENGINE_MODEL_INTERNAL_H

// The inside of a model, for the files that make it, size its workspace and run it.

#include "engine/base/text_buffer.h"
#include "engine/model/families/model_family.h"

struct model {
    model_source *source; // owned
    kvern_context *context;
    kvern_executor executor;
    uint32_t features;
    const engine_ops *ops;
    model_facts facts;
    tokenizer *tokenizer;      // owned, or NULL
    text_buffer chat_template; // empty where there is none
    bool has_chat_template;
    engine_rope ropes[MODEL_MAX_ROPES]; // [facts.ropes]
    linear_arena *arena;                // of every matrix
    uint32_t formats;   // linear formats that the matrices read, a set of LINEAR_FORMAT_BIT
    size_t most_cols;   // inputs of the widest matrix
    model_parts parts;  // the tensors, owned
    kvern_layer *plans; // [facts.layers] what the KV cache keeps, owned
};

static inline void *model_layer(const model *m, size_t index)
{
    return (char *)m->parts.layers + index * m->facts.family->layer_bytes;
}

#endif
