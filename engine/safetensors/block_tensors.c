// SPDX-License-Identifier: MIT
#include "engine/safetensors/block_tensors.h"

#include "engine/weights/name_index.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS "_blocks"
#define SCALES "_scales"
#define BLOCK_BYTES 16
#define BLOCK_ELEMENTS 32
#define MOST_NAME_BYTES 320
// More than any model's list; each entry is compared with the name of each tensor in blocks.
#define MOST_ENTRIES 1024

typedef struct joining {
    const char *name;       // of the directory
    const json_t *unwanted; // modules_to_not_convert, or NULL
    weights_tensor *tensors;
    size_t count;
    size_t found; // tensors in blocks
    name_index index;
    bool *joined; // of each tensor: it is a part of another one now
    engine_error *error;
} joining;

// --- config.json

static kvern_status fail_key(const joining *j, kvern_status status, const char *key,
                             const char *what)
{
    return engine_fail(j->error, status, "%s: quantization_config.%.128s %s", j->name, key, what);
}

static kvern_status read_list(joining *j, const json_t *list)
{
    static const char key[] = "modules_to_not_convert";
    if (!list || json_is_null(list)) {
        return KVERN_OK;
    }
    if (json_array_size(list) > MOST_ENTRIES) {
        return fail_key(j, KVERN_ERR_UNSUPPORTED, key, "has more entries than any model needs");
    }
    bool strings = json_is_array(list);
    for (size_t i = 0; strings && i < json_array_size(list); i++) {
        strings = json_is_string(json_array_get(list, i));
    }
    j->unwanted = list;
    return strings ? KVERN_OK : fail_key(j, KVERN_ERR_FORMAT, key, "is no list of names");
}

static kvern_status read_members(joining *j, const json_t *root, const json_t *object)
{
    const char *key;
    json_t *value;
    const json_t *other = json_object_get(root, "quantization");
    if (other && !json_is_null(other)) {
        return fail_key(j, KVERN_ERR_UNSUPPORTED, "quant_method", "is there beside quantization");
    }
    json_object_foreach((json_t *)object, key, value)
    {
        if (strcmp(key, "quant_method") != 0 && strcmp(key, "modules_to_not_convert") != 0) {
            return fail_key(j, KVERN_ERR_UNSUPPORTED, key, "is not known with mxfp4");
        }
    }
    return read_list(j, json_object_get(object, "modules_to_not_convert"));
}

// Whether a name begins with what a pattern says, whose stars are any characters.
static bool begins_with(const char *name, const char *pattern)
{
    size_t size = strcspn(pattern, "*");
    if (strncmp(name, pattern, size) != 0) {
        return false;
    }
    while (pattern[size] == '*') {
        name += size;
        pattern += size + 1;
        size = strcspn(pattern, "*");
        while (*name && strncmp(name, pattern, size) != 0) {
            name++;
        }
        if (strncmp(name, pattern, size) != 0) {
            return false;
        }
    }
    return true;
}

// Whether an entry of modules_to_not_convert is about a module or about what it is a part of; an
// entry may leave the beginning of names out.
static bool is_about(const char *entry, const char *module)
{
    for (const char *part = module; part; part = strchr(part, '.')) {
        part += *part == '.';
        if (begins_with(part, entry)) {
            return true;
        }
    }
    return false;
}

static kvern_status check_wanted(const joining *j, const char *module)
{
    for (size_t i = 0; i < json_array_size(j->unwanted); i++) {
        const char *entry = json_string_value(json_array_get(j->unwanted, i));
        if (is_about(entry, module)) {
            return engine_fail(j->error, KVERN_ERR_FORMAT,
                               "%s: quantization_config.modules_to_not_convert has %.128s, but "
                               "%s is in blocks",
                               j->name, entry, module);
        }
    }
    return KVERN_OK;
}

// --- Tensors

// The scales of a tensor in blocks; NULL when they are missing or do not fit it.
static const weights_tensor *find_scales(const joining *j, const weights_tensor *blocks,
                                         const char *module)
{
    char name[MOST_NAME_BYTES + sizeof SCALES];
    snprintf(name, sizeof name, "%s" SCALES, module);
    const weights_tensor *scales =
        (const weights_tensor *)name_index_find(&j->index, text_view_of(name));
    bool fits = scales && scales->type == ELEMENT_BYTES && scales->dims + 1 == blocks->dims;
    for (size_t i = 0; fits && i < scales->dims; i++) {
        fits = scales->shape[i] == blocks->shape[i + 1];
    }
    return fits ? scales : NULL;
}

