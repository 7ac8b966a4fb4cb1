// SPDX-License-Identifier: MIT
#include <kvern/storage.h>

#include "src/base/fail.h"

#include <string.h>

kvern_storage kvern_storage_default(void)
{
    kvern_storage storage;
    memset(&storage, 0, sizeof storage);
    storage.size = sizeof storage;
    storage.k = storage.v = kvern_codec_dense(KVERN_BF16);
    storage.start = KVERN_NO_START;
    return storage;
}

// "", or "g32", "g64", "g128", which replace *group.
static bool parse_group(const char *text, uint32_t *group)
{
    static const uint32_t groups[] = {32, 64, 128};
    static const char *const names[] = {"g32", "g64", "g128"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *group = groups[i];
            return true;
        }
    }
    return text[0] == '\0';
}

kvern_status kvern_codec_parse(const char *name, uint32_t group, kvern_codec *out)
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    if (!name || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "name or out is NULL");
    for (int type = 0; type < 3; type++) {
        if (strcmp(name, types[type]) == 0) {
            *out = kvern_codec_dense((kvern_type)type);
            return KVERN_OK;
        }
    }
    if (name[0] != 'q' || !strchr("234568", name[1]) || !name[1] || !parse_group(name + 2, &group))
        return kvern_fail(
            KVERN_ERR_ARGUMENT,
            "\"%.40s\" is not bf16, f16, f32, q8, q6, q5, q4, q3 or q2, or one of these "
            "with a group: q4g32",
            name);
    if (group != 32 && group != 64 && group != 128)
        return kvern_fail(KVERN_ERR_ARGUMENT, "a group of %u, not 32, 64 or 128", (unsigned)group);
    *out = kvern_codec_affine((uint32_t)(name[1] - '0'), group);
    return KVERN_OK;
}

static kvern_status check(const kvern_storage *storage, const kvern_layer *layers, size_t count)
{
    if (!storage || (!layers && count))
        return kvern_fail(KVERN_ERR_ARGUMENT, "storage or layers is NULL");
    if (storage->size != sizeof *storage)
        return kvern_fail(KVERN_ERR_ARGUMENT, "kvern_storage.size is %zu, expected %zu",
                          storage->size, sizeof *storage);
    if (!storage->layers && storage->layer_count)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%zu exceptions, and layers is NULL",
                          storage->layer_count);
    if (storage->precise_first > count || storage->precise_last > count)
        return kvern_fail(KVERN_ERR_RANGE, "%zu first and %zu last layers in bf16, of %zu layers",
                          storage->precise_first, storage->precise_last, count);
    for (size_t i = 0; i < storage->layer_count; i++) {
        const size_t layer = storage->layers[i].layer;
        if (layer >= count)
            return kvern_fail(KVERN_ERR_RANGE, "storage for layer %zu, and there are %zu layers",
                              layer, count);
        for (size_t j = 0; j < i; j++) {
            if (storage->layers[j].layer == layer)
                return kvern_fail(KVERN_ERR_RANGE, "storage for layer %zu twice", layer);
        }
    }
    return KVERN_OK;
}

static void store_as(kvern_layer *layer, kvern_codec k, kvern_codec v, int64_t start)
{
    const bool bf16 = k.kind == KVERN_CODEC_BF16 && v.kind == KVERN_CODEC_BF16;
    layer->k_codec = k;
    layer->v_codec = v;
    layer->start = bf16 ? KVERN_NO_START : start;
}

kvern_status kvern_storage_apply(const kvern_storage *storage, kvern_layer *layers, size_t count)
{
    kvern_status status = check(storage, layers, count);
    if (status)
        return status;
    const kvern_codec precise = kvern_codec_dense(KVERN_BF16);
    for (size_t i = 0; i < count; i++) {
        if (i < storage->precise_first || i >= count - storage->precise_last)
            store_as(&layers[i], precise, precise, KVERN_NO_START);
        else
            store_as(&layers[i], storage->k, storage->v, storage->start);
    }
    for (size_t i = 0; i < storage->layer_count; i++) {
        const kvern_layer_storage *other = &storage->layers[i];
        store_as(&layers[other->layer], other->k, other->v, storage->start);
    }
    return KVERN_OK;
}
