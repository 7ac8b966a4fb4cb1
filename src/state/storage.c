// SPDX-License-Identifier: MIT
#include <kvern/storage.h>

#include "src/base/fail.h"
#include "src/codec/codec.h"
#include "src/state/composition.h"

#include <inttypes.h>
#include <string.h>

static const kvern_sized STORAGE_SIZES = KVERN_SIZED(
    kvern_storage, KVERN_SIZE_TO(kvern_storage, layer_count), KVERN_SIZE_TO(kvern_storage, index));

void kvern_storage_init(kvern_storage *storage, size_t size)
{
    const kvern_storage defaults = {
        .k = kvern_codec_dense(KVERN_BF16),
        .v = kvern_codec_dense(KVERN_BF16),
        .start = KVERN_NO_START,
        .latent = kvern_codec_dense(KVERN_F32),
        .rope = kvern_codec_dense(KVERN_F32),
        .index = kvern_codec_dense(KVERN_F32),
        .window_k = kvern_codec_dense(KVERN_BF16),
        .window_v = kvern_codec_dense(KVERN_BF16),
    };
    kvern_sized_init(&STORAGE_SIZES, &defaults, storage, size);
}

// ---- Presets ----

typedef struct preset {
    const char *name, *k, *v; // codecs
    int64_t residual, precise_sinks;
    const char *window_k, *window_v;
    int64_t window_residual;
} preset;

static const preset presets[] = {
    {"light", "rq8", "rq6", 128, 64, "rq8", "rq6", 128},
    {"balanced", "tq4", "tq3", 384, 64, "tq5", "tq4", 64},
    {"small", "tq4", "tq3", 64, 64, "tq4", "tq3", 64},
};
#define PRESETS (sizeof presets / sizeof presets[0])

const char *kvern_storage_preset_name(size_t index)
{
    return index < PRESETS ? presets[index].name : NULL;
}

static kvern_status set_preset(const preset *p, kvern_storage *storage)
{
    const char *const names[] = {p->k, p->v, p->window_k, p->window_v};
    kvern_codec codecs[4];
    for (size_t i = 0; i < 4; i++) {
        kvern_status status = kvern_codec_parse(names[i], 64, &codecs[i]);
        if (status)
            return status;
    }
    storage->k = codecs[0];
    storage->v = codecs[1];
    storage->residual = p->residual;
    storage->precise_sinks = p->precise_sinks;
    storage->windows_apart = 1;
    storage->window_k = codecs[2];
    storage->window_v = codecs[3];
    storage->window_residual = p->window_residual;
    return KVERN_OK;
}

kvern_status kvern_storage_preset(const char *name, kvern_storage *storage)
{
    if (!name || !storage)
        return kvern_fail(KVERN_ERR_ARGUMENT, "name or storage is NULL");
    if (storage->size < KVERN_SIZE_TO(kvern_storage, window_residual))
        return kvern_fail(KVERN_ERR_ARGUMENT, "a kvern_storage of %zu bytes has no presets",
                          storage->size);
    for (size_t i = 0; i < PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0)
            return set_preset(&presets[i], storage);
    }
    return kvern_fail(KVERN_ERR_ARGUMENT, "no preset is called %s", name);
}

// ---- Applying ----

static kvern_status check_exception(const kvern_layer_storage *other, size_t count)
{
    if (other->layer >= count)
        return kvern_fail(KVERN_ERR_RANGE, "storage for layer %zu, and there are %zu layers",
                          other->layer, count);
    if (kvern_codec_has_reserved(&other->k) || kvern_codec_has_reserved(&other->v))
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "storage for layer %zu: a reserved word is not 0",
                          other->layer);
    if (other->residual < KVERN_NO_RESIDUAL || other->precise_sinks < KVERN_NO_RESIDUAL)
        return kvern_fail(KVERN_ERR_RANGE,
                          "storage for layer %zu: a residual of %" PRId64 ", %" PRId64
                          " precise sinks",
                          other->layer, other->residual, other->precise_sinks);
    return KVERN_OK;
}

