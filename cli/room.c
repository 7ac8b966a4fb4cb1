// SPDX-License-Identifier: MIT
#include "cli/room.h"

#include "cli/load.h"
#include "cli/storage.h"

#include "engine/generate.h"

#include <stdlib.h>

// Tokens of a prompt that are computed together. Each has query heads of its own.
static int64_t chunk_of(size_t tokens)
{
    return (int64_t)(tokens < GENERATOR_CHUNK ? tokens : GENERATOR_CHUNK);
}

// A row with a window holds a prompt's chunk beside the window while it is appended: the room of
// such layers for the chunk alone, in *out; NULL when there are none.
static kvern_status take_chunk(kvern_context *context, const kvern_composition *plan, size_t tokens,
                               kvern_state **out)
{
    kvern_composition *windows;
    size_t count = 0;
    kvern_layer *layers = calloc(kvern_composition_layers(plan), sizeof *layers);
    *out = NULL;
    if (!layers) {
        return KVERN_ERR_MEMORY;
    }
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        if (kvern_composition_layer(plan, l)->kind == KVERN_LAYER_WINDOW) {
            layers[count++] = *kvern_composition_layer(plan, l);
        }
    }
    kvern_status status = KVERN_OK;
    if (count > 0) {
        status = kvern_composition_create(context, layers, count, &windows);
    }
    if (count > 0 && status == KVERN_OK) {
        status = kvern_state_create(windows, 1, out);
        kvern_composition_release(windows);
    }
    free(layers);
    return *out ? kvern_state_reserve(*out, 0, chunk_of(tokens) + KVERN_PAGE_POSITIONS, 0) : status;
}

static kvern_status try_composition(kvern_context *context, kvern_composition *composition,
                                    size_t query_heads, size_t tokens)
{
    kvern_state *state, *chunk;
    kvern_status status = kvern_state_create(composition, 1, &state);
    if (status == KVERN_OK) {
        status =
            kvern_state_reserve(state, 0, (int64_t)tokens, query_heads * (size_t)chunk_of(tokens));
    }
    if (status == KVERN_OK) {
        status = take_chunk(context, composition, tokens, &chunk);
        kvern_state_destroy(chunk);
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

// Two pages of each layer in the planned form, which a conversion may hold beside the row in bf16.
static kvern_status take_spares(const cli_options *options, const model_facts *facts,
                                kvern_context *context, kvern_state **out, engine_error *error)
{
    kvern_composition *planned;
    *out = NULL;
    kvern_status status =
        storage_composition(&options->storage, facts, context, false, &planned, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_state_create(planned, 1, out);
    kvern_composition_release(planned);
    if (status == KVERN_OK) {
        status = kvern_state_reserve(*out, 0, KVERN_PAGE_POSITIONS + 1, 0);
    }
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "room for a conversion");
}

kvern_status room_take(const cli_options *options, const model_facts *facts, kvern_context *context,
                       size_t tokens, engine_error *error)
{
    const storage_options *storage = &options->storage;
    kvern_state *spares = NULL;
    kvern_status status = try_storage(options, facts, context, false, tokens, error);
    if (status == KVERN_OK && storage->has_start && (int64_t)tokens >= storage->start) {
        status = take_spares(options, facts, context, &spares, error);
    }
    if (status == KVERN_OK && storage->has_start) {
        status = try_storage(options, facts, context, true, tokens, error);
    }
    kvern_state_destroy(spares);
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
