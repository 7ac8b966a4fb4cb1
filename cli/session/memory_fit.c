// SPDX-License-Identifier: MIT
#include "cli/session/memory_fit.h"

#include "cli/options/storage_options.h"
#include "cli/session/model_loading.h"

#include "engine/generation/generate.h"

#include <stdlib.h>

// Tokens of a prompt that are computed together. Each has query heads of its own.
static int64_t chunk_of(size_t tokens)
{
    return (int64_t)(tokens < SCHEDULE_CHUNK ? tokens : SCHEDULE_CHUNK);
}

// Whether a layer belongs to a part of a composition, in which it is *out.
typedef bool room_part(const kvern_layer *layer, kvern_layer *out);

static bool with_window(const kvern_layer *layer, kvern_layer *out)
{
    *out = *layer;
    return layer->kind == KVERN_LAYER_WINDOW;
}

// In the form that it is converted to.
static bool with_start(const kvern_layer *layer, kvern_layer *out)
{
    *out = *layer;
    out->start = KVERN_NO_START;
    return layer->start != KVERN_NO_START;
}

static kvern_status create_part(kvern_context *context, const kvern_composition *plan,
                                room_part *part, kvern_state **out)
{
    kvern_composition *composition;
    kvern_status status = KVERN_OK;
    size_t count = 0;
    kvern_layer *layers = calloc(kvern_composition_layers(plan), sizeof *layers);
    if (!layers) {
        return KVERN_ERR_MEMORY;
    }
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        count += part(kvern_composition_layer(plan, l), &layers[count]) ? 1 : 0;
    }
    if (count > 0) {
        status = kvern_composition_create(context, layers, count, &composition);
    }
    if (count > 0 && status == KVERN_OK) {
        status = kvern_state_create(composition, 1, out);
        kvern_composition_release(composition);
    }
    free(layers);
    return status;
}

// The room of `tokens` positions in a part of the layers, in *out; NULL when it has none, and on
// failure.
static kvern_status take_part(kvern_context *context, const kvern_composition *plan,
                              room_part *part, int64_t tokens, kvern_state **out)
{
    *out = NULL;
    kvern_status status = create_part(context, plan, part, out);
    if (*out) {
        status = kvern_state_reserve(*out, 0, tokens, 0);
    }
    if (status != KVERN_OK) {
        kvern_state_destroy(*out);
        *out = NULL;
    }
    return status;
}

// A row with a window holds a prompt's chunk beside the window while it is appended.
static kvern_status try_chunk(kvern_context *context, const kvern_composition *composition,
                              size_t tokens)
{
    kvern_state *chunk;
    kvern_status status = take_part(context, composition, with_window,
                                    chunk_of(tokens) + KVERN_PAGE_POSITIONS, &chunk);
    kvern_state_destroy(chunk);
    return status;
}

static kvern_status try_composition(kvern_context *context, kvern_composition *composition,
                                    size_t query_heads, size_t tokens)
{
    kvern_state *state;
    kvern_status status = kvern_state_create(composition, 1, &state);
    if (status == KVERN_OK) {
        status =
            kvern_state_reserve(state, 0, (int64_t)tokens, query_heads * (size_t)chunk_of(tokens));
    }
    if (status == KVERN_OK) {
        status = try_chunk(context, composition, tokens);
    }
    kvern_state_destroy(state);
    return status;
}

static kvern_status try_storage(const cli_options *options, const model_facts *facts,
                                kvern_context *context, bool start, size_t tokens,
                                engine_error *error)
{
    kvern_composition *composition;
    kvern_status status =
        storage_composition(&options->storage, facts, context, start, &composition, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = try_composition(context, composition, facts->heads, tokens);
    kvern_composition_release(composition);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "reserving the KV cache");
}

// What a conversion holds beside the row in bf16: a page of each layer that is converted.
static kvern_status take_fresh(const cli_options *options, const model_facts *facts,
                               kvern_context *context, kvern_state **out, engine_error *error)
{
    kvern_composition *composition;
    *out = NULL;
    kvern_status status =
        storage_composition(&options->storage, facts, context, true, &composition, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = take_part(context, composition, with_start, KVERN_PAGE_POSITIONS, out);
    kvern_composition_release(composition);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "room for a conversion");
}

kvern_status room_take(const cli_options *options, const model_facts *facts, kvern_context *context,
                       size_t tokens, engine_error *error)
{
    const storage_options *storage = &options->storage;
    kvern_state *fresh = NULL;
    kvern_status status = try_storage(options, facts, context, false, tokens, error);
    if (status == KVERN_OK && storage->has_start && (int64_t)tokens >= storage->start) {
        status = take_fresh(options, facts, context, &fresh, error);
    }
    if (status == KVERN_OK && storage->has_start) {
        status = try_storage(options, facts, context, true, tokens, error);
    }
    kvern_state_destroy(fresh);
    return status;
}

kvern_status room_try(const cli_options *options, const model_facts *facts, size_t tokens,
                      engine_error *error)
{
    kvern_context *context;
    kvern_status status = load_context(options, &context, error);
    if (status == KVERN_OK) {
        status = room_take(options, facts, context, tokens, error);
        kvern_context_release(context);
    }
    return status;
}

size_t room_longest(const cli_options *options, const model_facts *facts, size_t tokens)
{
    size_t fits = 0;
    while (tokens - fits > 1) {
        size_t middle = fits + (tokens - fits) / 2;
        if (room_try(options, facts, middle, NULL) == KVERN_OK) {
            fits = middle;
        } else {
            tokens = middle;
        }
    }
    return fits;
}

uint64_t room_bytes(const cli_options *options, const model_facts *facts, size_t tokens)
{
    cli_options unlimited = {.threads = options->threads, .storage = options->storage};
    kvern_context *context;
    kvern_memory memory = {.size = sizeof memory};
    if (load_context(&unlimited, &context, NULL) != KVERN_OK) {
        return 0;
    }
    kvern_status status = room_take(&unlimited, facts, context, tokens, NULL);
    if (status == KVERN_OK) {
        status = kvern_context_memory(context, &memory);
    }
    kvern_context_release(context);
    return status == KVERN_OK ? memory.peak_bytes : 0;
}
