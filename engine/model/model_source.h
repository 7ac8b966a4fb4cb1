// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_SOURCE_H
#define KVERN_ENGINE_MODEL_SOURCE_H

// An open model on disk, in one of the formats that the engine reads: a GGUF file (or the first of
// the files that one is split into), or a directory with config.json and safetensors.

#include "engine/gguf/gguf.h"
#include "engine/tokenizer/tokenizer_files.h"
#include "engine/weights/weights.h"

typedef struct model_source model_source;

// Opens a file or a directory. Nothing but its format is checked: what it says of its model is the
// business of model_read_facts. On failure *out is NULL and the error names the file. Errors: those
// of gguf_open and safetensors_model_open.
KVERN_CHECK kvern_status model_source_open(const char *path, model_source **out,
                                           engine_error *error);

// Takes over an open GGUF file, which model_source_close closes. On failure it stays the caller's,
// and *out is NULL. Errors: KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status model_source_of_gguf(gguf_file *file, model_source **out,
                                              engine_error *error);

// The same over the contents of a config.json and of one safetensors file, which the caller keeps.
KVERN_CHECK kvern_status model_source_of_safetensors(const char *config, size_t config_bytes,
                                                     const void *tensors, size_t tensor_bytes,
                                                     model_source **out, engine_error *error);

// Asks for 16 bits of activations in every product with quantized weights, also where 8 are enough
// for nearly the same predictions (docs/linear.md has the numbers) at half the time of a prompt.
void model_source_keep_precise(model_source *source);
bool model_source_is_precise(const model_source *source);

void model_source_close(model_source *source); // NULL is allowed

const weights *model_source_weights(const model_source *source);

// NULL when the model is in another format.
const gguf_file *model_source_gguf(const model_source *source);

// What the model brings along about texts, whatever its format.
typedef struct model_texts {
    const gguf_file *gguf;  // or NULL:
    tokenizer_files *files; // owned: what lies in the directory, or NULL for one in memory
    gguf_file *owned;       // the first, where it is not the source's
} model_texts;

// Finds it; nothing of it is judged yet. Free it with model_texts_free, on failure as well. Errors:
// those of tokenizer_files_open.
KVERN_CHECK kvern_status model_texts_open(const model_source *source, model_texts *out,
                                          engine_error *error);
void model_texts_free(model_texts *texts);

// The same of a file or a directory that need not hold a model: a tokenizer is enough. Errors:
// those of gguf_open as well; nothing is left to be freed then.
KVERN_CHECK kvern_status model_texts_open_path(const char *path, model_texts *out,
                                               engine_error *error);

// Whether there is a tokenizer: a model without one is for programs that bring token ids.
bool model_texts_have_tokenizer(const model_texts *texts);

// tokenizer_create or tokenizer_create_from_files.
KVERN_CHECK kvern_status model_texts_tokenizer(const model_texts *texts, const char *pre,
                                               tokenizer **out, engine_error *error);

// The chat template, borrowed; false when there is none.
bool model_texts_chat_template(const model_texts *texts, text_view *out);

#endif
