// SPDX-License-Identifier: MIT
#include "engine/safetensors/safetensors_model.h"

#include "engine/base/mapped_file.h"
#include "engine/safetensors/block_tensors.h"
#include "engine/safetensors/config_json.h"
#include "engine/safetensors/json_text.h"
#include "engine/safetensors/quantized_tensors.h"
#include "engine/safetensors/safetensors_file.h"
#include "engine/weights/name_index.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define NAME_BYTES 320
#define MOST_SHARDS 4096

typedef struct hf_prefix hf_prefix;

struct safetensors_model {
    config_json *config;
    uint64_t config_bytes;
    const hf_names *names; // NULL: unknown
    safetensors_file *shards;
    size_t shard_count;
    weights_tensor *tensors; // of all shards
    size_t count;
    name_index index;
    const hf_prefix *prefix; // of the names of tensors
};

// What stands in front of the names of a model of texts and images: "model." becomes `model`,
// other names get `other`.
struct hf_prefix {
    const char *model;
    const char *other;
};
static const hf_prefix PREFIXES[] = {
    {"model.", ""},
    {"language_model.model.", "language_model."},
    {"model.language_model.", ""},
};

// --- Opening

static kvern_status open_failed(engine_error *error, const char *directory)
{
    return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory to open it", directory);
}

static kvern_status join_path(const char *directory, const char *file, char path[PATH_BYTES],
                              engine_error *error)
{
    int size = snprintf(path, PATH_BYTES, "%s/%s", directory, file);
    return size < PATH_BYTES
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_IO, "%.200s...: the name is too long", path);
}

