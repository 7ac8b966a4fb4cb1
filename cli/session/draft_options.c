// SPDX-License-Identifier: MIT
#include "cli/session/draft_options.h"

#include "cli/session/memory_fit.h"

#include "engine/speculation/draft_model.h"
#include "engine/speculation/draft_ngram.h"

#include <inttypes.h>
#include <string.h>

#define MOST_DRAFT_TOKENS 32

static error_t parse_draft(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case OPTIONS_KEY_DRAFT:
        options->draft.source = argument;
        return 0;
    case OPTIONS_KEY_DRAFT_TOKENS:
        options->draft.tokens =
            options_number(state, "--draft-tokens", argument, 1, MOST_DRAFT_TOKENS);
        return 0;
    case ARGP_KEY_END:
        if (options->draft.tokens && !options->draft.source) {
            options_fail(state, "--draft-tokens needs --draft");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option DRAFT_OPTIONS[] = {
    {.name = "draft",
     .key = OPTIONS_KEY_DRAFT,
     .arg = "MODEL|ngram",
     .doc = "Guess the next tokens with a smaller model of the same vocabulary, or from what the "
            "text has repeated so far"},
    {.name = "model-draft", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "md", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "draft-tokens",
     .key = OPTIONS_KEY_DRAFT_TOKENS,
     .arg = "N",
     .doc = "At most N guesses at a time, up to 32 (default: 8)"},
    {.name = "draft-max", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {0}};

const struct argp options_draft_argp = {.options = DRAFT_OPTIONS,
                                        .parser = parse_draft,
                                        .doc = "Speculative decoding (the same text sooner)"};

static bool is_ngram(const cli_options *options)
{
    return strcmp(options->draft.source, DRAFT_NGRAM) == 0;
}

kvern_status check_draft(const cli_options *options, engine_error *error)
{
    model_source *source;
    model_facts facts;
    if (!options->draft.source || is_ngram(options)) {
        return KVERN_OK;
    }
    const cli_options own = {.model = options->draft.source};
    kvern_status status = model_source_open(own.model, &source, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = load_name_file(&own, model_read_facts(source, &facts, error), error);
    model_source_close(source);
    return status;
}

static kvern_status fail_room(const cli_options *options, const loaded_model *loaded, uint64_t rest,
                              engine_error *error)
{
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "%s: a context of %zu tokens leaves %" PRIu64
                       " bytes of the budget, too few "
                       "for a draft model; give a shorter one with --ctx",
                       options->draft.source, loaded->context_length, rest);
}

// What the model's KV cache leaves of the budget; 0 without a budget.
static kvern_status rest_of_budget(const cli_options *options, const loaded_model *loaded,
                                   uint64_t *rest, engine_error *error)
{
    *rest = 0;
    if (options->budget == 0) {
        return KVERN_OK;
    }
    uint64_t taken;
    kvern_status status = memory_fit_bytes(options, model_get_facts(loaded->model),
                                           loaded->context_length, &taken, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (taken >= options->budget) {
        return fail_room(options, loaded, 0, error);
    }
    *rest = options->budget - taken;
    return KVERN_OK;
}

static kvern_status open_model(const cli_options *options, const loaded_model *loaded,
                               loaded_draft *draft, engine_error *error)
{
    kvern_context *context;
    cli_options own = {.model = options->draft.source, .pre = options->pre};
    kvern_status status = rest_of_budget(options, loaded, &own.budget, error);
    if (status != KVERN_OK) {
        return status;
    }
    kvern_context_options wanted = kvern_context_options_default();
    wanted.budget_bytes = own.budget;
    wanted.executor = kvern_context_executor(loaded->context);
    status = kvern_context_create(&wanted, &context);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "starting");
    }
    status = load_model_in(&own, context, &draft->model, error);
    if (status != KVERN_OK) {
        kvern_context_release(context);
        return status == KVERN_ERR_BUDGET ? fail_room(options, loaded, own.budget, error) : status;
    }
    draft->model.context = context;
    return KVERN_OK;
}

static kvern_status load_draft_model(const cli_options *options, const loaded_model *loaded,
                                     loaded_draft *draft, engine_error *error)
{
    kvern_status status = open_model(options, loaded, draft, error);
    if (status != KVERN_OK) {
        return status;
    }
    const size_t room = draft->model.context_length;
    const draft_model_options wanted = {
        .context_length = room < loaded->context_length ? room : loaded->context_length};
    status = draft_model_create(draft->model.model, draft->model.composition, loaded->model,
                                &wanted, &draft->drafts, error);
    if (status != KVERN_OK) {
        cli_options own = {.model = options->draft.source};
        unload_draft(draft);
        return load_name_file(&own, status, error);
    }
    return KVERN_OK;
}

kvern_status load_draft(const cli_options *options, const loaded_model *loaded, loaded_draft *draft,
                        engine_error *error)
{
    *draft = (loaded_draft){0};
    if (!options->draft.source) {
        return KVERN_OK;
    }
    if (is_ngram(options)) {
        return draft_ngram_create(1, loaded->context_length, &draft->drafts, error);
    }
    return load_draft_model(options, loaded, draft, error);
}

kvern_status load_draft_beside(const cli_options *options, const loaded_model *loaded,
                               loaded_model *draft, engine_error *error)
{
    *draft = (loaded_model){0};
    if (!options->draft.source || is_ngram(options)) {
        return KVERN_OK;
    }
    const cli_options own = {.model = options->draft.source, .pre = options->pre};
    kvern_status status = load_model_in(&own, loaded->context, draft, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = draft_model_check(draft->model, loaded->model, error);
    if (status != KVERN_OK) {
        unload_model(draft);
    }
    return load_name_file(&own, status, error);
}

void unload_draft(loaded_draft *draft)
{
    drafts_destroy(draft->drafts);
    unload_model(&draft->model);
    *draft = (loaded_draft){0};
}
