// SPDX-License-Identifier: MIT
#include "engine/safetensors/quantized_tensors.h"

#include "engine/weights/name_index.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_NAME_BYTES 320
#define WEIGHT ".weight"

// How a matrix is quantized.
typedef struct scheme {
    bool quantized;
    bool mxfp4; // else affine
    uint64_t bits;
    uint64_t group;
} scheme;

typedef struct joining {
    const char *name; // of the directory
    const json_t *quantization;
    scheme all;
    weights_tensor *tensors;
    size_t count;
    name_index index;
    bool *joined; // of each tensor: it is a part of another one now
    engine_error *error;
} joining;

// --- config.json

static kvern_status fail_key(const joining *j, kvern_status status, const char *key,
                             const char *what)
{
    return engine_fail(j->error, status, "%s: quantization.%.128s %s", j->name, key, what);
}

// A member that keeps its value where it is absent.
static kvern_status read_count(const joining *j, const json_t *object, const char *key,
                               uint64_t *value)
{
    const json_t *found = json_object_get(object, key);
    if (!found) {
        return KVERN_OK;
    }
    if (!json_is_integer(found) || json_integer_value(found) <= 0) {
        return fail_key(j, KVERN_ERR_FORMAT, key, "is no number above 0");
    }
    *value = (uint64_t)json_integer_value(found);
    return KVERN_OK;
}

static kvern_status read_scheme(const joining *j, const json_t *object, scheme *out)
{
    const json_t *mode = json_object_get(object, "mode");
    const char *name = mode ? json_string_value(mode) : "affine";
    kvern_status status = read_count(j, object, "bits", &out->bits);
    if (status == KVERN_OK) {
        status = read_count(j, object, "group_size", &out->group);
    }
    if (status != KVERN_OK) {
        return status;
    }
    out->mxfp4 = name && strcmp(name, "mxfp4") == 0;
    if (!name || (strcmp(name, "affine") != 0 && !out->mxfp4)) {
        return engine_fail(j->error, KVERN_ERR_UNSUPPORTED,
                           "%s: quantization.mode \"%.40s\" is not supported; affine and mxfp4 are",
                           j->name, name ? name : "");
    }
    if (out->mxfp4) {
        return out->bits == 4 && out->group == 32 ? KVERN_OK
                                                  : fail_key(j, KVERN_ERR_UNSUPPORTED, "mode",
                                                             "mxfp4 has 4 bits, in groups of 32");
    }
    if (element_type_affine_bits(ELEMENT_AFFINE_2 - 2 + (uint32_t)(out->bits & 15)) != out->bits) {
        return fail_key(j, KVERN_ERR_UNSUPPORTED, "bits", "is none of 2, 3, 4, 5, 6 and 8");
    }
    return out->group == 32 || out->group == 64 || out->group == 128
               ? KVERN_OK
               : fail_key(j, KVERN_ERR_UNSUPPORTED, "group_size", "is none of 32, 64 and 128");
}

// Everything but these three is about one matrix: an object, or whether it is quantized.
static bool is_of_all(const char *key)
{
    return strcmp(key, "bits") == 0 || strcmp(key, "group_size") == 0 || strcmp(key, "mode") == 0;
}

static bool has_other_members(const json_t *object)
{
    const char *key;
    json_t *unused;
    json_object_foreach((json_t *)object, key, unused)
    {
        if (!is_of_all(key)) {
            return true;
        }
    }
    return false;
}

static kvern_status check_keys(const joining *j)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)j->quantization, key, value)
    {
        bool known = is_of_all(key) || json_is_boolean(value) ||
                     (json_is_object(value) && !has_other_members(value));
        if (!known) {
            return fail_key(j, KVERN_ERR_UNSUPPORTED, key, "is not known");
        }
    }
    return KVERN_OK;
}

// What is said of one matrix, by the name of its tensor without ".weight".
static kvern_status scheme_of(const joining *j, const char *module, scheme *out)
{
    const json_t *own = json_object_get(j->quantization, module);
    *out = j->all;
    if (json_is_boolean(own)) {
        out->quantized = json_is_true(own);
    } else if (own) {
        const char *mode = json_string_value(json_object_get(own, "mode"));
        const bool affine = !mode || strcmp(mode, "mxfp4") != 0;
        *out = (scheme){true, false, 4, affine ? 64 : 32}; // what MLX takes for what is not said
        return read_scheme(j, own, out);
    }
    return KVERN_OK;
}

// --- Tensors

static kvern_status fail_tensor(const joining *j, const weights_tensor *tensor, const char *what)
{
    return engine_fail(j->error, KVERN_ERR_FORMAT, "%s: tensor %.*s %s", j->name,
                       text_view_shown(tensor->name, 128), tensor->name.data, what);
}

