// SPDX-License-Identifier: MIT
#include "cli/load.h"

#include "cli/number.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

kvern_status load_name_file(const cli_options *options, kvern_status status, engine_error *error)
{
    size_t length = strlen(options->model);
    if (status == KVERN_OK || strncmp(error->text, options->model, length) == 0) {
        return status;
    }
    char text[sizeof error->text];
    memcpy(text, error->text, sizeof text);
    return engine_fail(error, status, "%s: %s", options->model, text);
}

kvern_status load_context(const cli_options *options, kvern_context **out, engine_error *error)
{
    kvern_context_options wanted = kvern_context_options_default();
    wanted.threads = options->threads;
    wanted.budget_bytes = options->budget;
    kvern_status status = kvern_context_create(&wanted, out);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "starting");
}

// Whether a state with one row of `tokens` positions fits what is left of the budget. It is the
// library that answers: the room is reserved and given back, and no page of it is touched.
static kvern_status try_room(kvern_composition *composition, size_t query_heads, size_t tokens)
{
    kvern_state *state;
    kvern_status status = kvern_state_create(composition, 1, &state);
    if (status == KVERN_OK) {
        status = kvern_state_reserve(state, 0, (int64_t)tokens, query_heads);
        kvern_state_destroy(state);
    }
    return status;
}

// The longest context below `tokens`, which does not fit, that does.
static size_t longest_room(kvern_composition *composition, size_t query_heads, size_t tokens)
{
    size_t fits = 0;
    while (tokens - fits > 1) {
        size_t middle = fits + (tokens - fits) / 2;
        if (try_room(composition, query_heads, middle) == KVERN_OK) {
            fits = middle;
        } else {
            tokens = middle;
        }
    }
    return fits;
}

// The bytes that the library takes for this context, measured where there is no budget; 0 when that
// is impossible.
static uint64_t measure_room(const cli_options *options, const model_facts *facts, size_t tokens)
{
    cli_options unlimited = {.threads = options->threads};
    kvern_context *context;
    kvern_composition *composition;
    kvern_memory memory = {.size = sizeof memory};
    if (load_context(&unlimited, &context, NULL) != KVERN_OK) {
        return 0;
    }
    kvern_status status =
        model_composition(facts, context, KVERN_BF16, KVERN_BF16, &composition, NULL);
    if (status == KVERN_OK) {
        status = try_room(composition, facts->heads, tokens);
        kvern_composition_release(composition);
    }
    if (status == KVERN_OK) {
        status = kvern_context_memory(context, &memory);
    }
    kvern_context_release(context);
    return status == KVERN_OK ? memory.peak_bytes : 0;
}

static kvern_status refuse_context(const cli_options *options, const model_facts *facts,
                                   const loaded_model *loaded, size_t fits, engine_error *error)
{
    size_t tokens = loaded->context_length;
    char advice[64] = "no context fits";
    if (fits > 0) {
        snprintf(advice, sizeof advice, "--ctx %zu fits", fits);
    }
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "a context of %zu tokens needs %" PRIu64 " bytes (%" PRIu64
                       " of KV cache), and the budget is %" PRIu64 " bytes; %s",
                       tokens, measure_room(options, facts, tokens),
                       kvern_composition_row_bytes(loaded->composition, tokens), options->budget,
                       advice);
}

// A context that was asked for fits or is refused; without --ctx it is as long as the budget lets
// it be.
static kvern_status apply_budget(const cli_options *options, const model_facts *facts,
                                 loaded_model *loaded, engine_error *error)
{
    if (options->budget == 0) {
        return KVERN_OK;
    }
    size_t heads = facts->heads;
    kvern_status status = try_room(loaded->composition, heads, loaded->context_length);
    if (status == KVERN_OK) {
        return KVERN_OK;
    }
    if (status != KVERN_ERR_BUDGET) {
        return engine_fail_kvern(error, status, "reserving the KV cache");
    }
    size_t fits = longest_room(loaded->composition, heads, loaded->context_length);
    if (fits == 0 || options->context) {
        return refuse_context(options, facts, loaded, fits, error);
    }
    loaded->context_length = fits;
    return KVERN_OK;
}

static kvern_status choose_context(const cli_options *options, const model_facts *facts,
                                   loaded_model *loaded, engine_error *error)
{
    loaded->context_length = facts->context_length;
    if (options->context) {
        loaded->context_length = (size_t)options->context;
    }
    if (loaded->context_length > facts->context_length) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "--ctx %zu is beyond the model's context of %zu tokens",
                           loaded->context_length, facts->context_length);
    }
    return KVERN_OK;
}

static void show_loading(void *user, uint64_t done, uint64_t total)
{
    progress_update(user, done, total);
}

static kvern_status load_weights(gguf_file *file, loaded_model *loaded, engine_error *error)
{
    progress bar = progress_start("loading", NULL);
    kvern_status status =
        model_load(file, loaded->context, show_loading, &bar, &loaded->model, error);
    progress_end(&bar);
    return status;
}

// Everything that follows the opening of the file, which stays the caller's on failure.
static kvern_status load_file(const cli_options *options, gguf_file *file, loaded_model *loaded,
                              engine_error *error)
{
    model_facts facts;
    kvern_status status = model_read_facts(file, &facts, error);
    if (status == KVERN_OK) {
        status = model_composition(&facts, loaded->context, KVERN_BF16, KVERN_BF16,
                                   &loaded->composition, error);
    }
    if (status != KVERN_OK) {
        return load_name_file(options, status, error);
    }
    status = choose_context(options, &facts, loaded, error);
    if (status == KVERN_OK) {
        status = apply_budget(options, &facts, loaded, error);
    }
    if (status == KVERN_OK) {
        status = load_name_file(options, load_weights(file, loaded, error), error);
    }
    return status;
}

kvern_status load_model(const cli_options *options, loaded_model *loaded, engine_error *error)
{
    *loaded = (loaded_model){0};
    gguf_file *file;
    kvern_status status = gguf_open(options->model, &file, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = load_context(options, &loaded->context, error);
    if (status == KVERN_OK) {
        status = load_file(options, file, loaded, error);
    }
    if (status != KVERN_OK) {
        gguf_close(file);
        unload_model(loaded);
    }
    return status;
}

void unload_model(loaded_model *loaded)
{
    model_close(loaded->model);
    kvern_composition_release(loaded->composition);
    kvern_context_release(loaded->context);
    *loaded = (loaded_model){0};
}
