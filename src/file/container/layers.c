// SPDX-License-Identifier: MIT
// The layers of a file, from their signatures (docs/formats/container.md). What is read is written
// again and compared, so nothing is taken for something else.
#include "src/base/fail.h"
#include "src/file/container/container.h"

#include <stdlib.h>
#include <string.h>

// The rest of a signature; NULL: it is none that is known here.
typedef struct signature_text {
    const char *at;
} signature_text;

static bool take(signature_text *text, const char *word)
{
    const size_t bytes = strlen(word);
    if (!text->at || strncmp(text->at, word, bytes) != 0)
        return false;
    text->at += bytes;
    return true;
}

static void need(signature_text *text, const char *word)
{
    if (!take(text, word))
        text->at = NULL;
}

// At most 18 digits, so that none overflows.
static int64_t number(signature_text *text)
{
    int64_t value = 0;
    const size_t digits = text->at ? strspn(text->at, "0123456789") : 0;
    if (digits == 0 || digits > 18)
        text->at = NULL;
    for (size_t i = 0; text->at && i < digits; i++)
        value = 10 * value + (*text->at++ - '0');
    return value;
}

static int64_t number_behind(signature_text *text, const char *word)
{
    need(text, word);
    return number(text);
}

// ---- Codecs ----

static kvern_type take_type(signature_text *text)
{
    if (take(text, "bf16"))
        return KVERN_BF16;
    if (take(text, "f16"))
        return KVERN_F16;
    need(text, "f32");
    return KVERN_F32;
}

static kvern_codec take_grouped(signature_text *text, bool rotated)
{
    const uint32_t bits = (uint32_t)number(text), group = (uint32_t)number_behind(text, "g");
    kvern_codec codec =
        rotated ? kvern_codec_rotated(bits, group) : kvern_codec_affine(bits, group);
    codec.scales = take_type(text);
    if (rotated)
        (void)number_behind(text, "r"); // its version, which is compared in the end
    return codec;
}

static kvern_codec take_codec(signature_text *text)
{
    if (take(text, "affine"))
        return take_grouped(text, false);
    if (take(text, "rotated"))
        return take_grouped(text, true);
    if (!take(text, "turbo"))
        return kvern_codec_dense(take_type(text));
    const kvern_codec codec = kvern_codec_turbo((uint32_t)number(text));
    (void)number_behind(text, "r");
    (void)number_behind(text, "c");
    return codec;
}

static size_t take_stream(signature_text *text, const char *name, kvern_codec *codec)
{
    const int64_t dim = number_behind(text, name);
    need(text, "=");
    *codec = take_codec(text);
    return (size_t)dim;
}

// ---- Kinds ----

static kvern_layer take_attention(signature_text *text, kvern_layer layer)
{
    layer.kv_heads = (size_t)number_behind(text, ":h");
    layer.k_dim = take_stream(text, ":k", &layer.k_codec);
    layer.v_dim = take_stream(text, ":v", &layer.v_codec);
    if (take(text, ":start"))
        layer.start = number(text);
    if (take(text, ":precise")) {
        layer.precise_sinks = number(text);
        layer.residual = number_behind(text, "+");
    }
    return layer;
}

static kvern_layer take_window(signature_text *text)
{
    kvern_layer layer = kvern_layer_window(1, 8, number(text));
    layer.keep = number_behind(text, "+");
    layer.slack = number_behind(text, "+");
    return take_attention(text, layer);
}

static kvern_layer take_chunked(signature_text *text)
{
    kvern_layer layer = kvern_layer_chunked(1, 8, number(text));
    layer.slack = number_behind(text, "+");
    return take_attention(text, layer);
}

