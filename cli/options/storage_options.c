// SPDX-License-Identifier: MIT
#include "cli/options/storage_options.h"

#include "engine/model/kv_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_GROUP 64

// A codec's name, `length` bytes of it.
static bool parse_name(const char *text, size_t length, char name[STORAGE_NAME])
{
    kvern_codec codec;
    char copy[STORAGE_NAME] = "";
    if (length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, length);
    if (kvern_codec_parse(copy, DEFAULT_GROUP, &codec) != KVERN_OK) {
        return false;
    }
    memcpy(name, copy, sizeof copy);
    return true;
}

// The preset of that name; NULL: there is none.
static const char *find_preset(const char *text)
{
    const char *name;
    for (size_t i = 0; (name = kvern_storage_preset_name(i)); i++) {
        if (strcmp(name, text) == 0) {
            return name;
        }
    }
    return NULL;
}

bool storage_parse(const char *text, storage_options *options)
{
    storage_options parsed = *options;
    parsed.preset = find_preset(text);
    if (parsed.preset) {
        *options = parsed;
        return true;
    }
    const char *slash = strchr(text, '/');
    const size_t length = slash ? (size_t)(slash - text) : strlen(text);
    const char *v = slash ? slash + 1 : text;
    if (!parse_name(text, length, parsed.k) || !parse_name(v, strlen(v), parsed.v)) {
        return false;
    }
    *options = parsed;
    return true;
}

static void parse_kv_both(const struct argp_state *state, const char *argument,
                          storage_options *options)
{
    storage_options parsed = {0};
    if (!storage_parse(argument, &parsed)) {
        options_fail(state,
                     "--kv takes " STORAGE_CODECS ", two of them as in q8/q4, or " STORAGE_PRESETS
                     ", not '%s'",
                     argument);
    }
    options->preset = parsed.preset;
    memcpy(options->both[0], parsed.k, sizeof parsed.k);
    memcpy(options->both[1], parsed.v, sizeof parsed.v);
}

// --kv-k and --kv-v win over --kv, whichever stands first.
static void complete_kv(storage_options *options)
{
    if (!options->k[0]) {
        memcpy(options->k, options->both[0], sizeof options->k);
    }
    if (!options->v[0]) {
        memcpy(options->v, options->both[1], sizeof options->v);
    }
}

static void parse_kv_one(const struct argp_state *state, const char *option, const char *argument,
                         char name[STORAGE_NAME])
{
    if (!parse_name(argument, strlen(argument), name)) {
        options_fail(state, "%s takes " STORAGE_CODECS ", not '%s'", option, argument);
    }
}

