// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_HF_NAMES_H
#define KVERN_ENGINE_HF_NAMES_H

// What a family's tensors and configuration are called in a Hugging Face directory. The keys of a
// config.json are judged by tables whose rows also say what the engine calls a key
// (key_row.canonical); of several keys for one thing the first that the file has counts.

#include "engine/weights/key_table.h"

typedef struct hf_tensor_name {
    const char *name; // the engine's; of a layer, what is behind "blk.3."
    const char *file; // of a layer, what is behind "model.layers.3."
    // A '*' in both stands for a number: that of an expert.
} hf_tensor_name;

// Experts, each in tensors of its own, or all of a layer in one, as mlx-lm has them.
#define HF_EXPERTS_NAMES                                                                           \
    {"ffn_gate.*.weight", "mlp.experts.*.gate_proj.weight"},                                       \
        {"ffn_up.*.weight", "mlp.experts.*.up_proj.weight"},                                       \
        {"ffn_down.*.weight", "mlp.experts.*.down_proj.weight"},                                   \
        {"ffn_gate_exps.weight", "mlp.switch_mlp.gate_proj.weight"},                               \
        {"ffn_up_exps.weight", "mlp.switch_mlp.up_proj.weight"},                                   \
    {                                                                                              \
        "ffn_down_exps.weight", "mlp.switch_mlp.down_proj.weight"                                  \
    }

#define HF_KEY_TABLES 4

typedef struct hf_names {
    const char *model_type;   // in config.json
    const char *architecture; // the engine's
    // Up to one without a name; hf_common_tensors come after them. NULL: none of its own. Of
    // several rows of one name the first that the directory has counts.
    const hf_tensor_name *tensors;
    const key_table *keys[HF_KEY_TABLES]; // up to a NULL; the first that has a key judges it
} hf_names;

// What all families call alike.
extern const hf_tensor_name hf_common_tensors[];

// Writes the file's name of what the engine calls `name` into text[bytes], and returns the row that
// has it, behind which there may be others. NULL when the list does not have it.
const hf_tensor_name *hf_translate(const hf_tensor_name *names, const char *name, char *text,
                                   size_t bytes);

#endif