static kvern_status read_config(safetensors_model *model, const char *directory,
                                engine_error *error)
{
    char path[PATH_BYTES];
    mapped_file file;
    kvern_status status = join_path(directory, "config.json", path, error);
    if (status == KVERN_OK) {
        status = mapped_file_open(path, &file, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    model->config_bytes = file.bytes;
    status = config_json_read(file.data ? (const char *)file.data : "", file.bytes, path,
                              &model->config, error);
    mapped_file_close(&file);
    return status;
}

// Tensors that see or hear. A model's texts are computed without them.
static bool is_of_senses(text_view name)
{
    static const char *const parts[] = {"vision_tower.", "multi_modal_projector.", "vision_model.",
                                        "visual.",       "audio_tower.",           "vision_embed.",
                                        "embed_vision.", "embed_audio.",           "mm_projector."};
    if (text_view_starts(name, "model.")) {
        name = (text_view){name.data + strlen("model."), name.size - strlen("model.")};
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (text_view_starts(name, parts[i])) {
            return true;
        }
    }
    return false;
}

static uint64_t count_of(const config_json *config, const char *key)
{
    config_value value = config_json_find(config, key);
    uint64_t count = 0;
    return config_size(&value, &count) ? count : 0;
}

// The layer that a tensor belongs to, or UINT64_MAX.
static uint64_t layer_of(const hf_prefix *prefix, text_view name)
{
    char layers[64];
    const int front = snprintf(layers, sizeof layers, "%slayers.", prefix->model);
    if (!text_view_starts(name, layers)) {
        return UINT64_MAX;
    }
    uint64_t layer = 0;
    size_t at = (size_t)front;
    const size_t most = at + 9; // digits of a number that fits
    for (; at < name.size && at < most && name.data[at] >= '0' && name.data[at] <= '9'; at++) {
        layer = 10 * layer + (uint64_t)(name.data[at] - '0');
    }
    return at > (size_t)front && at < name.size && name.data[at] == '.' ? layer : UINT64_MAX;
}

// Tensors that guess further tokens, from what a model computes without them: "mtp.", or layers
// behind the last one, as many as config.json says.
static bool is_of_guesses(const safetensors_model *model, text_view name)
{
    const uint64_t layer = layer_of(model->prefix, name);
    const uint64_t layers = count_of(model->config, "num_hidden_layers");
    return text_view_starts(name, "mtp.") ||
           (layer >= layers &&
            layer - layers < count_of(model->config, "num_nextn_predict_layers"));
}

// The tensors for texts, of a model of texts and images (its config.json has parts for both) too.
static void keep_texts(safetensors_model *model)
{
    const bool senses = config_json_has_text_part(model->config);
    size_t kept = 0;
    for (size_t i = 0; i < model->count; i++) {
        text_view name = model->tensors[i].name;
        if (!is_of_guesses(model, name) && !(senses && is_of_senses(name))) {
            model->tensors[kept++] = model->tensors[i];
        }
    }
    model->count = kept;
}

static void find_prefix(safetensors_model *model)
{
    model->prefix = &PREFIXES[0];
    for (size_t i = 1; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        for (size_t t = 0; t < model->count; t++) {
            if (text_view_starts(model->tensors[t].name, PREFIXES[i].model)) {
                model->prefix = &PREFIXES[i];
                return;
            }
        }
    }
}

// Puts the tensors of all shards into one list.
static kvern_status list_tensors(safetensors_model *model, const char *directory,
                                 engine_error *error)
{
    for (size_t i = 0; i < model->shard_count; i++) {
        model->count += model->shards[i].count;
    }
    model->tensors = calloc(model->count ? model->count : 1, sizeof *model->tensors);
    if (!model->tensors) {
        return open_failed(error, directory);
    }
    size_t at = 0;
    for (size_t i = 0; i < model->shard_count; i++) {
        const safetensors_file *shard = &model->shards[i];
        if (shard->count > 0) {
            memcpy(model->tensors + at, shard->tensors, shard->count * sizeof *shard->tensors);
        }
        at += shard->count;
    }
    find_prefix(model);
    keep_texts(model);
    return KVERN_OK;
}

// A tensor of an unknown type has no data for anyone.
static void hide_unknown(safetensors_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (!model->tensors[i].known) {
            model->tensors[i].data = NULL;
            model->tensors[i].bytes = 0;
        }
    }
}

static kvern_status index_tensors(safetensors_model *model, const char *directory,
                                  engine_error *error)
{
    const text_view *repeated;
    if (!name_index_build(&model->index, model->tensors, sizeof *model->tensors, model->count,
                          &repeated)) {
        return open_failed(error, directory);
    }
    return repeated ? engine_fail(error, KVERN_ERR_FORMAT, "%s: two files have the tensor %.*s",
                                  directory, text_view_shown(*repeated, 128), repeated->data)
                    : KVERN_OK;
}

// The tensors of a directory, quantized ones joined.
static kvern_status take_tensors(safetensors_model *model, const char *directory,
                                 engine_error *error)
{
    kvern_status status = list_tensors(model, directory, error);
    if (status == KVERN_OK) {
        status =
            quantized_tensors_join(model->config, directory, model->tensors, &model->count, error);
    }
    if (status == KVERN_OK) {
        status = block_tensors_join(model->config, directory, model->tensors, &model->count, error);
    }
    hide_unknown(model);
    return status == KVERN_OK ? index_tensors(model, directory, error) : status;
}

static kvern_status open_single(safetensors_model *model, const char *path, engine_error *error)
{
    model->shards = calloc(1, sizeof *model->shards);
    if (!model->shards) {
        return open_failed(error, path);
    }
    kvern_status status = safetensors_file_open(path, model->shards, error);
    model->shard_count = status == KVERN_OK;
    return status;
}

// A file beside the index, and nothing else.
static bool is_plain_name(const char *name)
{
    for (size_t i = 0; name && name[i]; i++) {
        if (name[i] == '/' || name[i] < 0x20 || name[i] > 0x7e) {
            return false;
        }
    }
    return name && name[0] != '\0' && name[0] != '.';
}

// The shards that a weight_map names, each once: an object of names.
static kvern_status list_shards(json_t *map, const char *path, json_t *shards, engine_error *error)
{
    const char *tensor;
    json_t *file;
    if (json_object_size(map) == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: it has no weight_map", path);
    }
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!is_plain_name(name)) {
            return engine_fail(error, KVERN_ERR_FORMAT, "%s: a tensor is not in a file beside it",
                               path);
        }
        if (json_object_set_new(shards, name, json_true()) != 0) {
            return open_failed(error, path);
        }
        if (json_object_size(shards) > MOST_SHARDS) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED, "%s: more than %d files", path,
                               MOST_SHARDS);
        }
    }
    return KVERN_OK;
}

