// SPDX-License-Identifier: MIT
#include "engine/generate.h"

#include "engine/clock.h"

#include <stdlib.h>
#include <string.h>

struct generator {
    const model *model;
    model_workspace *workspace;
    kvern_state *state; // row 0 is the sequence
    size_t context_length;
    size_t chunk;
    int32_t pending; // sampled, not forwarded yet; TOKENIZER_NO_TOKEN: none
    float *logits;   // [vocabulary] of the newest forwarded token
    answer answer;   // of the running call
};

// What one call keeps besides the generator.
typedef struct generation {
    generator *g;
    const generate_request *request;
    generate_result *result;
    engine_error *error;
} generation;

static kvern_status prepare(generator *g, kvern_composition *composition, engine_error *error)
{
    kvern_status status = model_workspace_create(g->model, g->chunk, 1, &g->workspace, error);
    if (status != KVERN_OK) {
        return status;
    }
    g->logits = malloc(model_get_facts(g->model)->vocabulary * sizeof *g->logits);
    if (!g->logits) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the logits");
    }
    status = kvern_state_create(composition, 1, &g->state);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "making the KV cache");
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
    g->pending = TOKENIZER_NO_TOKEN;
    kvern_status status = prepare(g, composition, error);
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
    model_workspace_destroy(g->workspace);
    answer_free(&g->answer);
    free(g->logits);
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

// The prompt with the token that still waits in front of it; owned by the caller. *count 0 and NULL
// when there is nothing to forward.
static kvern_status gather_prompt(const generation *run, int32_t **tokens, size_t *count)
{
    const generate_request *request = run->request;
    size_t waiting = generator_pending(run->g) ? 1 : 0;
    *count = request->count + waiting;
    *tokens = NULL;
    if (*count == 0) {
        return engine_fail(run->error, KVERN_ERR_ARGUMENT, "there is no token to start from");
    }
    size_t length = (size_t)generator_length(run->g);
    if (*count < waiting || *count > run->g->context_length - length) {
        return engine_fail(run->error, KVERN_ERR_RANGE,
                           "the prompt has %zu tokens, but only %zu of the context of %zu are free",
                           *count, run->g->context_length - length, run->g->context_length);
    }
    *tokens = malloc(*count * sizeof **tokens);
    if (!*tokens) {
        return engine_fail(run->error, KVERN_ERR_MEMORY, "no memory for a prompt of %zu tokens",
                           *count);
    }
    (*tokens)[0] = run->g->pending;
    if (request->count > 0) {
        memcpy(*tokens + waiting, request->tokens, request->count * sizeof **tokens);
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

// Forwards the prompt in chunks. *done tells how far it came; it stops early, with success, when
// the caller cancels.
static kvern_status forward_chunks(generation *run, const int32_t *tokens, size_t count,
                                   size_t *done)
{
    *done = 0;
    while (*done < count && !answer_cancelled(&run->g->answer)) {
        size_t rest = count - *done;
        size_t chunk = chunk_of(run->g, rest);
        kvern_status status =
            forward(run, KVERN_PHASE_WINDOW, tokens + *done, chunk, chunk == rest);
        if (status != KVERN_OK) {
            return status;
        }
        *done += chunk;
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
// could not take back; NULL where it can. Pages are shared until they are written to.
static kvern_status keep_sequence(const generation *run, size_t count, kvern_state **kept)
{
    generator *g = run->g;
    *kept = NULL;
    if (count <= g->chunk || generator_length(g) == 0 || trims_freely(g->state)) {
        return KVERN_OK;
    }
    kvern_status status = kvern_state_fork(g->state, &(size_t){0}, 1, kept);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(run->error, status, "keeping the sequence");
}

// Takes back the `done` positions of a prompt that did not come to its end.
static kvern_status take_back(generation *run, size_t done, kvern_state **kept)
{
    generator *g = run->g;
    if (*kept) {
        kvern_state_destroy(g->state);
        g->state = *kept;
        *kept = NULL;
        return KVERN_OK;
    }
    return kvern_state_trim(g->state, 0, (int64_t)done);
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
    int32_t *tokens;
    size_t count;
    size_t done = 0;
    kvern_state *kept;
    kvern_status status = gather_prompt(run, &tokens, &count);
    if (status != KVERN_OK) {
        return status;
    }
    double start = engine_seconds();
    status = keep_sequence(run, count, &kept);
    if (status == KVERN_OK) {
        status = reserve_prompt(run, count);
    }
    if (status == KVERN_OK) {
        status = forward_chunks(run, tokens, count, &done);
    }
    free(tokens);
    run->result->prompt_seconds = engine_seconds() - start;
    if (status == KVERN_OK && done == count) {
        kvern_state_destroy(kept);
        run->result->prompt_tokens = count;
        g->pending = TOKENIZER_NO_TOKEN;
        return KVERN_OK;
    }
    run->result->reason = GENERATE_CANCELLED;
    kvern_status undone = take_back(run, done, &kept);
    if (status == KVERN_OK && undone != KVERN_OK) {
        return engine_fail_kvern(run->error, undone, "taking back a cancelled prompt");
    }
    return status;
}

static kvern_status forward_pending(generation *run)
{
    generator *g = run->g;
    if (!generator_pending(g)) {
        return KVERN_OK;
    }
    kvern_status status = forward(run, KVERN_PHASE_DECODE, &g->pending, 1, true);
    if (status == KVERN_OK) {
        g->pending = TOKENIZER_NO_TOKEN;
        run->result->decode_steps++;
    }
    return status;
}

// Samples one token and takes it in. *over: it ended the generation.
static kvern_status sample(generation *run, bool *over)
{
    generator *g = run->g;
    int32_t token;
    kvern_status status = sampler_next(run->request->sampler, g->logits, &token, run->error);
    if (status != KVERN_OK) {
        return status;
    }
    if (run->request->on_token) {
        run->request->on_token(run->request->user, token);
    }
    size_t before = g->answer.tokens;
    status = answer_take(&g->answer, token, over, run->error);
    if (g->answer.tokens > before) { // it did not end the turn
        g->pending = token;
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
    return answer_finished(&g->answer,
                           (size_t)generator_length(g) + (generator_pending(g) ? 1 : 0));
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
    g->pending = TOKENIZER_NO_TOKEN;
    return KVERN_OK;
}

int64_t generator_length(const generator *g)
{
    return kvern_state_length(g->state, 0);
}

size_t generator_context_length(const generator *g)
{
    return g->context_length;
}

bool generator_pending(const generator *g)
{
    return g->pending != TOKENIZER_NO_TOKEN;
}

const kvern_state *generator_state(const generator *g)
{
    return g->state;
}
