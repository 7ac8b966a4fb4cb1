// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_FAMILY_H
#define KVERN_ENGINE_MODEL_FAMILY_H

// A family of models that share one computation, named by general.architecture. model.c and
// forward.c do what all families have in common; a family holds its layers' weights and runs them.

#include "engine/forward.h"
#include "engine/model_facts_reader.h"
#include "engine/model_tensors.h"

typedef struct model_family {
    const char *architecture;
    engine_rope_style rope_style;

    // Reads the keys that only this family has. All other facts are there already; those that it
    // leaves alone say: nothing of the kind. It refuses what the family cannot compute.
    kvern_status (*read_facts)(facts_reader *reader, model_facts *facts);

    // Loads the layers. On success *layers is the family's own object; on failure nothing is left.
    kvern_status (*load)(model_tensors *tensors, const model_facts *facts, void **layers);
    void (*unload)(void *layers); // NULL is allowed

    // Runs every layer over the tokens of an open step: pass->x holds their embeddings, and
    // afterwards what the last layer left.
    kvern_status (*run)(const void *layers, const forward_pass *pass, engine_error *error);
} model_family;

// NULL for an architecture that no family has.
const model_family *model_family_find(gguf_string architecture);

// Writes the known architectures, "llama, gemma3", into text[bytes]; cut when too long.
void model_family_list(char *text, size_t bytes);

#endif