static error_t parse_codec_options(int key, char *argument, struct argp_state *state)
{
    cli_options *common = state->input;
    storage_options *options = &common->storage;
    switch (key) {
    case OPTIONS_KEY_KV:
        parse_kv_both(state, argument, options);
        return 0;
    case OPTIONS_KEY_KV_K:
        parse_kv_one(state, "--kv-k", argument, options->k);
        return 0;
    case OPTIONS_KEY_KV_V:
        parse_kv_one(state, "--kv-v", argument, options->v);
        return 0;
    case OPTIONS_KEY_KV_CONFIG:
        options->config = argument;
        return 0;
    case ARGP_KEY_END:
        complete_kv(options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option CODEC_OPTIONS[] = {
    {.name = "kv",
     .key = OPTIONS_KEY_KV,
     .arg = "CODEC",
     .doc = "Store keys and values as bf16 (default), f16, f32, or in 8, 6, 5, 4, 3 or 2 bits: q8, "
            "q6, q5, q4, q3, q2; rq4 is q4 of rotated heads, and tq6 to tq1 are TurboQuant "
            "codes; q8/q4 is q8 for keys and q4 for values. Or by a recipe, from the "
            "largest to the smallest: " STORAGE_PRESETS ". A model with latents "
            "(MLA) stores f32 unless told otherwise; there q8/q4 is q8 for latents and q4 for the "
            "keys beside them"},
    {.name = "kv-k", .key = OPTIONS_KEY_KV_K, .arg = "CODEC", .doc = "The keys alone"},
    {.name = "cache-type-k", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "ctk", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "kv-v", .key = OPTIONS_KEY_KV_V, .arg = "CODEC", .doc = "The values alone"},
    {.name = "cache-type-v", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "ctv", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "kv-config",
     .key = OPTIONS_KEY_KV_CONFIG,
     .arg = "FILE",
     .doc = "A kv_config.json with bits and group_size per layer, which goes before the other "
            "options"},
    {0}};

const struct argp options_codec_argp = {
    .options = CODEC_OPTIONS, .parser = parse_codec_options, .doc = "KV cache"};

static error_t parse_storage(int key, char *argument, struct argp_state *state)
{
    cli_options *common = state->input;
    storage_options *options = &common->storage;
    switch (key) {
    case OPTIONS_KEY_KV_GROUP:
        options->group = (uint32_t)options_number(state, "--kv-group", argument, 32, 128);
        if (options->group != 32 && options->group != 64 && options->group != 128) {
            options_fail(state, "--kv-group takes 32, 64 or 128, not %s", argument);
        }
        return 0;
    case OPTIONS_KEY_KV_START:
        options->has_start = true;
        options->start = (int64_t)options_number(state, "--kv-start", argument, 1, INT32_MAX);
        return 0;
    case OPTIONS_KEY_KV_FIRST:
        options->first = options_number(state, "--kv-first", argument, 0, KVERN_MAX_LAYERS);
        return 0;
    case OPTIONS_KEY_KV_LAST:
        options->last = options_number(state, "--kv-last", argument, 0, KVERN_MAX_LAYERS);
        return 0;
    case OPTIONS_KEY_KV_RESIDUAL:
        options->has_residual = true;
        options->residual = (int64_t)options_number(state, "--kv-residual", argument, 0, INT32_MAX);
        return 0;
    case OPTIONS_KEY_KV_SINKS:
        options->has_sinks = true;
        options->sinks = (int64_t)options_number(state, "--kv-sinks", argument, 0, INT32_MAX);
        return 0;
    case OPTIONS_KEY_KV_ROTATED_LATENTS:
        options->rotated_latents = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option STORAGE_OPTIONS[] = {
    {.name = "kv-group",
     .key = OPTIONS_KEY_KV_GROUP,
     .arg = "N",
     .doc = "Numbers that share a scale: 32, 64 (default) or 128; it must divide the head dim"},
    {.name = "kv-start",
     .key = OPTIONS_KEY_KV_START,
     .arg = "N",
     .doc = "Keep a sequence in bf16 until it has N tokens, and convert it then"},
    {.name = "kv-first",
     .key = OPTIONS_KEY_KV_FIRST,
     .arg = "N",
     .doc = "Leave the first N layers in bf16"},
    {.name = "kv-last",
     .key = OPTIONS_KEY_KV_LAST,
     .arg = "N",
     .doc = "Leave the last N layers in bf16"},
    {.name = "kv-residual",
     .key = OPTIONS_KEY_KV_RESIDUAL,
     .arg = "N",
     .doc = "Keep the newest N tokens of a sequence in bf16, in whole pages of 64"},
    {.name = "kv-sinks",
     .key = OPTIONS_KEY_KV_SINKS,
     .arg = "N",
     .doc = "Keep the first N tokens of a sequence in bf16, in whole pages of 64"},
    {.name = "kv-rotated-latents",
     .key = OPTIONS_KEY_KV_ROTATED_LATENTS,
     .doc = "Let a model with latents store them in codes of rotated vectors (rq8 to rq2, tq6 to "
            "tq1), which are refused there otherwise"},
    {0}};

const struct argp options_storage_argp = {
    .options = STORAGE_OPTIONS, .parser = parse_storage, .doc = "KV cache"};

static kvern_status parse_codec(const storage_options *options, const char *name, kvern_codec *out,
                                engine_error *error)
{
    if (!name[0]) {
        return KVERN_OK; // bf16 stays
    }
    const uint32_t group = options->group ? options->group : DEFAULT_GROUP;
    kvern_status status = kvern_codec_parse(name, group, out);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "--kv");
}

// Whether the model has a layer of the kind.
static bool has_layer(const model_facts *facts, model_layer_kind kind)
{
    for (size_t i = 0; i < facts->layers; i++) {
        if (facts->layer[i].kind == kind) {
            return true;
        }
    }
    return false;
}

// An option that no layer of the model could follow is refused.
static kvern_status check_layers(const storage_options *options, const model_facts *facts,
                                 engine_error *error)
{
    const bool keys = has_layer(facts, MODEL_LAYER_FULL) || has_layer(facts, MODEL_LAYER_WINDOW) ||
                      has_layer(facts, MODEL_LAYER_CHUNKED);
    const char *option = options->has_start  ? "--kv-start"
                         : options->first    ? "--kv-first"
                         : options->last     ? "--kv-last"
                         : options->residual ? "--kv-residual"
                         : options->sinks    ? "--kv-sinks"
                         : options->preset   ? "--kv"
                                             : NULL;
    if (option && !keys) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s: no layer of the model stores keys and values%s", option,
                           has_layer(facts, MODEL_LAYER_LATENT) ? "; --kv stores its latents" : "");
    }
    if (options->rotated_latents && !has_layer(facts, MODEL_LAYER_LATENT)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "--kv-rotated-latents: no layer of the model stores latents");
    }
    if ((options->k[0] || options->v[0]) && !keys && !has_layer(facts, MODEL_LAYER_LATENT)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "--kv: no layer of the model stores keys and values");
    }
    return KVERN_OK;
}

