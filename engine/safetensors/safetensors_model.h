// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SAFETENSORS_MODEL_H
#define KVERN_ENGINE_SAFETENSORS_MODEL_H

// A directory as Hugging Face keeps models: config.json, and model.safetensors or the files that
// model.safetensors.index.json lists. docs/formats/safetensors.md says what is accepted.

#include "engine/safetensors/hf_names.h"
#include "engine/weights/weights.h"

typedef struct safetensors_model safetensors_model;

// Finds the names of a family by config.json's model_type; NULL: it is not known.
typedef const hf_names *(*hf_names_find)(text_view model_type);

// Opens a directory. A model_type that nobody knows opens all the same, so that it can be told. On
// failure *out is NULL and the error names the file. Errors: KVERN_ERR_IO, KVERN_ERR_FORMAT,
// KVERN_ERR_UNSUPPORTED, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status safetensors_model_open(const char *directory, hf_names_find find,
                                                safetensors_model **out, engine_error *error);

// The same over the contents of a config.json and of one file of tensors, which the caller keeps
// (tests, fuzzing).
KVERN_CHECK kvern_status safetensors_model_read(const char *config, size_t config_bytes,
                                                const void *tensors, size_t tensor_bytes,
                                                hf_names_find find, safetensors_model **out,
                                                engine_error *error);

void safetensors_model_close(safetensors_model *model); // NULL is allowed

// The model as a source of weights, which it outlives.
weights safetensors_weights(const safetensors_model *model);

#endif
