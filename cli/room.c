// SPDX-License-Identifier: MIT
#include "cli/room.h"

#include "cli/load.h"
#include "cli/storage.h"

static kvern_status try_composition(kvern_composition *composition, size_t query_heads,
                                    size_t tokens)
{
    kvern_state *state;
    kvern_status status = kvern_state_create(composition, 1, &state);
    if (status == KVERN_OK) {
        status = kvern_state_reserve(state, 0, (int64_t)tokens, query_heads);
        kvern_state_destroy(state);
    }
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
    status = try_composition(composition, facts->heads, tokens);
    kvern_composition_release(composition);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "reserving the KV cache");
}

kvern_status room_try(const cli_options *options, const model_facts *facts, kvern_context *context,
                      size_t tokens, engine_error *error)
{
    kvern_status status = try_storage(options, facts, context, false, tokens, error);
    if (status == KVERN_OK && options->storage.has_start) {
        status = try_storage(options, facts, context, true, tokens, error);
    }
    return status;
}

size_t room_longest(const cli_options *options, const model_facts *facts, kvern_context *context,
                    size_t tokens)
{
    size_t fits = 0;
    while (tokens - fits > 1) {
        size_t middle = fits + (tokens - fits) / 2;
        if (room_try(options, facts, context, middle, NULL) == KVERN_OK) {
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
    kvern_status status = room_try(&unlimited, facts, context, tokens, NULL);
    if (status == KVERN_OK) {
        status = kvern_context_memory(context, &memory);
    }
    kvern_context_release(context);
    return status == KVERN_OK ? memory.peak_bytes : 0;
}