static weights_tensor *find_part(const joining *j, const char *module, const char *part)
{
    char name[MOST_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", module, part);
    return (weights_tensor *)name_index_find(&j->index, text_view_of(name));
}

// Scales or biases: rows as the matrix has them, one number for each group.
static bool fits(const weights_tensor *part, const weights_tensor *tensor, uint64_t cols,
                 uint64_t group)
{
    bool right = part && part->dims == tensor->dims && part->shape[0] * group == cols;
    for (size_t i = 1; right && i < WEIGHTS_MAX_DIMS; i++) {
        right = part->shape[i] == tensor->shape[i];
    }
    return right;
}

static void take_part(joining *j, const weights_tensor *part, weights_tensor *tensor)
{
    j->joined[part - j->tensors] = true;
    tensor->bytes += part->bytes;
}

static kvern_status join_affine(joining *j, weights_tensor *tensor, const char *module,
                                const scheme *how)
{
    const uint64_t cols = tensor->shape[0];
    const weights_tensor *scales = find_part(j, module, ".scales");
    const weights_tensor *biases = find_part(j, module, ".biases");
    if (!fits(scales, tensor, cols, how->group) || !fits(biases, tensor, cols, how->group) ||
        !scales->known || scales->type != biases->type) {
        return fail_tensor(j, tensor,
                           "lacks scales and biases, or they do not fit its bits and groups");
    }
    tensor->type = ELEMENT_AFFINE_2 - 2 + (uint32_t)how->bits;
    tensor->groups =
        (weights_groups){scales->data, biases->data, scales->type, (uint32_t)how->group};
    take_part(j, scales, tensor);
    take_part(j, biases, tensor);
    return KVERN_OK;
}

static kvern_status join_mxfp4(joining *j, weights_tensor *tensor, const char *module)
{
    const weights_tensor *scales = find_part(j, module, ".scales");
    if (!fits(scales, tensor, tensor->shape[0], 32) || scales->type != ELEMENT_BYTES) {
        return fail_tensor(j, tensor, "lacks scales of bytes, or they do not fit it");
    }
    tensor->type = ELEMENT_MXFP4;
    tensor->groups = (weights_groups){scales->data, NULL, ELEMENT_BYTES, 32};
    take_part(j, scales, tensor);
    return KVERN_OK;
}

static kvern_status join(joining *j, weights_tensor *tensor, const char *module)
{
    scheme how;
    const kvern_status status = scheme_of(j, module, &how);
    if (status != KVERN_OK) {
        return status;
    }
    if (!how.quantized) {
        return fail_tensor(j, tensor, "has words, but config.json says that it is not quantized");
    }
    const uint64_t cols = tensor->shape[0] * 32 / how.bits; // words of four bytes are in the file
    if (tensor->dims < 2 || tensor->shape[0] * 32 % how.bits) {
        return fail_tensor(j, tensor, "does not fit its bits");
    }
    tensor->known = true;
    tensor->elements = tensor->elements / tensor->shape[0] * cols;
    tensor->shape[0] = cols;
    return how.mxfp4 ? join_mxfp4(j, tensor, module) : join_affine(j, tensor, module, &how);
}

static bool module_of(const weights_tensor *tensor, char module[MOST_NAME_BYTES])
{
    const size_t end = strlen(WEIGHT);
    if (tensor->type != ELEMENT_WORDS || tensor->name.size <= end ||
        tensor->name.size >= MOST_NAME_BYTES ||
        memcmp(tensor->name.data + tensor->name.size - end, WEIGHT, end) != 0) {
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
    return status;
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

// MLX writes the same object twice; another "quantization_config" is somebody else's, whose keys
// are refused.
static kvern_status check_other(const joining *j, const json_t *root)
{
    const json_t *other = json_object_get(root, "quantization_config");
    if (!other || json_is_null(other) || json_object_get(other, "quant_method")) {
        return KVERN_OK;
    }
    return j->quantization && json_equal(other, j->quantization)
               ? KVERN_OK
               : engine_fail(j->error, KVERN_ERR_UNSUPPORTED,
                             "%s: quantization_config is not what quantization is", j->name);
}

static kvern_status run(joining *j)
{
    const text_view *repeated; // told where all tensors are indexed
    j->joined = calloc(j->count + 1, sizeof *j->joined);
    if (!j->joined ||
        !name_index_build(&j->index, j->tensors, sizeof *j->tensors, j->count, &repeated)) {
        return engine_fail(j->error, KVERN_ERR_MEMORY, "%s: no memory to open it", j->name);
    }
    j->all.quantized = true;
    kvern_status status = read_scheme(j, j->quantization, &j->all);
    if (status == KVERN_OK) {
        status = check_keys(j);
    }
    return status == KVERN_OK ? join_all(j) : status;
}

kvern_status quantized_tensors_join(const config_json *config, const char *name,
                                    weights_tensor *tensors, size_t *count, engine_error *error)
{
    const json_t *root = config_json_root(config);
    joining j = {.name = name, .tensors = tensors, .count = *count, .error = error};
    const json_t *found = json_object_get(root, "quantization");
    j.quantization = json_is_object(found) ? found : NULL;
    kvern_status status = check_other(&j, root);
    if (status == KVERN_OK && j.quantization) {
        status = run(&j);
        *count = status == KVERN_OK ? keep_whole(&j) : *count;
    }
    free(j.joined);
    name_index_free(&j.index);
    return status;
}
