// SPDX-License-Identifier: MIT
#include "engine/model/model_source.h"

#include "engine/model/families/model_family.h"
#include "engine/safetensors/safetensors_model.h"

#include <stdlib.h>
#include <sys/stat.h>

struct model_source {
    weights weights;
    gguf_file *gguf;          // owned; or NULL:
    safetensors_model *model; // owned
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
    return status == KVERN_OK ? take_model(model, out, error) : status;
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
        free(source);
    }
}

const weights *model_source_weights(const model_source *source)
{
    return &source->weights;
}

const gguf_file *model_source_gguf(const model_source *source)
{
    return source->gguf;
}
