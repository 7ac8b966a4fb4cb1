// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_STORAGE_OPTIONS_H
#define KVERN_CLI_STORAGE_OPTIONS_H

// How commands store the KV cache: the options --kv, --kv-k, --kv-v, --kv-group, --kv-start,
// --kv-config, --kv-first, --kv-last, --kv-residual, --kv-sinks and --kv-rotated-latents, and the
// plans that follow from them.

#include "cli/options/options.h"

#include "engine/model/model.h"

// What messages call the codecs that kvern_codec_parse knows.
#define STORAGE_CODECS                                                                             \
    "bf16, f16, f32, q8, q6, q5, q4, q3, q2 (or q4g32: groups of 32, 64 or 128), rq8 to rq2, tq6 " \
    "to tq1"

// What messages call the presets of kvern_storage_preset.
#define STORAGE_PRESETS "light, balanced or small"

// Reads "q4", or "q8/q4" for keys and values, into k and v, or the name of a preset. False, and
// nothing changed, for anything else.
bool storage_parse(const char *text, storage_options *options);

// The plan of the KV cache of a model of these facts. `start` false: as rows are stored in the end,
// without a start. On success *out holds one reference; on failure the text names the layer or the
// file.
KVERN_CHECK kvern_status storage_composition(const storage_options *options,
                                             const model_facts *facts, kvern_context *context,
                                             bool start, kvern_composition **out,
                                             engine_error *error);

// "bf16", "q8", "q8/q4" (keys, then values), "small", "q4 behind the last 128", "q4 from 512 on",
// "kv.json": for people and JSON. Returns `text`.
#define STORAGE_TEXT 192
const char *storage_text(const storage_options *options, const model_facts *facts,
                         char text[STORAGE_TEXT]);

#endif
