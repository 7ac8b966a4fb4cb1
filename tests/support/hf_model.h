// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_HF_MODEL_H
#define KVERN_TESTS_HF_MODEL_H

// Small models as Hugging Face directories: safetensors files built in memory, and a tiny GGUF
// model written as one.

#include "engine/model/model.h"

typedef struct safetensors_builder safetensors_builder;

safetensors_builder *safetensors_builder_create(void);
void safetensors_builder_destroy(safetensors_builder *builder);

// Adds a tensor; shape[0] is the slowest dimension. Nothing is checked.
void safetensors_builder_add(safetensors_builder *builder, const char *name, const char *dtype,
                             size_t dims, const uint64_t *shape, const void *data, size_t bytes);

// The file; free().
void *safetensors_builder_finish(const safetensors_builder *builder, size_t *bytes);

// The contents of a directory.
typedef struct hf_model {
    char *config; // JSON; one object, to which a test may add keys before its last brace
    void *tensors;
    size_t tensor_bytes;
    void *shard[2]; // the same tensors in two files
    size_t shard_bytes[2];
    char *index; // of the two, named model-00001-of-00002.safetensors and -00002-of-00002
} hf_model;

// A model with float weights: names, order of rows and norms as training code has them.
hf_model hf_model_of(const gguf_file *file, const model_facts *facts);
void hf_model_free(hf_model *model);

#endif
