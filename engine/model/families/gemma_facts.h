// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GEMMA_FACTS_H
#define KVERN_ENGINE_GEMMA_FACTS_H

// What models of the Gemma families say of themselves in the same way.

#include "engine/model/model_facts_reader.h"
#include "engine/safetensors/hf_names.h"

// What both families call otherwise than the rest.
extern const hf_tensor_name gemma_hf_tensors[];

// The factor of the embeddings as the models were trained with it: sqrt(width) in bf16.
float gemma_embedding_scale(size_t width);

// facts->attention_scale. The largest model, the only one with `largest_layers` layers, divides by
// the root of width / heads instead of the head dim, and its GGUF files do not say so.
KVERN_CHECK kvern_status gemma_read_attention_scale(facts_reader *reader, size_t largest_layers,
                                                    model_facts *facts);

#endif