// What is said of keys holds for latents, and what is said of values for the keys beside these.
static void store_latents(const storage_options *options, kvern_storage *storage)
{
    storage->rotated_latents = options->rotated_latents;
    if (options->k[0]) {
        storage->latent = storage->k;
    }
    if (options->v[0]) {
        storage->rope = storage->index = storage->v;
    }
}

// Keys, values and what is precise: by the preset, then by what was said one by one.
static kvern_status read_codecs(const storage_options *options, kvern_storage *storage,
                                engine_error *error)
{
    if (options->preset) {
        kvern_status status = kvern_storage_preset(options->preset, storage);
        if (status != KVERN_OK) {
            return engine_fail_kvern(error, status, "--kv");
        }
    }
    if (options->has_residual) {
        storage->residual = storage->window_residual = options->residual;
    }
    if (options->has_sinks) {
        storage->precise_sinks = options->sinks;
    }
    kvern_status status = parse_codec(options, options->k, &storage->k, error);
    if (status == KVERN_OK) {
        status = parse_codec(options, options->v, &storage->v, error);
    }
    if (status == KVERN_OK && options->k[0]) {
        storage->window_k = storage->k;
    }
    if (status == KVERN_OK && options->v[0]) {
        storage->window_v = storage->v;
    }
    return status;
}

kvern_status storage_composition(const storage_options *options, const model_facts *facts,
                                 kvern_context *context, bool start, kvern_composition **out,
                                 engine_error *error)
{
    kvern_storage storage = kvern_storage_default();
    kv_config config = {0};
    *out = NULL;
    kvern_status status = check_layers(options, facts, error);
    if (status == KVERN_OK) {
        status = read_codecs(options, &storage, error);
    }
    if (status == KVERN_OK && options->config) {
        status = kv_config_read(options->config, &config, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    store_latents(options, &storage);
    storage.start = options->has_start && start ? options->start : KVERN_NO_START;
    storage.precise_first = options->first;
    storage.precise_last = options->last;
    storage.layers = config.layers;
    storage.layer_count = config.count;
    status = model_composition(facts, context, &storage, out, error);
    kv_config_free(&config);
    return status;
}

const char *storage_text(const storage_options *options, const model_facts *facts,
                         char text[STORAGE_TEXT])
{
    const char *usual = has_layer(facts, MODEL_LAYER_LATENT) ? "f32" : "bf16";
    usual = options->preset ? options->preset : usual;
    const char *k = options->k[0] ? options->k : usual, *v = options->v[0] ? options->v : usual;
    char start[100] = "";
    int length = 0;
    if (options->has_sinks) {
        length += snprintf(start, sizeof start, " behind the first %" PRId64, options->sinks);
    }
    if (options->has_residual) {
        length += snprintf(start + length, sizeof start - (size_t)length, "%s the last %" PRId64,
                           options->has_sinks ? " and" : " behind", options->residual);
    }
    if (options->has_start) {
        snprintf(start + length, sizeof start - (size_t)length, " from %" PRId64 " on",
                 options->start);
    }
    if (options->config) {
        snprintf(text, STORAGE_TEXT, "%.80s%s", options->config, start);
    } else if (strcmp(k, v) == 0) {
        snprintf(text, STORAGE_TEXT, "%.20s%s", k, start);
    } else {
        snprintf(text, STORAGE_TEXT, "%.20s/%.20s%s", k, v, start);
    }
    return text;
}
