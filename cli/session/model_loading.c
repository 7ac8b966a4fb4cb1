// SPDX-License-Identifier: MIT
#include "cli/session/model_loading.h"

#include "cli/io/progress.h"
#include "cli/options/storage_options.h"
#include "cli/session/memory_fit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

kvern_status load_name_file(const cli_options *options, kvern_status status, engine_error *error)
{
    const char *config = options->storage.config;
    if (status == KVERN_OK || strncmp(error->text, options->model, strlen(options->model)) == 0 ||
        (config && strncmp(error->text, config, strlen(config)) == 0)) {
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

static kvern_status refuse_context(const cli_options *options, const model_facts *facts,
                                   const loaded_model *loaded, uint64_t needed, size_t longest,
                                   engine_error *error)
{
    size_t tokens = loaded->context_length;
    char advice[64] = "no context fits";
    const cli_options unlimited = {.threads = 1, .storage = options->storage};
    kvern_context *context;
    kvern_composition *composition = NULL;
    kvern_status status = load_context(&unlimited, &context, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = storage_composition(&options->storage, facts, context, true, &composition, error);
    const uint64_t cache = composition ? kvern_composition_row_bytes(composition, tokens) : 0;
    kvern_composition_release(composition);
    kvern_context_release(context);
    if (status != KVERN_OK) {
        return status;
    }
    if (longest > 0) {
        snprintf(advice, sizeof advice, "--ctx %zu fits", longest);
    }
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "a context of %zu tokens needs %" PRIu64 " bytes (%" PRIu64
                       " of KV cache), and the budget is %" PRIu64 " bytes; %s",
                       tokens, needed, cache, options->budget, advice);
}

// A context that was asked for fits or is refused; without --ctx it is as long as the budget lets
// it be.
static kvern_status apply_budget(const cli_options *options, const model_facts *facts,
                                 loaded_model *loaded, engine_error *error)
{
    uint64_t needed;
    size_t longest;
    if (options->budget == 0) {
        return KVERN_OK;
    }
    kvern_status status = memory_fit_bytes(options, facts, loaded->context_length, &needed, error);
    if (status != KVERN_OK || needed <= options->budget) {
        return status;
    }
    status = memory_fit_longest(options, facts, loaded->context_length, &longest, error);
    if (status == KVERN_OK && (longest == 0 || options->context)) {
        return refuse_context(options, facts, loaded, needed, longest, error);
    }
    loaded->context_length = longest;
    return status;
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

static kvern_status load_weights(const cli_options *options, model_source *source,
                                 loaded_model *loaded, engine_error *error)
{
    progress bar = progress_start("loading", NULL);
    kvern_status status = model_load(source, options->pre, loaded->context, show_loading, &bar,
                                     &loaded->model, error);
    progress_end(&bar);
    return status;
}

// Everything that follows the opening of the file, which stays the caller's on failure.
static kvern_status load_source(const cli_options *options, model_source *source,
                                loaded_model *loaded, engine_error *error)
{
    model_facts facts;
    kvern_status status = model_read_facts(source, &facts, error);
    if (status != KVERN_OK) {
        return load_name_file(options, status, error);
    }
    status = choose_context(options, &facts, loaded, error);
    if (status == KVERN_OK) {
        status = apply_budget(options, &facts, loaded, error);
    }
    if (status == KVERN_OK) {
        status = load_name_file(options,
                                storage_composition(&options->storage, &facts, loaded->context,
                                                    true, &loaded->composition, error),
                                error);
    }
    if (status == KVERN_OK) {
        status = load_name_file(options, load_weights(options, source, loaded, error), error);
    }
    return status;
}

kvern_status load_model_in(const cli_options *options, kvern_context *context, loaded_model *loaded,
                           engine_error *error)
{
    model_source *source = NULL;
    *loaded = (loaded_model){.context = context};
    kvern_status status = model_source_open(options->model, &source, error);
    if (status == KVERN_OK) {
        status = load_source(options, source, loaded, error);
    }
    loaded->context = NULL;
    if (status != KVERN_OK) {
        model_source_close(source);
        unload_model(loaded);
    }
    return status;
}

kvern_status load_model(const cli_options *options, loaded_model *loaded, engine_error *error)
{
    kvern_context *context;
    *loaded = (loaded_model){0};
    kvern_status status = load_context(options, &context, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = load_model_in(options, context, loaded, error);
    if (status == KVERN_OK) {
        loaded->context = context;
    } else {
        kvern_context_release(context);
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
