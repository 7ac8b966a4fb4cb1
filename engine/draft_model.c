// SPDX-License-Identifier: MIT
#include "engine/draft_model.h"

#include "engine/draft_pace.h"
#include "engine/round.h"

#include <stdlib.h>
#include <string.h>

// Tokens of one forward pass over what the draft model has not seen.
#define CHUNK 128

// How often a draft is taken to be right before anything is known.
#define FIRST_RATE 0.7f

typedef struct model_drafts {
    drafts base;
    const model *model;
    model_workspace *workspace;
    kvern_state *state; // row 0 begins as the sequence does
    size_t context_length;
    sampler *sampler;
    float *logits; // [vocabulary] of the newest token of the row
    draft_pace pace;
    size_t proposed; // tokens of the proposal that waits for its verdict
    bool round;      // all of them but the last are in an open round
} model_drafts;

// ---- Vocabulary ----

static bool same_text(tokenizer_text a, tokenizer_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static kvern_status check_tokens(const tokenizer *draft, const tokenizer *own, engine_error *error)
{
    if (tokenizer_size(draft) != tokenizer_size(own)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the draft model knows %zu tokens and the model %zu: it cannot draft "
                           "for it",
                           tokenizer_size(draft), tokenizer_size(own));
    }
    for (size_t i = 0; i < tokenizer_size(own); i++) {
        const int32_t id = (int32_t)i;
        const tokenizer_text theirs = tokenizer_piece_special(draft, id);
        const tokenizer_text ours = tokenizer_piece_special(own, id);
        if (!same_text(theirs, ours) ||
            tokenizer_is_control(draft, id) != tokenizer_is_control(own, id)) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                               "token %zu of the draft model is \"%.*s\" and of the model "
                               "\"%.*s\": it cannot draft for it",
                               i, (int)(theirs.size < 64 ? theirs.size : 64), theirs.data,
                               (int)(ours.size < 64 ? ours.size : 64), ours.data);
        }
    }
    return KVERN_OK;
}

kvern_status draft_model_check(const model *draft, const model *model, engine_error *error)
{
    const size_t theirs = model_get_facts(draft)->vocabulary;
    const size_t ours = model_get_facts(model)->vocabulary;
    if (theirs != ours) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the draft model has a vocabulary of %zu tokens and the model one of "
                           "%zu: it cannot draft for it",
                           theirs, ours);
    }
    if (!model_tokenizer(draft) || !model_tokenizer(model)) {
        return KVERN_OK; // numbers are all that is known of the tokens
    }
    return check_tokens(model_tokenizer(draft), model_tokenizer(model), error);
}

// ---- Reading ----

static bool lacks_memory(kvern_status status)
{
    return status == KVERN_ERR_MEMORY || status == KVERN_ERR_BUDGET;
}

static size_t length_of(const model_drafts *d)
{
    return (size_t)kvern_state_length(d->state, 0);
}

static kvern_status forward(model_drafts *d, const int32_t *tokens, size_t count, bool wanted,
                            engine_error *error)
{
    const model_step step = {.phase = count == 1 ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW,
                             .tokens = tokens,
                             .counts = &(int64_t){(int64_t)count},
                             .logits = d->logits,
                             .logits_counts = &(int64_t){wanted ? 1 : 0}};
    return model_forward(d->model, d->workspace, d->state, &step, error);
}

static size_t chunk_of(const model_drafts *d, size_t rest)
{
    const uint64_t most = (uint64_t)kvern_state_max_append(d->state, 0);
    const size_t chunk = rest < CHUNK ? rest : CHUNK;
    return chunk < most ? chunk : (size_t)most;
}

// Forwards what it has not seen of the sequence; with the logits of the last token when `wanted`.
static kvern_status catch_up(model_drafts *d, const int32_t *tokens, size_t count, bool wanted,
                             engine_error *error)
{
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK && length_of(d) < count) {
        const size_t length = length_of(d), chunk = chunk_of(d, count - length);
        status = forward(d, tokens + length, chunk, wanted && length + chunk == count, error);
    }
    return status;
}

static kvern_status read_tokens(drafts *base, const int32_t *tokens, size_t count,
                                engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    if (count > d->context_length) {
        return KVERN_OK;
    }
    const kvern_status status = catch_up(d, tokens, count, false, error);
    return lacks_memory(status) ? KVERN_OK : status;
}

// ---- Proposing ----

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// At least one: whoever gives a draft model wants it to be used.
static size_t choose_count(model_drafts *d, const draft_request *request)
{
    const size_t room = round_room(d->state), rest = d->context_length - request->count;
    const size_t most = smaller(smaller(request->most, room + 1), rest + 1);
    const size_t count = draft_pace_choose(&d->pace, 0, most);
    return count > 0 ? count : 1;
}

