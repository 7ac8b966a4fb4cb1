// SPDX-License-Identifier: MIT
#include "cli/session/memory_fit.h"

#include "cli/options/storage_options.h"
#include "cli/session/model_loading.h"

#include "engine/generation/generate.h"

// Under a budget arenas are as small as they can be: one that nothing exceeds.
#define ANY_BUDGET (UINT64_MAX / 2)

typedef struct fit_plan {
    kvern_context *context;
    kvern_composition *composition;
    uint64_t base_bytes; // of the two
    size_t query_heads;
    size_t index_heads; // of the indexer; 0: there is none
    size_t selected;    // positions that it selects
    size_t round;       // tokens of a pass that checks drafts; 0: there are none
} fit_plan;

static void close_plan(fit_plan *plan)
{
    kvern_composition_release(plan->composition);
    kvern_context_release(plan->context);
    *plan = (fit_plan){0};
}

static size_t round_of(const draft_options *draft)
{
    if (!draft->source) {
        return 0;
    }
    return 1 + (draft->tokens ? draft->tokens : GENERATOR_DRAFT_TOKENS);
}

static kvern_status open_plan(const cli_options *options, const model_facts *facts, fit_plan *plan,
                              engine_error *error)
{
    const cli_options any = {
        .threads = options->threads, .budget = ANY_BUDGET, .storage = options->storage};
    kvern_memory memory = {.size = sizeof memory};
    *plan = (fit_plan){.query_heads = facts->heads,
                       .index_heads = facts->latent.index_heads,
                       .selected = facts->latent.index_top_k,
                       .round = round_of(&options->draft)};
    kvern_status status = load_context(&any, &plan->context, error);
    if (status == KVERN_OK) {
        status = storage_composition(&options->storage, facts, plan->context, true,
                                     &plan->composition, error);
    }
    if (status == KVERN_OK && (status = kvern_context_memory(plan->context, &memory)) != KVERN_OK) {
        status = engine_fail_kvern(error, status, "asking for memory");
    }
    plan->base_bytes = memory.held_bytes;
    if (status != KVERN_OK) {
        close_plan(plan);
    }
    return status;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// What a generator does with a sequence (engine/generation/schedule_room.c).
static kvern_status plan_bytes(const fit_plan *plan, size_t tokens, uint64_t *bytes)
{
    const size_t chunk = smaller(tokens, SCHEDULE_CHUNK), round = smaller(tokens, plan->round);
    kvern_plan row = kvern_plan_default();
    row.tokens = (int64_t)tokens;
    row.chunk = (int64_t)(chunk > 0 ? chunk : 1);
    row.round = (int64_t)round;
    row.query_vectors = plan->query_heads * (chunk > round ? chunk : round);
    row.index_heads = plan->index_heads;
    row.selected = plan->index_heads ? (int64_t)plan->selected : 0;
    const kvern_status status = kvern_composition_plan_bytes(plan->composition, &row, bytes);
    *bytes += status == KVERN_OK ? plan->base_bytes : 0;
    return status;
}

kvern_status memory_fit_bytes(const cli_options *options, const model_facts *facts, size_t tokens,
                              uint64_t *bytes, engine_error *error)
{
    fit_plan plan;
    *bytes = 0;
    kvern_status status = open_plan(options, facts, &plan, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = plan_bytes(&plan, tokens, bytes);
    close_plan(&plan);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "planning the KV cache");
}

static bool fits(const fit_plan *plan, size_t tokens, uint64_t budget)
{
    uint64_t bytes;
    return plan_bytes(plan, tokens, &bytes) == KVERN_OK && bytes <= budget;
}

kvern_status memory_fit_longest(const cli_options *options, const model_facts *facts, size_t tokens,
                                size_t *longest, engine_error *error)
{
    fit_plan plan;
    *longest = 0;
    kvern_status status = open_plan(options, facts, &plan, error);
    if (status != KVERN_OK) {
        return status;
    }
    size_t above = tokens + 1;
    while (above - *longest > 1) {
        const size_t middle = *longest + (above - *longest) / 2;
        if (fits(&plan, middle, options->budget)) {
            *longest = middle;
        } else {
            above = middle;
        }
    }
    close_plan(&plan);
    return KVERN_OK;
}