static kvern_status check(const kvern_storage *storage, size_t count)
{
    if (kvern_codec_has_reserved(&storage->k) || kvern_codec_has_reserved(&storage->v))
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a reserved word of k or v is not 0");
    if (storage->windows_apart > 1)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "windows_apart is %" PRIu64 ", neither 0 nor 1",
                          storage->windows_apart);
    if (kvern_codec_has_reserved(&storage->window_k) ||
        kvern_codec_has_reserved(&storage->window_v))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "a reserved word of window_k or window_v is not 0");
    if (kvern_codec_has_reserved(&storage->latent) || kvern_codec_has_reserved(&storage->rope) ||
        kvern_codec_has_reserved(&storage->index))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "a reserved word of latent, rope or index is not 0");
    if (storage->rotated_latents > 1)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "rotated_latents is %" PRIu64 ", neither 0 nor 1",
                          storage->rotated_latents);
    if (!storage->layers && storage->layer_count)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%zu exceptions, and layers is NULL",
                          storage->layer_count);
    if (storage->residual < 0 || storage->precise_sinks < 0 || storage->window_residual < 0)
        return kvern_fail(KVERN_ERR_RANGE,
                          "a residual of %" PRId64 ", %" PRId64 " precise sinks, in windows a "
                          "residual of %" PRId64,
                          storage->residual, storage->precise_sinks, storage->window_residual);
    for (size_t i = 0; i < storage->layer_count; i++) {
        kvern_status status = check_exception(&storage->layers[i], count);
        if (status)
            return status;
        for (size_t j = 0; j < i; j++) {
            if (storage->layers[j].layer == storage->layers[i].layer)
                return kvern_fail(KVERN_ERR_RANGE, "storage for layer %zu twice",
                                  storage->layers[i].layer);
        }
    }
    return KVERN_OK;
}

// Layers are as far apart as the caller's are long.
static const kvern_layer *layer_at(const kvern_layer *layers, size_t index)
{
    return (const kvern_layer *)((const char *)layers + index * layers->size);
}

// Of a layer that has a residual.
#define PRECISE_SIZE KVERN_SIZE_TO(kvern_layer, precise_sinks)

static bool has_precise(const kvern_storage *storage)
{
    bool precise =
        storage->residual > 0 || storage->precise_sinks > 0 || storage->window_residual > 0;
    for (size_t i = 0; i < storage->layer_count; i++)
        precise =
            precise || storage->layers[i].residual > 0 || storage->layers[i].precise_sinks > 0;
    return precise;
}

// Layers that are counted as the first and the last ones: shared layers keep nothing.
static size_t count_owners(const kvern_layer *layers, size_t count)
{
    size_t owners = 0;
    for (size_t i = 0; i < count; i++)
        owners += layer_at(layers, i)->kind != KVERN_LAYER_SHARED;
    return owners;
}

static kvern_status check_layers(const kvern_storage *storage, const kvern_layer *layers,
                                 size_t count)
{
    kvern_layer layer;
    for (size_t i = 0; i < count; i++) {
        kvern_status status = kvern_sized_read_entry(&kvern_layer_sizes, layers, i, &layer);
        if (status)
            return status;
        if (has_precise(storage) && layer_at(layers, i)->size < PRECISE_SIZE)
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "layer %zu: a kvern_layer of %zu bytes has no residual", i,
                              layer_at(layers, i)->size);
    }
    const size_t owners = count_owners(layers, count);
    if (storage->precise_first > owners || storage->precise_last > owners)
        return kvern_fail(KVERN_ERR_RANGE, "%zu first and %zu last layers in bf16, of %zu layers",
                          storage->precise_first, storage->precise_last, owners);
    for (size_t i = 0; i < storage->layer_count; i++) {
        const size_t at = storage->layers[i].layer;
        if (layer_at(layers, at)->kind == KVERN_LAYER_SHARED)
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "storage for layer %zu, a shared one, which keeps nothing", at);
        if (layer_at(layers, at)->kind == KVERN_LAYER_RECURRENT)
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "storage for layer %zu, whose recurrent state is stored in f32", at);
        if (layer_at(layers, at)->kind == KVERN_LAYER_LATENT &&
            (storage->layers[i].residual || storage->layers[i].precise_sinks))
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "storage for layer %zu: a residual or precise sinks of latents", at);
    }
    return KVERN_OK;
}

// Of a size that has no fields of latents, a layer of them is refused where it is planned.
static void store_latents(kvern_layer *layer, kvern_codec latent, kvern_codec rope)
{
    if (layer->size < KVERN_SIZE_TO(kvern_layer, index_codec))
        return;
    layer->latent_codec = latent;
    layer->rope_codec = layer->rope_dim ? rope : kvern_codec_dense(KVERN_F32);
}

