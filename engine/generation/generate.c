// SPDX-License-Identifier: MIT
#include "engine/generation/generate.h"

#include <stdlib.h>

struct generator {
    schedule *schedule;
    kept_sequence *sequence;
};

// What one call keeps besides the generator.
typedef struct generation {
    const generate_request *request;
    generate_result *result;
    engine_error *error;
    kvern_status status;
    bool over;
} generation;

// ---- Life ----

static kvern_status prepare(generator *g, const model *model, kvern_composition *composition,
                            const generator_options *options, engine_error *error)
{
    const size_t most = options->draft_tokens ? options->draft_tokens : GENERATOR_DRAFT_TOKENS;
    const schedule_options wanted = {.context_length = options->context_length,
                                     .chunk = options->chunk,
                                     .most_rows = 1,
                                     .most_kept = 1,
                                     .draft_tokens = options->drafts ? most : 0,
                                     .drafts = options->drafts,
                                     .store = options->store,
                                     .disk = options->disk,
                                     .remote = options->remote,
                                     .store_key = options->store_key};
    kvern_status status = schedule_create(model, composition, &wanted, &g->schedule, error);
    return status == KVERN_OK ? schedule_keep(g->schedule, &g->sequence, error) : status;
}

kvern_status generator_create(const model *model, kvern_composition *composition,
                              const generator_options *options, generator **out,
                              engine_error *error)
{
    static const generator_options defaults = {0};
    *out = NULL;
    generator *g = calloc(1, sizeof *g);
    if (!g) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a generator");
    }
    kvern_status status = prepare(g, model, composition, options ? options : &defaults, error);
    if (status != KVERN_OK) {
        generator_destroy(g);
        return status;
    }
    *out = g;
    return KVERN_OK;
}

void generator_destroy(generator *g)
{
    if (!g) {
        return;
    }
    schedule_destroy(g->schedule);
    free(g);
}

// ---- A generation ----

static void on_prompt(void *user, size_t done, size_t total)
{
    const generate_request *request = ((generation *)user)->request;
    if (request->on_prompt) {
        request->on_prompt(request->user, done, total);
    }
}

static kvern_status on_token(void *user, int32_t token, const float *logits)
{
    (void)logits;
    const generate_request *request = ((generation *)user)->request;
    if (request->on_token) {
        request->on_token(request->user, token);
    }
    return KVERN_OK;
}

static kvern_status on_text(void *user, const char *text, size_t bytes)
{
    const generate_request *request = ((generation *)user)->request;
    if (request->on_text) {
        request->on_text(request->user, text, bytes);
    }
    return KVERN_OK;
}

static void on_end(void *user, const schedule_result *end)
{
    generation *run = user;
    generate_result *result = run->result;
    run->over = true;
    run->status = end->status;
    if (end->status != KVERN_OK) {
        run->status = engine_fail(run->error, end->status, "%s", end->error);
    }
    result->reason = end->reason;
    result->prompt_tokens = end->prompt_whole ? end->prompt_tokens - end->shared_tokens : 0;
    result->reused_tokens = end->shared_tokens;
    result->from_disk = end->from_disk;
    result->from_remote = end->from_remote;
    result->why = end->why;
    result->prompt_seconds = end->prompt_seconds;
    result->generated_tokens = end->generated_tokens;
    result->decode_steps = end->decode_steps;
    result->decode_tokens = end->decode_tokens;
    result->decode_seconds = end->decode_seconds;
    result->drafts = end->drafts;
}

kvern_status generator_run(generator *g, const generate_request *request, generate_result *result,
                           engine_error *error)
{
    generation run = {.request = request, .result = result, .error = error};
    const schedule_request wanted = {.tokens = request->tokens,
                                     .count = request->count,
                                     .max_tokens = request->max_tokens,
                                     .sampling = sampler_default_options(),
                                     .kept = g->sequence,
                                     .sampler = request->sampler,
                                     .stop = request->stop,
                                     .cancel = request->cancel,
                                     .user = &run,
                                     .on_prompt = on_prompt,
                                     .on_token = on_token,
                                     .on_text = on_text,
                                     .on_end = on_end};
    uint64_t id;
    *result = (generate_result){0};
    if (request->max_tokens != 0 && !request->sampler) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "a generation needs a sampler");
    }
    kvern_status status = schedule_submit(g->schedule, &wanted, &id, error);
    if (status != KVERN_OK) {
        return status;
    }
    while (!run.over) {
        schedule_step(g->schedule);
    }
    return run.status;
}

// ---- The sequence ----

kvern_status generator_reset(generator *g, engine_error *error)
{
    return schedule_reset_kept(g->sequence, error);
}

kvern_status generator_rewind(generator *g, const int32_t *tokens, size_t count, size_t *left,
                              engine_error *error)
{
    return schedule_rewind_kept(g->sequence, tokens, count, left, error);
}

kvern_status generator_adopt(generator *g, kvern_state *state, const int32_t *tokens, size_t count,
                             engine_error *error)
{
    return schedule_adopt_kept(g->sequence, state, tokens, count, error);
}

int64_t generator_length(const generator *g)
{
    return kept_sequence_length(g->sequence);
}

bool generator_pending(const generator *g)
{
    return kept_sequence_pending(g->sequence);
}

const kvern_state *generator_state(const generator *g)
{
    return schedule_state(g->schedule);
}
