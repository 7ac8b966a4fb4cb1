// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_FAMILY_H
#define KVERN_ENGINE_MODEL_FAMILY_H

// A family of models that share one computation, named by general.architecture. model.c and
// model_forward.c do what all families have in common; a family says what a layer is, loads one and
// runs one.

#include "engine/model/forward.h"
#include "engine/model/model_facts_reader.h"
#include "engine/model/model_tensors.h"
#include "engine/weights/key_table.h"

typedef struct model_family {
    const char *architecture;
    engine_rope_style rope_style;

    const key_table *keys; // of a GGUF file, before model_common_keys

    // Reads the keys that only this family has. All other facts are there already; those that it
    // leaves alone say: nothing of the kind. NULL: there are none.
    kvern_status (*read_facts)(facts_reader *reader, model_facts *facts);

    size_t layer_bytes; // of the family's own object for a layer

    // Fills the object of a layer, which is all zero. A failure may leave a part.
    kvern_status (*load_layer)(model_tensors *tensors, const model_facts *facts, size_t index,
                               void *layer);
    // Gives back what an object owns; all zero and a part of a layer are allowed.
    void (*unload_layer)(void *layer);

    // Runs a layer over the tokens of an open step, in pass->workspace->x.
    kvern_status (*run_layer)(const void *layer, size_t index, const forward_pass *pass,
                              engine_error *error);
} model_family;

// NULL for an architecture that no family has.
const model_family *model_family_find(text_view architecture);

// The tables that judge the keys of a GGUF file of a family.
#define MODEL_KEY_TABLES 4
void model_family_key_tables(const model_family *family, const key_table *tables[MODEL_KEY_TABLES]);

// Writes the known architectures, "llama, gemma3", into text[bytes]; cut when too long.
void model_family_list(char *text, size_t bytes);

#endif