// Whether all that a query of the layer sees is within the residual.
static bool is_all_precise(const kvern_layer *layer, int64_t residual)
{
    if (layer->kind == KVERN_LAYER_WINDOW)
        return residual >= layer->window;
    return layer->kind == KVERN_LAYER_CHUNKED && residual >= layer->chunk;
}

// Whether the storage of windows is the layer's.
static bool is_apart(const kvern_storage *storage, const kvern_layer *layer)
{
    return storage->windows_apart &&
           (layer->kind == KVERN_LAYER_WINDOW || layer->kind == KVERN_LAYER_CHUNKED);
}

static int64_t residual_of(const kvern_storage *storage, const kvern_layer *layer)
{
    return is_apart(storage, layer) ? storage->window_residual : storage->residual;
}

// What an exception says; without one, `usual`.
static int64_t exception_or(int64_t said, int64_t usual)
{
    return said == 0 ? usual : said == KVERN_NO_RESIDUAL ? 0 : said;
}

// Recurrent layers have one storage, and layers of latents fields of their own.
static void store_as(const kvern_storage *storage, kvern_layer *layers,
                     const kvern_layer_storage *as)
{
    kvern_layer *layer = (kvern_layer *)layer_at(layers, as->layer);
    if (layer->kind == KVERN_LAYER_RECURRENT || layer->kind == KVERN_LAYER_LATENT ||
        layer->kind == KVERN_LAYER_SHARED)
        return;
    const kvern_codec bf16 = kvern_codec_dense(KVERN_BF16);
    const int64_t residual = exception_or(as->residual, residual_of(storage, layer));
    const bool all = is_all_precise(layer, residual);
    layer->k_codec = all ? bf16 : as->k;
    layer->v_codec = all ? bf16 : as->v;
    const bool precise =
        kvern_codec_equal(&layer->k_codec, &bf16) && kvern_codec_equal(&layer->v_codec, &bf16);
    layer->start = precise ? KVERN_NO_START : storage->start;
    if (layer->size < PRECISE_SIZE)
        return;
    layer->residual = precise ? 0 : residual;
    layer->precise_sinks = precise ? 0 : exception_or(as->precise_sinks, storage->precise_sinks);
}

static void store_all(const kvern_storage *storage, kvern_layer *layers, size_t count)
{
    const kvern_codec precise = kvern_codec_dense(KVERN_BF16);
    const size_t owners = count_owners(layers, count);
    for (size_t i = 0, number = 0; i < count; i++) {
        if (layer_at(layers, i)->kind == KVERN_LAYER_SHARED)
            continue;
        kvern_layer_storage as = {.layer = i, .k = storage->k, .v = storage->v};
        if (is_apart(storage, layer_at(layers, i)))
            as.k = storage->window_k, as.v = storage->window_v;
        if (number < storage->precise_first || number >= owners - storage->precise_last)
            as.k = as.v = precise;
        store_as(storage, layers, &as);
        number++;
    }
}

static void store_all_latents(const kvern_storage *storage, kvern_layer *layers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kvern_layer *layer = (kvern_layer *)layer_at(layers, i);
        if (layer->kind != KVERN_LAYER_LATENT)
            continue;
        store_latents(layer, storage->latent, storage->rope);
        if (layer->size >= KVERN_SIZE_TO(kvern_layer, rotated_latents))
            layer->rotated_latents = storage->rotated_latents;
        if (layer->size >= KVERN_SIZE_TO(kvern_layer, index_codec))
            layer->index_codec = layer->index_dim ? storage->index : kvern_codec_dense(KVERN_F32);
    }
    for (size_t i = 0; i < storage->layer_count; i++) {
        kvern_layer *layer = (kvern_layer *)layer_at(layers, storage->layers[i].layer);
        if (layer->kind == KVERN_LAYER_LATENT)
            store_latents(layer, storage->layers[i].k, storage->layers[i].v);
    }
}

kvern_status kvern_storage_apply(const kvern_storage *given, kvern_layer *layers, size_t count)
{
    kvern_storage storage;
    if (!given || (!layers && count))
        return kvern_fail(KVERN_ERR_ARGUMENT, "storage or layers is NULL");
    kvern_status status = kvern_sized_read(&STORAGE_SIZES, given, &storage);
    if (!status)
        status = check(&storage, count);
    if (!status)
        status = check_layers(&storage, layers, count);
    if (status)
        return status;
    store_all_latents(&storage, layers, count);
    store_all(&storage, layers, count);
    for (size_t i = 0; i < storage.layer_count; i++)
        store_as(&storage, layers, &storage.layers[i]);
    return KVERN_OK;
}
