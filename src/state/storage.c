// SPDX-License-Identifier: MIT
#include <kvern/storage.h>

#include "src/base/fail.h"
#include "src/codec/codec.h"

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
    const kvern_codec bf16 = kvern_codec_dense(KVERN_BF16);
    layer->k_codec = k;
    layer->v_codec = v;
    layer->start =
        kvern_codec_equal(&k, &bf16) && kvern_codec_equal(&v, &bf16) ? KVERN_NO_START : start;
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
