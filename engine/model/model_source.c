// SPDX-License-Identifier: MIT
#include "engine/model/model_source.h"

#include "engine/model/families/model_family.h"
#include "engine/safetensors/safetensors_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct model_source {
    weights weights;
    gguf_file *gguf;          // owned; or NULL:
    safetensors_model *model; // owned
    char *directory;          // of the model; NULL in memory
    bool precise;
};

static kvern_status make_source(model_source **out, engine_error *error)
{
    *out = calloc(1, sizeof **out);
    return *out ? KVERN_OK : engine_fail(error, KVERN_ERR_MEMORY, "no memory to open a model");
}

kvern_status model_source_of_gguf(gguf_file *file, model_source **out, engine_error *error)
{
    kvern_status status = make_source(out, error);
    if (status == KVERN_OK) {
        (*out)->gguf = file;
        (*out)->weights = gguf_weights(file);
    }
    return status;
}

// The same for a directory; closes the model when it fails.
static kvern_status take_model(safetensors_model *model, model_source **out, engine_error *error)
{
    kvern_status status = make_source(out, error);
    if (status != KVERN_OK) {
        safetensors_model_close(model);
        return status;
    }
    (*out)->model = model;
    (*out)->weights = safetensors_weights(model);
    return KVERN_OK;
}

kvern_status model_source_of_safetensors(const char *config, size_t config_bytes,
                                         const void *tensors, size_t tensor_bytes,
                                         model_source **out, engine_error *error)
{
    safetensors_model *model;
    *out = NULL;
    kvern_status status = safetensors_model_read(config, config_bytes, tensors, tensor_bytes,
                                                 model_family_hf_names, &model, error);
    return status == KVERN_OK ? take_model(model, out, error) : status;
}

static kvern_status open_directory(const char *path, model_source **out, engine_error *error)
{
    safetensors_model *model;
    kvern_status status = safetensors_model_open(path, model_family_hf_names, &model, error);
    if (status == KVERN_OK) {
        status = take_model(model, out, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    (*out)->directory = strdup(path);
    if ((*out)->directory) {
        return KVERN_OK;
    }
    model_source_close(*out);
    *out = NULL;
    return engine_fail(error, KVERN_ERR_MEMORY, "no memory to open a model");
}

static kvern_status open_file(const char *path, model_source **out, engine_error *error)
{
    gguf_file *file;
    kvern_status status = gguf_open(path, &file, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = model_source_of_gguf(file, out, error);
    if (status != KVERN_OK) {
        gguf_close(file);
    }
    return status;
}

// A directory that holds a model; any other is left to the reader of files, which says so.
static bool is_directory(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

kvern_status model_source_open(const char *path, model_source **out, engine_error *error)
{
    *out = NULL;
    return is_directory(path) ? open_directory(path, out, error) : open_file(path, out, error);
}

void model_source_close(model_source *source)
{
    if (source) {
        gguf_close(source->gguf);
        safetensors_model_close(source->model);
        free(source->directory);
        free(source);
    }
}

const weights *model_source_weights(const model_source *source)
{
    return &source->weights;
}

void model_source_keep_precise(model_source *source)
{
    source->precise = true;
}

bool model_source_is_precise(const model_source *source)
{
    return source->precise;
}

const gguf_file *model_source_gguf(const model_source *source)
{
    return source->gguf;
}

// --- Texts

kvern_status model_texts_open(const model_source *source, model_texts *out, engine_error *error)
{
    *out = (model_texts){.gguf = source->gguf};
    return source->directory ? tokenizer_files_open(source->directory, &out->files, error)
                             : KVERN_OK;
}

kvern_status model_texts_open_path(const char *path, model_texts *out, engine_error *error)
{
    *out = (model_texts){0};
    if (is_directory(path)) {
        return tokenizer_files_open(path, &out->files, error);
    }
    const kvern_status status = gguf_open(path, &out->owned, error);
    out->gguf = out->owned;
    return status;
}

void model_texts_free(model_texts *texts)
{
    tokenizer_files_close(texts->files);
    gguf_close(texts->owned);
    *texts = (model_texts){0};
}

bool model_texts_have_tokenizer(const model_texts *texts)
{
    return texts->gguf ? gguf_find(texts->gguf, "tokenizer.ggml.model") != NULL
                       : texts->files && tokenizer_files_present(texts->files);
}

kvern_status model_texts_tokenizer(const model_texts *texts, const char *pre, tokenizer **out,
                                   engine_error *error)
{
    if (texts->gguf) {
        return tokenizer_create(texts->gguf, pre, out, error);
    }
    *out = NULL;
    return texts->files ? tokenizer_create_from_files(texts->files, pre, out, error)
                        : engine_fail(error, KVERN_ERR_UNSUPPORTED, "the model has no tokenizer");
}

bool model_texts_chat_template(const model_texts *texts, text_view *out)
{
    if (texts->gguf) {
        return gguf_get_string(gguf_find(texts->gguf, "tokenizer.chat_template"), out);
    }
    return texts->files && tokenizer_files_chat_template(texts->files, out);
}