static kvern_layer take_latent(signature_text *text)
{
    kvern_codec latent = {0}, rope = {0}, index = {0};
    const size_t latent_dim = take_stream(text, ":latent", &latent);
    const bool has_rope = text->at && strncmp(text->at, ":rope", 5) == 0;
    const size_t rope_dim = has_rope ? take_stream(text, ":rope", &rope) : 0;
    const bool has_index = text->at && strncmp(text->at, ":index", 6) == 0;
    const size_t index_dim = has_index ? take_stream(text, ":index", &index) : 0;
    kvern_layer layer = kvern_layer_latent(latent_dim, rope_dim, index_dim);
    layer.latent_codec = latent;
    layer.rotated_latents = 1; // whoever made the file has asked for it
    layer.rope_codec = rope;
    layer.index_codec = index;
    return layer;
}

static kvern_layer take_recurrent(signature_text *text, kvern_recurrence recurrence)
{
    const size_t key_heads = (size_t)number_behind(text, ":h");
    const size_t value_heads = (size_t)number_behind(text, "/");
    const size_t k_dim = (size_t)number_behind(text, ":k");
    const size_t v_dim = (size_t)number_behind(text, ":v");
    const uint32_t taps = (uint32_t)number_behind(text, ":conv");
    return kvern_layer_recurrent(recurrence, key_heads, value_heads, k_dim, v_dim, taps);
}

// What its donor's signature says, which follows, is compared in the end.
static kvern_layer take_shared(signature_text *text, const kvern_layer *layers, size_t index)
{
    const int64_t donor = number(text);
    if (!text->at || donor >= (int64_t)index) {
        text->at = NULL;
        return kvern_layer_default(1, 8);
    }
    text->at += strlen(text->at);
    return kvern_layer_shared(layers, (size_t)donor);
}

static kvern_layer take_layer(signature_text *text, const kvern_layer *layers, size_t index)
{
    if (take(text, "full"))
        return take_attention(text, kvern_layer_default(1, 8));
    if (take(text, "window"))
        return take_window(text);
    if (take(text, "chunk"))
        return take_chunked(text);
    if (take(text, "latent"))
        return take_latent(text);
    if (take(text, "delta-channels"))
        return take_recurrent(text, KVERN_RECURRENCE_DELTA_CHANNELS);
    if (take(text, "delta"))
        return take_recurrent(text, KVERN_RECURRENCE_DELTA);
    if (take(text, "ssd"))
        return take_recurrent(text, KVERN_RECURRENCE_SSD);
    if (take(text, "lane:bytes"))
        return kvern_layer_lane((size_t)number(text));
    need(text, "shared:");
    return take_shared(text, layers, index);
}

// ---- All of them ----

static kvern_status refuse(const kvern_file *file, size_t layer)
{
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "%s: layer %zu: rows of %s, which this library does not know", file->path,
                      layer, kvern_file_signature(file, layer));
}

static kvern_status take_layers(const kvern_file *file, kvern_layer *layers)
{
    for (size_t l = 0; l < file->layers; l++) {
        signature_text text = {kvern_file_signature(file, l)};
        layers[l] = take_layer(&text, layers, l);
        if (!text.at || *text.at)
            return refuse(file, l);
    }
    return KVERN_OK;
}

// Versions of rotations and codebooks, numbers that do not fit their fields, what donors say.
static kvern_status compare(const kvern_file *file, const kvern_composition *made)
{
    for (size_t l = 0; l < file->layers; l++) {
        if (strcmp(kvern_file_signature(file, l), made->layers[l].signature) != 0)
            return refuse(file, l);
    }
    return KVERN_OK;
}

kvern_status kvern_file_composition(const kvern_file *file, kvern_composition **out)
{
    if (out)
        *out = NULL;
    if (!file || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or out is NULL");
    kvern_heap *heap = &file->context->heap;
    const size_t bytes = file->layers * sizeof(kvern_layer);
    void *layers;
    kvern_status status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &layers);
    if (status)
        return status;
    status = take_layers(file, layers);
    if (!status)
        status = kvern_composition_create(file->context, layers, file->layers, out);
    kvern_heap_give(heap, layers, bytes, KVERN_HEAP_ALIGNMENT);
    if (!status && (status = compare(file, *out))) {
        kvern_composition_release(*out);
        *out = NULL;
    }
    return status;
}
