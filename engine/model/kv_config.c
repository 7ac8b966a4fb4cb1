// SPDX-License-Identifier: MIT
#include "engine/model/kv_config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_GROUP 64
#define BITS_OF_BF16 16
#define MISSING 0 // positions: as is said of all layers

// A whole number of an object from 0 to `highest`; `absent` when it has no such key, or an error
// when `absent` is negative.
static bool get_number(const json_t *object, const char *key, json_int_t highest, json_int_t absent,
                       json_int_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        *out = absent;
        return absent >= 0;
    }
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out <= highest;
}

static bool is_width(json_int_t bits)
{
    return (bits >= 2 && bits <= 6) || bits == 8 || bits == BITS_OF_BF16;
}

// How many positions stay precise, as kvern_layer_storage has it.
static kvern_status read_positions(const char *path, size_t index, const json_t *object,
                                   const char *key, int64_t *out, engine_error *error)
{
    json_int_t count;
    *out = MISSING;
    if (!json_object_get(object, key)) {
        return KVERN_OK;
    }
    if (!get_number(object, key, KVERN_MAX_WINDOW, -1, &count)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: entry %zu: %s is not a number of positions", path, index, key);
    }
    *out = count ? count : KVERN_NO_RESIDUAL;
    return KVERN_OK;
}

static kvern_status read_precise(const char *path, size_t index, const json_t *object,
                                 kvern_layer_storage *out, engine_error *error)
{
    kvern_status status = read_positions(path, index, object, "residual", &out->residual, error);
    if (status == KVERN_OK) {
        status = read_positions(path, index, object, "precise_sinks", &out->precise_sinks, error);
    }
    if (status == KVERN_OK && out->k.kind == KVERN_CODEC_BF16 &&
        (out->residual > 0 || out->precise_sinks > 0)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: entry %zu (layer %zu): residual or precise_sinks of a layer in "
                           "bf16",
                           path, index, out->layer);
    }
    return status;
}

static kvern_status read_layer(const char *path, size_t index, const json_t *object,
                               kvern_layer_storage *out, engine_error *error)
{
    json_int_t layer, bits, group;
    if (!json_is_object(object)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: entry %zu is no object", path, index);
    }
    if (!get_number(object, "layer_idx", KVERN_MAX_LAYERS, -1, &layer)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: entry %zu has no valid layer_idx", path,
                           index);
    }
    if (!get_number(object, "bits", BITS_OF_BF16, -1, &bits) || !is_width(bits)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: entry %zu (layer %d): bits is not 2, 3, 4, 5, 6, 8 or 16", path,
                           index, (int)layer);
    }
    if (!get_number(object, "group_size", 128, DEFAULT_GROUP, &group) ||
        (group != 32 && group != 64 && group != 128)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: entry %zu (layer %d): group_size is not 32, 64 or 128", path, index,
                           (int)layer);
    }
    out->layer = (size_t)layer;
    out->k = bits == BITS_OF_BF16 ? kvern_codec_dense(KVERN_BF16)
                                  : kvern_codec_affine((uint32_t)bits, (uint32_t)group);
    out->v = out->k;
    return read_precise(path, index, object, out, error);
}

static kvern_status read_array(const char *path, const json_t *array, kv_config *out,
                               engine_error *error)
{
    if (!json_is_array(array)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: not an array of layers", path);
    }
    const size_t count = json_array_size(array);
    out->layers = calloc(count + 1, sizeof *out->layers);
    if (!out->layers) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu layers", count);
    }
    out->count = count;
    for (size_t i = 0; i < count; i++) {
        kvern_status status = read_layer(path, i, json_array_get(array, i), &out->layers[i], error);
        if (status != KVERN_OK) {
            kv_config_free(out);
            return status;
        }
    }
    return KVERN_OK;
}

kvern_status kv_config_read(const char *path, kv_config *out, engine_error *error)
{
    json_error_t problem;
    *out = (kv_config){0};
    json_t *array = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!array) {
        if (json_error_code(&problem) == json_error_cannot_open_file) {
            return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
        }
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: line %d: %s", path, problem.line,
                           problem.text);
    }
    kvern_status status = read_array(path, array, out, error);
    json_decref(array);
    return status;
}

void kv_config_free(kv_config *config)
{
    free(config->layers);
    *config = (kv_config){0};
}
