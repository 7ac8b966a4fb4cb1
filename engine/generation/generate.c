// SPDX-License-Identifier: MIT
#include "engine/generation/generate.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct generator {
    const model *model;
    model_workspace *workspace;
    kvern_state *state; // row 0 is the sequence
    size_t context_length;
    size_t chunk;
    int32_t *tokens;          // [context_length] the sequence
    size_t count;             // its tokens; one more than are forwarded while the newest waits
    float *logits;            // [vocabulary] of a token that was forwarded without drafts
    const float *newest;      // the logits of the newest token that is forwarded
    answer answer;            // of the running call
    drafts *drafts;           // NULL: none
    speculation *speculation; // NULL without drafts
};

// What one call keeps besides the generator.
typedef struct generation {
    generator *g;
    const generate_request *request;
    generate_result *result;
    engine_error *error;
} generation;

static kvern_status prepare(generator *g, kvern_composition *composition, size_t draft_tokens,
                            engine_error *error)
{
    const size_t widest = g->chunk > 1 + draft_tokens ? g->chunk : 1 + draft_tokens;
    kvern_status status = model_workspace_create(g->model, widest, 1, &g->workspace, error);
    if (status == KVERN_OK && g->drafts) {
        status = speculation_create(g->model, g->workspace, g->drafts, draft_tokens,
                                    &g->speculation, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    g->logits = malloc(model_get_facts(g->model)->vocabulary * sizeof *g->logits);
    g->tokens = malloc(g->context_length * sizeof *g->tokens);
    if (!g->logits || !g->tokens) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the logits and the sequence");
    }
    status = kvern_state_create(composition, 1, &g->state);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "making the KV cache");
}

static size_t draft_tokens_of(const generator_options *options)
{
    if (!options->drafts) {
        return 0;
    }
    return options->draft_tokens ? options->draft_tokens : GENERATOR_DRAFT_TOKENS;
}

kvern_status generator_create(const model *model, kvern_composition *composition,
                              const generator_options *options, generator **out,
                              engine_error *error)
{
    static const generator_options defaults = {0};
    *out = NULL;
    options = options ? options : &defaults;
    size_t most = model_get_facts(model)->context_length;
    if (options->context_length > most) {
        return engine_fail(
            error, KVERN_ERR_RANGE,
            "a context of %zu tokens is more than the %zu that the model was made for",
            options->context_length, most);
    }
    generator *g = calloc(1, sizeof *g);
    if (!g) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a generator");
    }
    g->model = model;
    g->context_length = options->context_length ? options->context_length : most;
    g->chunk = options->chunk ? options->chunk : GENERATOR_CHUNK;
    g->chunk = g->chunk < g->context_length ? g->chunk : g->context_length;
    g->drafts = options->drafts;
    kvern_status status = prepare(g, composition, draft_tokens_of(options), error);
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
    kvern_state_destroy(g->state);
    speculation_destroy(g->speculation);
    model_workspace_destroy(g->workspace);
    answer_free(&g->answer);
    free(g->logits);
    free(g->tokens);
    free(g);
}

// Forwards some tokens; logits of the last one when `wanted`.
static kvern_status forward(generation *run, kvern_phase phase, const int32_t *tokens, size_t count,
                            bool wanted)
{
    model_step step = {.phase = phase,
                       .tokens = tokens,
                       .counts = &(int64_t){(int64_t)count},
                       .logits = wanted ? run->g->logits : NULL};
    return model_forward(run->g->model, run->g->workspace, run->g->state, &step, run->error);
}

// Hands what is to be shown to the caller.
static void show(const generation *run)
{
    const text_buffer *shown = &run->g->answer.shown;
    if (shown->size > 0 && run->request->on_text) {
        run->request->on_text(run->request->user, shown->data, shown->size);
    }
}

// Puts the prompt behind the sequence, where a token may still wait. *count: what is to be
// forwarded.
static kvern_status gather_prompt(const generation *run, size_t *count)
{
    generator *g = run->g;
    const generate_request *request = run->request;
    const size_t length = (size_t)generator_length(g), waiting = g->count - length;
    *count = request->count + waiting;
    if (*count == 0) {
        return engine_fail(run->error, KVERN_ERR_ARGUMENT, "there is no token to start from");
    }
    if (*count < waiting || *count > g->context_length - length) {
        return engine_fail(run->error, KVERN_ERR_RANGE,
                           "the prompt has %zu tokens, but only %zu of the context of %zu are free",
                           *count, g->context_length - length, g->context_length);
    }
    if (request->count > 0) {
        memcpy(g->tokens + g->count, request->tokens, request->count * sizeof *g->tokens);
        g->count += request->count;
    }
    return KVERN_OK;
}

// Tokens of the next chunk. A chunk ends where a layer's precision changes, so that how a prompt is
// cut does not decide where that is.
static size_t chunk_of(const generator *g, size_t rest)
{
    const uint64_t most = (uint64_t)kvern_state_max_append(g->state, 0);
    const size_t chunk = rest < g->chunk ? rest : g->chunk;
    return chunk < most ? chunk : (size_t)most;
}

