// SPDX-License-Identifier: MIT
#include "cli/commands/rows_storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CODEC_TEXT 16
#define LAYER_TEXT 120
#define USUAL_GROUP 64

// The name that kvern_codec_parse takes.
static void name_codec(const kvern_codec *codec, char text[CODEC_TEXT])
{
    static const char *const dense[] = {"f32", "bf16", "f16"};
    const char *rotated = codec->kind == KVERN_CODEC_ROTATED ? "r" : "";
    if (codec->kind <= KVERN_CODEC_F16)
        snprintf(text, CODEC_TEXT, "%s", dense[codec->kind]);
    else if (codec->kind == KVERN_CODEC_TURBO)
        snprintf(text, CODEC_TEXT, "tq%" PRIu32, codec->bits % 10);
    else if (codec->group == USUAL_GROUP)
        snprintf(text, CODEC_TEXT, "%sq%" PRIu32, rotated, codec->bits % 10);
    else
        snprintf(text, CODEC_TEXT, "%sq%" PRIu32 "g%" PRIu32, rotated, codec->bits % 10,
                 codec->group % 1000);
}

static int name_precise(const kvern_layer *layer, char *text, size_t bytes)
{
    if (layer->precise_sinks && layer->residual)
        return snprintf(text, bytes, " behind the first %" PRId64 " and the last %" PRId64,
                        layer->precise_sinks, layer->residual);
    if (layer->precise_sinks || layer->residual)
        return snprintf(text, bytes, " behind the %s %" PRId64, layer->residual ? "last" : "first",
                        layer->residual ? layer->residual : layer->precise_sinks);
    return 0;
}

static void name_attention(const kvern_layer *layer, char text[LAYER_TEXT])
{
    char k[CODEC_TEXT], v[CODEC_TEXT];
    name_codec(&layer->k_codec, k);
    name_codec(&layer->v_codec, v);
    const bool same = strcmp(k, v) == 0;
    int length = snprintf(text, LAYER_TEXT, "%s%s%s", k, same ? "" : "/", same ? "" : v);
    length += name_precise(layer, text + length, LAYER_TEXT - (size_t)length);
    if (layer->start != KVERN_NO_START)
        snprintf(text + length, LAYER_TEXT - (size_t)length, " from %" PRId64 " on", layer->start);
}

// False: a layer that nothing is chosen for.
static bool name_layer(const kvern_layer *layer, char text[LAYER_TEXT])
{
    char codec[CODEC_TEXT];
    if (layer->kind == KVERN_LAYER_RECURRENT || layer->kind == KVERN_LAYER_SHARED)
        return false;
    if (layer->kind != KVERN_LAYER_LATENT) {
        name_attention(layer, text);
        return true;
    }
    name_codec(&layer->latent_codec, codec);
    snprintf(text, LAYER_TEXT, "%s", codec);
    return true;
}

// Whether one of the texts, which have ", " between them, is that of the layer.
static bool has_text(const char *list, const char *layer)
{
    const size_t bytes = strlen(layer);
    for (const char *at = list; at; at = strstr(at, ", ")) {
        at += *at == ',' ? 2 : 0;
        if (strncmp(at, layer, bytes) == 0 && (at[bytes] == '\0' || at[bytes] == ','))
            return true;
    }
    return false;
}

const char *rows_storage(const kvern_file *file, char text[ROWS_STORAGE_TEXT])
{
    kvern_composition *layers;
    text[0] = '\0';
    if (kvern_file_composition(file, &layers) != KVERN_OK)
        return text;
    for (size_t l = 0; l < kvern_composition_layers(layers); l++) {
        char layer[LAYER_TEXT];
        const size_t length = strlen(text);
        if (name_layer(kvern_composition_layer(layers, l), layer) && !has_text(text, layer))
            snprintf(text + length, ROWS_STORAGE_TEXT - length, "%s%s", length ? ", " : "", layer);
    }
    if (!text[0])
        snprintf(text, ROWS_STORAGE_TEXT, "f32"); // recurrent states alone
    kvern_composition_release(layers);
    return text;
}