// Samples token after token and forwards each but the last one.
static kvern_status draft_tokens(model_drafts *d, size_t most, int32_t *out, size_t *count,
                                 engine_error *error)
{
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK && *count < most) {
        status = sampler_next(d->sampler, d->logits, &out[*count], error);
        *count += status == KVERN_OK;
        if (status == KVERN_OK && *count < most) {
            status = forward(d, &out[*count - 1], 1, true, error);
        }
    }
    return lacks_memory(status) ? KVERN_OK : status;
}

static kvern_status end_round(model_drafts *d, size_t keep, engine_error *error)
{
    if (!d->round) {
        return KVERN_OK;
    }
    d->round = false;
    return round_end(d->state, keep, error);
}

static kvern_status propose(drafts *base, const draft_request *request, int32_t *out, size_t *count,
                            engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    if (request->count > d->context_length) {
        return KVERN_OK;
    }
    kvern_status status = catch_up(d, request->tokens, request->count, true, error);
    if (status != KVERN_OK) {
        return lacks_memory(status) ? KVERN_OK : status;
    }
    const size_t most = choose_count(d, request);
    if (most > 1) {
        status = round_begin(d->state, most - 1, error);
        d->round = status == KVERN_OK;
    }
    sampler_follow(d->sampler, request->sampler);
    if (status == KVERN_OK) {
        status = draft_tokens(d, most, out, count, error);
    }
    if (status != KVERN_OK) {
        *count = 0;
        const kvern_status ended = end_round(d, 0, NULL);
        return ended == KVERN_OK ? status : ended;
    }
    d->proposed = *count;
    return KVERN_OK;
}

static kvern_status accept(drafts *base, size_t accepted, engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    draft_pace_learn(&d->pace, 0, d->proposed, accepted);
    return end_round(d, smaller(accepted, d->proposed - 1), error);
}

// What a row cannot go back to, past a window or a conversion, is read again.
static kvern_status trim(drafts *base, size_t length, engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    if (length_of(d) <= length) {
        return KVERN_OK;
    }
    const int64_t tokens = (int64_t)(length_of(d) - length);
    const bool back = (int64_t)length >= kvern_state_min_reusable(d->state, 0);
    const kvern_status status =
        back ? kvern_state_trim(d->state, 0, tokens) : kvern_state_reset(d->state, 0);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "trimming the draft model");
}

// ---- Life ----

static void destroy(drafts *base)
{
    model_drafts *d = (model_drafts *)base;
    kvern_state_destroy(d->state);
    model_workspace_destroy(d->workspace);
    sampler_destroy(d->sampler);
    free(d->logits);
    free(d);
}

static const drafts_kind MODEL = {
    .read = read_tokens, .propose = propose, .accept = accept, .trim = trim, .destroy = destroy};

static kvern_status prepare(model_drafts *d, kvern_composition *composition, engine_error *error)
{
    const size_t vocabulary = model_get_facts(d->model)->vocabulary;
    const sampler_options options = sampler_default_options();
    d->logits = malloc(vocabulary * sizeof *d->logits);
    if (!d->logits) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the draft model's logits");
    }
    kvern_status status = sampler_create(&options, vocabulary, &d->sampler, error);
    if (status == KVERN_OK) {
        status = model_workspace_create(d->model, CHUNK, 1, &d->workspace, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_state_create(composition, 1, &d->state);
    return status == KVERN_OK
               ? KVERN_OK
               : engine_fail_kvern(error, status, "making the draft model's KV cache");
}

kvern_status draft_model_create(const model *draft, kvern_composition *composition,
                                const model *model, const draft_model_options *options,
                                drafts **out, engine_error *error)
{
    static const draft_model_options defaults = {0};
    *out = NULL;
    options = options ? options : &defaults;
    kvern_status status = draft_model_check(draft, model, error);
    if (status != KVERN_OK) {
        return status;
    }
    model_drafts *d = calloc(1, sizeof *d);
    if (!d) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for drafts");
    }
    const size_t most = model_get_facts(draft)->context_length;
    const float weights = (float)model_weight_bytes(draft) / (float)model_weight_bytes(model);
    d->base.kind = &MODEL;
    d->model = draft;
    d->context_length = options->context_length ? smaller(options->context_length, most) : most;
    d->pace.rate[0] = FIRST_RATE;
    // A draft costs a pass of the draft model, and then its place in the pass that checks it.
    d->pace.cost = DRAFT_PACE_CHECK_COST + (options->cost > 0 ? options->cost : weights);
    status = prepare(d, composition, error);
    if (status != KVERN_OK) {
        destroy(&d->base);
        return status;
    }
    *out = &d->base;
    return KVERN_OK;
}