// Every tensor of a shard is where the index says.
static kvern_status check_shard(const safetensors_file *shard, const char *name, const json_t *map,
                                const char *path, engine_error *error)
{
    for (size_t i = 0; i < shard->count; i++) {
        const char *tensor = shard->tensors[i].name.data; // jansson ends its keys
        const char *listed = json_string_value(json_object_get(map, tensor));
        if (!listed || strcmp(listed, name) != 0) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "%s: %s has the tensor %s, which is not "
                               "listed there",
                               path, name, tensor);
        }
    }
    return KVERN_OK;
}

// Some listed tensor is in none of the files.
static kvern_status fail_missing(const safetensors_model *model, const char *path,
                                 const json_t *map, engine_error *error)
{
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)map, tensor, file)
    {
        bool found = false;
        for (size_t i = 0; i < model->shard_count && !found; i++) {
            found = json_object_get(model->shards[i].header, tensor) != NULL;
        }
        if (!found) {
            return engine_fail(error, KVERN_ERR_FORMAT, "%s: %.128s has no tensor %.128s", path,
                               json_string_value(file), tensor);
        }
    }
    return engine_fail(error, KVERN_ERR_FORMAT, "%s: its files have other tensors", path);
}

static kvern_status open_listed(safetensors_model *model, const char *directory, const char *path,
                                const json_t *map, json_t *shards, engine_error *error)
{
    const char *name;
    json_t *unused;
    model->shards = calloc(json_object_size(shards), sizeof *model->shards);
    if (!model->shards) {
        return open_failed(error, path);
    }
    size_t tensors = 0;
    json_object_foreach(shards, name, unused)
    {
        char file[PATH_BYTES];
        safetensors_file *shard = &model->shards[model->shard_count];
        kvern_status status = join_path(directory, name, file, error);
        if (status == KVERN_OK) {
            status = safetensors_file_open(file, shard, error);
        }
        if (status == KVERN_OK) {
            model->shard_count++;
            tensors += shard->count;
            status = check_shard(shard, name, map, path, error);
        }
        if (status != KVERN_OK) {
            return status;
        }
    }
    return tensors == json_object_size(map) ? KVERN_OK : fail_missing(model, path, map, error);
}

static kvern_status open_index(safetensors_model *model, const char *directory, const char *path,
                               engine_error *error)
{
    mapped_file file;
    json_t *root = NULL;
    kvern_status status = mapped_file_open(path, &file, error);
    if (status != KVERN_OK) {
        return status;
    }
    status =
        json_text_read(file.data ? (const char *)file.data : "", file.bytes, path, &root, error);
    mapped_file_close(&file);
    if (status != KVERN_OK) {
        return status;
    }
    json_t *shards = json_object();
    json_t *map = json_object_get(root, "weight_map");
    status = shards ? list_shards(map, path, shards, error) : open_failed(error, path);
    if (status == KVERN_OK) {
        status = open_listed(model, directory, path, map, shards, error);
    }
    json_decref(shards);
    json_decref(root);
    return status;
}

