// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_FAMILY_H
#define KVERN_ENGINE_MODEL_FAMILY_H

// A family of models that share one computation, named by general.architecture. It declares what
// its keys mean, what a layer is, which tensors and scratch it has, and how a layer is run;
// everything else is the same for all. A family is one file, and one line in model_family.c.

#include "engine/model/forward.h"
#include "engine/model/model_facts_reader.h"
#include "engine/model/model_tensors.h"
#include "engine/model/scratch.h"
#include "engine/safetensors/hf_names.h"
#include "engine/weights/key_table.h"

typedef struct model_family {
    const char *architecture;

    // Which elements of a head make a pair, and so in which order the rows of q and k are kept,
    // whatever a file has.
    engine_rope_style rope_style;
    bool paired_files;  // its directories have the rows of q and k in the order of pairs already
    bool norm_adds_one; // norms multiply by 1 + weight; see weights_format.whole_norms

    // The rotary base of a config.json that does not say it, where all readers of the family take
    // the same one; 0: readers differ, so it must be said. Of a GGUF file it is 10000.
    float rope_base;

    const key_table *keys; // of a GGUF file, before model_common_keys; NULL: none of its own
    const hf_names *hf;    // of a directory of safetensors; NULL: the family is not read from them

    // Fills facts->layer[], ropes and scales: all that a file of the family says. Layers, width,
    // vocabulary, context and epsilon are there already.
    kvern_status (*read_facts)(facts_reader *reader, model_facts *facts);

    // What the KV cache keeps of a layer.
    kvern_layer (*plan_layer)(const model_facts *facts, size_t index);

    // The family's own object for a layer, all zero before it is loaded, and its tensors.
    size_t layer_bytes;
    void (*list_tensors)(const model_facts *facts, size_t index, void *layer, tensor_specs *list);

    // Called once a layer's tensors are loaded, for what is not kept as the file has it; NULL: that
    // is nothing. Errors: KVERN_ERR_MEMORY.
    kvern_status (*finish_layer)(const model_facts *facts, void *layer, engine_error *error);

    // Scratch of the layer, besides x. Called for every layer; the most of each counts.
    void (*list_scratch)(const model_facts *facts, size_t index, model_scratch *list);

    // Runs a layer over the tokens of an open step, in pass->workspace->x.
    kvern_status (*run_layer)(const void *layer, size_t index, const forward_pass *pass,
                              engine_error *error);
} model_family;

// NULL for an architecture that no family has.
const model_family *model_family_find(text_view architecture);

// The names of the family of a config.json's model_type; NULL when there is none.
const hf_names *model_family_hf_names(text_view model_type);

// The tables that judge the keys of a family in a format; returns how many.
#define MODEL_KEY_TABLES 5
size_t model_family_key_tables(const model_family *family, const weights_format *format,
                               const key_table *tables[MODEL_KEY_TABLES]);

// Writes what the known families are called in a format, "llama, gemma3", into text[bytes]; cut
// when too long.
void model_family_list(const weights_format *format, char *text, size_t bytes);

#endif
