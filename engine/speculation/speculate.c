// SPDX-License-Identifier: MIT
#include "engine/speculation/speculate.h"

#include "engine/speculation/draft_pace.h"
#include "engine/speculation/draft_round.h"

#include <stdlib.h>

struct speculation {
    const model *model;
    model_workspace *workspace;
    drafts *drafts;
    size_t most;
    int32_t *tokens; // [1 + most] the newest token, then drafts
    float *logits;   // [1 + most, vocabulary]
    size_t drafted;  // of the open round; 0: none is open
    size_t accepted;
    speculation_counts counts;
};

kvern_status speculation_create(const model *model, model_workspace *workspace, drafts *drafts,
                                size_t most, speculation **out, engine_error *error)
{
    *out = NULL;
    const size_t row = model_get_facts(model)->vocabulary * sizeof(float);
    speculation *s = calloc(1, sizeof *s);
    if (s && most < SIZE_MAX / row) {
        s->tokens = malloc((1 + most) * sizeof *s->tokens);
        s->logits = malloc((1 + most) * row);
    }
    if (!s || !s->tokens || !s->logits) {
        speculation_destroy(s);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the logits of %zu drafts", most);
    }
    s->model = model;
    s->workspace = workspace;
    s->drafts = drafts;
    s->most = most;
    *out = s;
    return KVERN_OK;
}

void speculation_destroy(speculation *s)
{
    if (!s) {
        return;
    }
    free(s->tokens);
    free(s->logits);
    free(s);
}

static kvern_status forward(speculation *s, kvern_state *state, size_t count, engine_error *error)
{
    const model_step step = {.phase = count == 1 ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW,
                             .tokens = s->tokens,
                             .counts = &(int64_t){(int64_t)count},
                             .logits = s->logits,
                             .logits_counts = &(int64_t){(int64_t)count}};
    return model_forward(s->model, s->workspace, state, &step, error);
}

// Forwards the newest token and `drafted` tokens behind it in a round.
static kvern_status forward_drafts(speculation *s, kvern_state *state, size_t drafted,
                                   engine_error *error)
{
    kvern_status status = round_begin(state, 1 + drafted, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = forward(s, state, 1 + drafted, error);
    if (status != KVERN_OK) {
        const kvern_status ended = round_end(state, 0, NULL);
        return ended == KVERN_OK ? status : ended;
    }
    s->drafted = drafted;
    return KVERN_OK;
}

// Drafts for this pass, in s->tokens behind the newest token.
static kvern_status propose(speculation *s, const kvern_state *state, const draft_request *request,
                            size_t *drafted, engine_error *error)
{
    draft_request cut = *request;
    const size_t room = round_room(state, 0);
    cut.row = 0;
    cut.cost = DRAFT_PACE_CHECK_COST;
    cut.out = s->tokens + 1;
    cut.most = cut.most < s->most ? cut.most : s->most;
    cut.most = cut.most < room ? cut.most : room > 0 ? room - 1 : 0;
    *drafted = 0;
    if (cut.most == 0) {
        return KVERN_OK;
    }
    const kvern_status status = drafts_propose(s->drafts, &cut, 1, error);
    *drafted = cut.proposed;
    return status;
}

kvern_status speculation_forward(speculation *s, kvern_state *state, const draft_request *request,
                                 engine_error *error)
{
    size_t drafted;
    s->accepted = 0;
    s->tokens[0] = request->tokens[request->count - 1];
    kvern_status status = propose(s, state, request, &drafted, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (drafted == 0) {
        return forward(s, state, 1, error);
    }
    status = forward_drafts(s, state, drafted, error);
    if (status == KVERN_OK) {
        return KVERN_OK;
    }
    const kvern_status dropped = drafts_accept(s->drafts, 0, 0, error);
    if (dropped != KVERN_OK || (status != KVERN_ERR_MEMORY && status != KVERN_ERR_BUDGET)) {
        return dropped != KVERN_OK ? dropped : status;
    }
    return forward(s, state, 1, error);
}

const float *speculation_logits(const speculation *s)
{
    return s->logits + s->accepted * model_get_facts(s->model)->vocabulary;
}

bool speculation_accept(speculation *s, int32_t token)
{
    const bool same = s->accepted < s->drafted && s->tokens[1 + s->accepted] == token;
    s->accepted += same;
    return same;
}

size_t speculation_unsettled(const speculation *s)
{
    return s->drafted - s->accepted;
}

kvern_status speculation_settle(speculation *s, kvern_state *state, engine_error *error)
{
    const size_t accepted = s->accepted;
    if (s->drafted == 0) {
        return KVERN_OK;
    }
    s->counts.rounds++;
    s->counts.drafted += s->drafted;
    s->counts.accepted += accepted;
    s->drafted = s->accepted = 0;
    const kvern_status status = round_end(state, 1 + accepted, error);
    const kvern_status told = drafts_accept(s->drafts, 0, accepted, status ? NULL : error);
    return status != KVERN_OK ? status : told;
}

speculation_counts speculation_take_counts(speculation *s)
{
    const speculation_counts counts = s->counts;
    s->counts = (speculation_counts){0};
    return counts;
}
