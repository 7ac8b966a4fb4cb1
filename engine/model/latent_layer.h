// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LATENT_LAYER_H
#define KVERN_ENGINE_LATENT_LAYER_H

// Attention by latents (MLA): a token stores one latent, from which the keys and values of all
// heads follow, and one key that rotates. Reads are absorbed, whatever the phase: a head's query is
// multiplied by its key projection, and what it attends to by its value projection, so that no key
// and no value is made. Where there is an indexer (DSA), each token attends the positions that it
// selects; layers without an indexer of their own attend the positions of the latest one that has.

#include "engine/model/forward.h"
#include "engine/model/model_tensors.h"

// What selects positions: index queries from what queries are made of, index keys from the normed
// stream, and a weight for each of its heads.
typedef struct latent_indexer {
    linear q;         // [heads * dim, q_rank]
    linear k;         // [dim, width]
    linear weights;   // [heads, width]
    float *norm;      // [dim] of keys, whose mean goes as well
    float *norm_bias; // [dim]
} latent_indexer;

typedef struct latent_layer {
    linear q;           // [heads * (key + rope), q_rank or width]
    linear q_a;         // [q_rank, width]; with a q_rank
    float *q_a_norm;    // [q_rank]
    linear kv_a;        // [latent + rope, width]
    float *kv_a_norm;   // [latent]
    linear_stack key;   // for each head [latent, key]: a key projection, turned
    linear_stack value; // for each head [value, latent]
    linear output;      // [width, heads * value]
    latent_indexer indexer;
} latent_layer;

void latent_list_tensors(latent_layer *layer, const model_facts *facts, size_t index,
                         tensor_specs *list);
void latent_list_scratch(const model_facts *facts, size_t index, model_scratch *list);
kvern_layer latent_plan_layer(const model_facts *facts, size_t index);

// x += what attention makes of RMSNorm(x, norm).
KVERN_CHECK kvern_status latent_run(const latent_layer *layer, const forward_pass *pass,
                                    size_t index, const float *norm, engine_error *error);

#endif