// Forwards the next `count` tokens of the sequence in chunks; drafts read along. *done tells how
// far it came; it stops early, with success, when the caller cancels.
static kvern_status forward_chunks(generation *run, size_t count, size_t *done)
{
    generator *g = run->g;
    *done = 0;
    while (*done < count && !answer_cancelled(&g->answer)) {
        const size_t rest = count - *done, chunk = chunk_of(g, rest);
        const int32_t *tokens = g->tokens + generator_length(g);
        kvern_status status = forward(run, KVERN_PHASE_WINDOW, tokens, chunk, chunk == rest);
        if (status != KVERN_OK) {
            return status;
        }
        *done += chunk;
        if (g->drafts) {
            draft_request read = {.tokens = g->tokens, .count = (size_t)generator_length(g)};
            status = drafts_read(g->drafts, &read, 1, run->error);
        }
        if (status != KVERN_OK) {
            return status;
        }
        if (run->request->on_prompt) {
            run->request->on_prompt(run->request->user, *done, count);
        }
    }
    return KVERN_OK;
}

// Whether any number of a row's newest positions can be trimmed, and leaves it as it was before
// them.
static bool trims_freely(const kvern_state *state)
{
    const kvern_composition *plan = kvern_state_composition(state);
    bool freely = true;
    for (size_t i = 0; i < kvern_composition_layers(plan); i++) {
        const kvern_layer *layer = kvern_composition_layer(plan, i);
        freely = freely && layer->kind == KVERN_LAYER_FULL && layer->start == KVERN_NO_START;
    }
    return freely;
}

// A copy of the sequence before a prompt that may be cancelled between chunks and that trimming
// could not take back; NULL where it can, or where there was nothing. Pages are shared until they
// are written to.
static kvern_status keep_sequence(const generation *run, size_t count, kvern_state **kept)
{
    generator *g = run->g;
    *kept = NULL;
    if (chunk_of(g, count) == count || generator_length(g) == 0 || trims_freely(g->state)) {
        return KVERN_OK;
    }
    kvern_status status = kvern_state_fork(g->state, &(size_t){0}, 1, kept);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(run->error, status, "keeping the sequence");
}

// Takes back the `done` positions of a prompt that did not come to its end. A row that was empty is
// made anew, for trimming would leave it converted.
static kvern_status take_back(generation *run, size_t done, kvern_state **kept)
{
    generator *g = run->g;
    kvern_status status = KVERN_OK;
    if (*kept) {
        kvern_state_destroy(g->state);
        g->state = *kept;
        *kept = NULL;
    } else if (generator_length(g) == (int64_t)done) {
        status = kvern_state_reset(g->state, 0);
    } else {
        status = kvern_state_trim(g->state, 0, (int64_t)done);
    }
    if (status == KVERN_OK && g->drafts) {
        status = drafts_trim(g->drafts, 0, (size_t)generator_length(g), NULL);
    }
    return status;
}

static kvern_status reserve_prompt(generation *run, size_t count)
{
    generator *g = run->g;
    int64_t target = generator_length(g) + (int64_t)count;
    kvern_status status =
        kvern_state_reserve(g->state, 0, target, model_get_facts(g->model)->heads);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(run->error, status, "making room for the prompt");
}

// All of the prompt or nothing. Room for it is taken first, so that a budget that cannot hold it is
// noticed before any work is done.
static kvern_status prefill(generation *run)
{
    generator *g = run->g;
    const size_t before = g->count;
    size_t count;
    size_t done = 0;
    kvern_state *kept;
    kvern_status status = gather_prompt(run, &count);
    if (status != KVERN_OK) {
        return status;
    }
    double start = engine_seconds();
    status = keep_sequence(run, count, &kept);
    if (status == KVERN_OK) {
        status = reserve_prompt(run, count);
    }
    if (status == KVERN_OK) {
        status = forward_chunks(run, count, &done);
    }
    run->result->prompt_seconds = engine_seconds() - start;
    if (status == KVERN_OK && done == count) {
        kvern_state_destroy(kept);
        run->result->prompt_tokens = count;
        g->newest = g->logits;
        return KVERN_OK;
    }
    run->result->reason = GENERATE_CANCELLED;
    g->count = before;
    kvern_status undone = take_back(run, done, &kept);
    if (status == KVERN_OK && undone != KVERN_OK) {
        return engine_fail_kvern(run->error, undone, "taking back a cancelled prompt");
    }
    return status;
}

// The most drafts that can matter: with them, the tokens of the answer and of the context end as
// they would without.
static size_t most_drafts(const generation *run)
{
    const generator *g = run->g;
    const int64_t limit = run->request->max_tokens;
    const size_t room = g->context_length - g->count;
    const uint64_t rest = limit < 0 ? UINT64_MAX : (uint64_t)limit - g->answer.tokens;
    return (room < rest ? room : (size_t)rest) - 1;
}