static kvern_status join(joining *j, weights_tensor *tensor, const char *module)
{
    kvern_status status = check_wanted(j, module);
    if (status != KVERN_OK) {
        return status;
    }
    const weights_tensor *scales = find_scales(j, tensor, module);
    if (!scales || tensor->dims < 3 || tensor->shape[0] != BLOCK_BYTES) {
        return engine_fail(j->error, KVERN_ERR_FORMAT,
                           "%s: tensor %s" BLOCKS " has no blocks of %d bytes, or lacks " SCALES
                           " of bytes that fit it",
                           j->name, module, BLOCK_BYTES);
    }
    tensor->dims--;
    tensor->shape[0] = tensor->shape[1] * BLOCK_ELEMENTS;
    for (size_t i = 1; i < WEIGHTS_MAX_DIMS; i++) {
        tensor->shape[i] = i + 1 < WEIGHTS_MAX_DIMS ? tensor->shape[i + 1] : 1;
    }
    tensor->type = ELEMENT_MXFP4;
    tensor->known = true;
    tensor->elements = tensor->elements / BLOCK_BYTES * BLOCK_ELEMENTS;
    tensor->bytes += scales->bytes;
    tensor->groups = (weights_groups){scales->data, NULL, ELEMENT_BYTES, BLOCK_ELEMENTS};
    j->joined[scales - j->tensors] = true;
    j->found++;
    return KVERN_OK;
}

// The name of a tensor in blocks without its ending.
static bool module_of(const weights_tensor *tensor, char module[MOST_NAME_BYTES])
{
    const size_t end = strlen(BLOCKS);
    if (tensor->type != ELEMENT_BYTES || tensor->name.size <= end ||
        tensor->name.size >= MOST_NAME_BYTES ||
        memcmp(tensor->name.data + tensor->name.size - end, BLOCKS, end) != 0) {
        return false;
    }
    snprintf(module, MOST_NAME_BYTES, "%.*s", (int)(tensor->name.size - end), tensor->name.data);
    return true;
}

static kvern_status join_all(joining *j)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < j->count; i++) {
        char module[MOST_NAME_BYTES];
        if (module_of(&j->tensors[i], module)) {
            status = join(j, &j->tensors[i], module);
        }
    }
    return status == KVERN_OK && j->found == 0 ? fail_key(j, KVERN_ERR_FORMAT, "quant_method",
                                                          "is mxfp4, but no tensor is in blocks")
                                               : status;
}

static size_t keep_whole(const joining *j)
{
    size_t kept = 0;
    for (size_t i = 0; i < j->count; i++) {
        if (!j->joined[i]) {
            j->tensors[kept++] = j->tensors[i];
        }
    }
    return kept;
}

static kvern_status run(joining *j, const json_t *root, const json_t *object)
{
    const text_view *repeated; // told where all tensors are indexed
    j->joined = calloc(j->count + 1, sizeof *j->joined);
    if (!j->joined ||
        !name_index_build(&j->index, j->tensors, sizeof *j->tensors, j->count, &repeated)) {
        return engine_fail(j->error, KVERN_ERR_MEMORY, "%s: no memory to open it", j->name);
    }
    const kvern_status status = read_members(j, root, object);
    return status == KVERN_OK ? join_all(j) : status;
}

kvern_status block_tensors_join(const config_json *config, const char *name,
                                weights_tensor *tensors, size_t *count, engine_error *error)
{
    const json_t *root = config_json_root(config);
    const json_t *object = json_object_get(root, "quantization_config");
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    if (!method || strcmp(method, "mxfp4") != 0) {
        return KVERN_OK; // keys say what else is read
    }
    joining j = {.name = name, .tensors = tensors, .count = *count, .error = error};
    const kvern_status status = run(&j, root, object);
    *count = status == KVERN_OK ? keep_whole(&j) : *count;
    free(j.joined);
    name_index_free(&j.index);
    return status;
}