static kvern_status open_shards(safetensors_model *model, const char *directory,
                                engine_error *error)
{
    char path[PATH_BYTES], index[PATH_BYTES];
    kvern_status status = join_path(directory, "model.safetensors", path, error);
    if (status == KVERN_OK) {
        status = join_path(directory, "model.safetensors.index.json", index, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    bool single = access(path, F_OK) == 0 || access(index, F_OK) != 0;
    return single ? open_single(model, path, error) : open_index(model, directory, index, error);
}

static void find_names(safetensors_model *model, hf_names_find find)
{
    config_value type = config_json_find(model->config, "model_type");
    model->names = type.kind == CONFIG_TEXT ? find(type.text) : NULL;
}

// Takes the model over when it failed.
static kvern_status finish(safetensors_model *model, kvern_status status, safetensors_model **out)
{
    if (status != KVERN_OK) {
        safetensors_model_close(model);
        model = NULL;
    }
    *out = model;
    return status;
}

kvern_status safetensors_model_open(const char *directory, hf_names_find find,
                                    safetensors_model **out, engine_error *error)
{
    *out = NULL;
    safetensors_model *model = calloc(1, sizeof *model);
    if (!model) {
        return open_failed(error, directory);
    }
    kvern_status status = read_config(model, directory, error);
    if (status == KVERN_OK) {
        find_names(model, find);
        status = open_shards(model, directory, error);
    }
    if (status == KVERN_OK) {
        status = take_tensors(model, directory, error);
    }
    return finish(model, status, out);
}

kvern_status safetensors_model_read(const char *config, size_t config_bytes, const void *tensors,
                                    size_t tensor_bytes, hf_names_find find,
                                    safetensors_model **out, engine_error *error)
{
    *out = NULL;
    safetensors_model *model = calloc(1, sizeof *model);
    if (!model) {
        return open_failed(error, "memory");
    }
    model->config_bytes = config_bytes;
    kvern_status status =
        config_json_read(config, config_bytes, "config.json", &model->config, error);
    model->shards = calloc(1, sizeof *model->shards);
    if (status == KVERN_OK && !model->shards) {
        status = open_failed(error, "memory");
    }
    if (status == KVERN_OK) {
        find_names(model, find);
        status = safetensors_file_read(tensors, tensor_bytes, "memory", model->shards, error);
        model->shard_count = status == KVERN_OK;
    }
    if (status == KVERN_OK) {
        status = take_tensors(model, "memory", error);
    }
    return finish(model, status, out);
}

void safetensors_model_close(safetensors_model *model)
{
    if (!model) {
        return;
    }
    for (size_t i = 0; i < model->shard_count; i++) {
        safetensors_file_close(&model->shards[i]);
    }
    free(model->shards);
    free(model->tensors);
    name_index_free(&model->index);
    config_json_free(model->config);
    free(model);
}

// --- As a source of weights

static size_t tensor_count(const void *file)
{
    return ((const safetensors_model *)file)->count;
}

static const weights_tensor *tensor_at(const void *file, size_t index)
{
    const safetensors_model *model = file;
    return index < model->count ? &model->tensors[index] : NULL;
}

// What the engine calls "blk.3.attn_q.weight" is "model.layers.3.self_attn.q_proj.weight" there. A
// name that the format does not have is left as it is, and not found.
// Writes the directory's name of what the engine calls `name`. Returns the list's row that has it,
// or NULL.
static const hf_tensor_name *name_by_list(const safetensors_model *model,
                                          const hf_tensor_name *list, const char *name, char *text,
                                          size_t bytes)
{
    const char *rest = name;
    int number = 0;
    if (strncmp(name, "blk.", 4) == 0) {
        number = (int)strcspn(name + 4, ".");
        rest = name + 4 + number + (name[4 + number] == '.');
    }
    char found[NAME_BYTES];
    const hf_prefix *prefix = model->prefix;
    const hf_tensor_name *row = hf_translate(list, rest, found, sizeof found);
    if (!row) {
        return NULL;
    }
    if (rest != name) {
        snprintf(text, bytes, "%slayers.%.*s.%s", prefix->model, number, name + 4, found);
    } else if (strncmp(found, "model.", 6) == 0) {
        snprintf(text, bytes, "%s%s", prefix->model, found + 6);
    } else {
        snprintf(text, bytes, "%s%s", prefix->other, found);
    }
    return row;
}

// Of several names the first that the directory has, or else the first.
static void tensor_name(const void *file, const char *name, char *text, size_t bytes)
{
    const safetensors_model *model = file;
    const hf_tensor_name *own = model->names ? model->names->tensors : NULL, *row = own;
    while ((row = name_by_list(model, row, name, text, bytes))) {
        if (name_index_find(&model->index, text_view_of(text))) {
            return;
        }
        row++;
    }
    if (!name_by_list(model, own, name, text, bytes) &&
        !name_by_list(model, hf_common_tensors, name, text, bytes)) {
        snprintf(text, bytes, "%s", name);
    }
}

static const weights_tensor *find_tensor(const void *file, const char *name)
{
    const safetensors_model *model = file;
    char text[NAME_BYTES];
    tensor_name(file, name, text, sizeof text);
    return (const weights_tensor *)name_index_find(&model->index, text_view_of(text));
}

static void drop_pages(const void *file, const void *data, size_t bytes)
{
    const safetensors_model *model = file;
    for (size_t i = 0; i < model->shard_count; i++) {
        if (mapped_file_holds(&model->shards[i].file, data)) {
            mapped_file_drop(&model->shards[i].file, data, bytes);
            return;
        }
    }
}

static size_t key_count(const void *file)
{
    return config_json_count(((const safetensors_model *)file)->config);
}

static config_value key_at(const void *file, size_t index, text_view *key)
{
    return config_json_at(((const safetensors_model *)file)->config, index, key);
}

// The first key for a thing that the file has, or else the first one.
static const char *file_key(const safetensors_model *model, const char *name)
{
    const char *first = NULL;
    for (size_t t = 0; model->names && t < HF_KEY_TABLES && model->names->keys[t]; t++) {
        const key_table *table = model->names->keys[t];
        for (size_t i = 0; i < table->count; i++) {
            const key_row *row = &table->rows[i];
            if (!row->canonical || strcmp(row->canonical, name) != 0) {
                continue;
            }
            if (config_json_find(model->config, row->name).kind != CONFIG_ABSENT) {
                return row->name;
            }
            first = first ? first : row->name;
        }
    }
    return first;
}

static config_value find_key(const void *file, const char *name)
{
    const safetensors_model *model = file;
    if (strcmp(name, "general.architecture") == 0) {
        return model->names ? (config_value){.kind = CONFIG_TEXT,
                                             .text = text_view_of(model->names->architecture)}
                            : config_json_find(model->config, "model_type");
    }
    const char *key = file_key(model, name);
    return key ? config_json_find(model->config, key) : (config_value){.kind = CONFIG_ABSENT};
}

static void key_name(const void *file, const char *name, char *text, size_t bytes)
{
    const char *key = file_key(file, name);
    snprintf(text, bytes, "%s", key ? key : name);
}

static uint64_t file_bytes(const void *file)
{
    const safetensors_model *model = file;
    uint64_t bytes = model->config_bytes;
    for (size_t i = 0; i < model->shard_count; i++) {
        bytes += model->shards[i].file.bytes;
    }
    return bytes;
}

static const weights_format FORMAT = {
    .name = "safetensors",
    .hf_names = true,
    .tensor_count = tensor_count,
    .tensor_at = tensor_at,
    .find_tensor = find_tensor,
    .drop_pages = drop_pages,
    .key_count = key_count,
    .key_at = key_at,
    .find_key = find_key,
    .key_name = key_name,
    .tensor_name = tensor_name,
    .file_bytes = file_bytes,
};

weights safetensors_weights(const safetensors_model *model)
{
    return (weights){&FORMAT, model};
}