// Forwards the token that waits, with drafts behind it.
static kvern_status forward_with_drafts(generation *run)
{
    generator *g = run->g;
    const draft_request request = {.tokens = g->tokens,
                                   .count = g->count,
                                   .most = most_drafts(run),
                                   .sampler = run->request->sampler};
    kvern_status status = speculation_settle(g->speculation, g->state, run->error);
    if (status == KVERN_OK) {
        status = speculation_forward(g->speculation, g->state, &request, run->error);
    }
    if (status == KVERN_OK) {
        g->newest = speculation_logits(g->speculation);
    }
    return status;
}

// Makes g->newest the logits behind the token that waits, unless none does: a draft that was right
// has them already.
static kvern_status forward_pending(generation *run)
{
    generator *g = run->g;
    kvern_status status;
    if (!generator_pending(g)) {
        return KVERN_OK;
    }
    if (!g->speculation) {
        status = forward(run, KVERN_PHASE_DECODE, &g->tokens[g->count - 1], 1, true);
    } else if (speculation_accept(g->speculation, g->tokens[g->count - 1])) {
        g->newest = speculation_logits(g->speculation);
        return KVERN_OK;
    } else {
        status = forward_with_drafts(run);
    }
    run->result->decode_steps += status == KVERN_OK;
    return status;
}

// Samples one token and takes it in. *over: it ended the generation.
static kvern_status sample(generation *run, bool *over)
{
    generator *g = run->g;
    int32_t token;
    const sampled_sequence sequence = {.tokens = g->tokens, .count = g->count};
    kvern_status status =
        sampler_next(run->request->sampler, g->newest, &sequence, &token, run->error);
    if (status != KVERN_OK) {
        return status;
    }
    run->result->decode_tokens += run->result->decode_steps > 0;
    if (run->request->on_token) {
        run->request->on_token(run->request->user, token);
    }
    size_t before = g->answer.tokens;
    status = answer_take(&g->answer, token, over, run->error);
    if (g->answer.tokens > before) { // it did not end the turn
        g->tokens[g->count++] = token;
    }
    if (status == KVERN_OK) {
        show(run);
    }
    return status;
}

// Whether the generation is over before the next token is sampled.
static bool finished(const generation *run)
{
    generator *g = run->g;
    return answer_finished(&g->answer, g->count);
}

// Takes back drafts that are not part of the sequence, after a failure too, whose sentence stays.
static kvern_status settle(generation *run, kvern_status status)
{
    generator *g = run->g;
    if (!g->speculation) {
        return status;
    }
    const kvern_status settled =
        speculation_settle(g->speculation, g->state, status == KVERN_OK ? run->error : NULL);
    run->result->drafts = speculation_take_counts(g->speculation);
    return status == KVERN_OK ? settled : status;
}

static kvern_status decode(generation *run)
{
    double start = engine_seconds();
    kvern_status status = KVERN_OK;
    bool over = false;
    while (status == KVERN_OK && !over && !finished(run)) {
        status = forward_pending(run);
        if (status == KVERN_OK) {
            status = sample(run, &over);
        }
    }
    status = settle(run, status);
    run->result->decode_seconds = engine_seconds() - start;
    run->result->reason = run->g->answer.reason;
    run->result->generated_tokens = run->g->answer.tokens;
    return status;
}

static void begin_answer(generator *g, const generate_request *request)
{
    answer_begin(&g->answer, &(answer_options){.tokenizer = model_tokenizer(g->model),
                                               .stop = request->stop,
                                               .cancel = request->cancel,
                                               .max_tokens = request->max_tokens,
                                               .context_length = g->context_length});
}

kvern_status generator_run(generator *g, const generate_request *request, generate_result *result,
                           engine_error *error)
{
    *result = (generate_result){0};
    generation run = {.g = g, .request = request, .result = result, .error = error};
    if (request->max_tokens != 0 && !request->sampler) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "a generation needs a sampler");
    }
    begin_answer(g, request);
    kvern_status status = prefill(&run);
    if (status != KVERN_OK || result->prompt_tokens == 0) {
        return status;
    }
    status = decode(&run);
    // Held back text is shown after a failure too; the failure's own sentence stays.
    kvern_status flushed = answer_flush(&g->answer, status == KVERN_OK ? error : NULL);
    show(&run);
    return status == KVERN_OK ? flushed : status;
}

kvern_status generator_reset(generator *g, engine_error *error)
{
    kvern_status status = kvern_state_reset(g->state, 0);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "emptying the sequence");
    }
    g->count = 0;
    return g->drafts ? drafts_trim(g->drafts, 0, 0, error) : KVERN_OK;
}

int64_t generator_length(const generator *g)
{
    const size_t unsettled = g->speculation ? speculation_unsettled(g->speculation) : 0;
    return kvern_state_length(g->state, 0) - (int64_t)unsettled;
}

bool generator_pending(const generator *g)
{
    return g->count > (size_t)generator_length(g);
}

const kvern_state *generator_state(const generator *g)
{
    return g->state;
}
