// SPDX-License-Identifier: MIT
// Drafts of a scheduler's sequences: all rows of a step check theirs in one forward pass, which is
// a round of the state.

#include "engine/schedule_internal.h"

#include "engine/draft_ngram.h"

kvern_status schedule_draft_prepare(schedule_sequence *q, engine_error *error)
{
    return draft_ngram_create(q->final_length, &q->drafts, error);
}

// What one more token costs, in parts of a pass of one row. Measured for 2 to 8 rows: a pass takes
// as much longer for each.
#define TOKEN_COST 0.2f

// What one more token costs a pass of `rows` rows, in parts of it, and times the rows: their own
// tokens come later by that much.
static float cost_of(size_t rows)
{
    const float more = TOKEN_COST * (float)rows;
    return more / (1 - TOKEN_COST + more);
}

// The most tokens that a row may receive in a round: a window must be able to take all of them
// back, and a row that is converted is so in a step that is not on trial.
static size_t room_of(const schedule *s, size_t row)
{
    const kvern_composition *plan = kvern_state_composition(s->state);
    int64_t room = kvern_state_max_append(s->state, row) - 1;
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        const kvern_layer *layer = kvern_composition_layer(plan, l);
        if (layer->kind == KVERN_LAYER_WINDOW && layer->slack < room) {
            room = layer->slack;
        }
    }
    return (size_t)room;
}

// Whether every row of the step may take part in a round, with its newest token at least.
static bool round_possible(const schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && room_of(s, r) == 0) {
            return false;
        }
    }
    return true;
}

static void plan_row(schedule *s, size_t row, float cost)
{
    schedule_sequence *q = s->rows[row];
    const size_t room = room_of(s, row) - 1;
    size_t most = q->final_length - q->known - 1; // all but the last token may be a draft
    most = most < s->options.draft_tokens ? most : s->options.draft_tokens;
    most = most < room ? most : room;
    const draft_request request = {
        .tokens = q->tokens, .count = q->known, .most = most, .sampler = q->sampler};
    draft_ngram_set_cost(q->drafts, cost);
    if (most == 0 || drafts_propose(q->drafts, &request, s->drafts + row * s->options.draft_tokens,
                                    &q->drafted, NULL) != KVERN_OK) {
        q->drafted = 0;
    }
    s->counts[row] += (int64_t)q->drafted;
    s->logits_counts[row] = s->counts[row];
    s->plan.tokens += q->drafted;
    s->plan.drafts |= q->drafted > 0;
}

void schedule_draft_plan(schedule *s)
{
    if (s->options.draft_tokens == 0 || s->plan.prompts || !round_possible(s)) {
        return;
    }
    const float cost = cost_of(schedule_running(s));
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r]) {
            plan_row(s, r, cost);
        }
    }
}

// Tells the drafts of all rows what became of them.
static void tell(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        schedule_sequence *q = s->rows[r];
        if (q && q->drafted > 0) {
            (void)!drafts_accept(q->drafts, q->accepted, NULL); // n-grams only take note
        }
    }
}

static void forget(schedule *s)
{
    s->plan.drafts = false;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        schedule_sequence *q = s->rows[r];
        if (q) {
            s->counts[r] -= (int64_t)q->drafted;
            s->logits_counts[r] = s->counts[r];
            q->drafted = q->accepted = 0;
        }
    }
}

kvern_status schedule_draft_begin(schedule *s, engine_error *error)
{
    const kvern_status status = kvern_round_begin(s->state, s->counts);
    if (status == KVERN_OK) {
        return KVERN_OK;
    }
    tell(s);
    forget(s);
    return engine_fail_kvern(error, status, "beginning a round");
}

// Nothing is converted by a round here, which is all that ending one could fail for.
static void end_round(schedule *s)
{
    (void)!kvern_round_rollback(s->state, s->settled);
}

void schedule_draft_drop(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        s->settled[r] = 0;
    }
    end_round(s);
    tell(s);
    forget(s);
}

bool schedule_draft_accept(schedule *s, size_t row)
{
    schedule_sequence *q = s->rows[row];
    const int32_t *drafts = s->drafts + row * s->options.draft_tokens;
    if (q->accepted == q->drafted || drafts[q->accepted] != q->tokens[q->known - 1]) {
        return false;
    }
    q->accepted++;
    return true;
}

void schedule_draft_settle(schedule *s)
{
    if (!s->plan.drafts) {
        return;
    }
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        const schedule_sequence *q = s->rows[r];
        s->settled[r] = s->counts[r] > 0 ? 1 + (int64_t)q->accepted : 0;
        s->statistics.drafted += q ? q->drafted : 0;
        s->statistics.accepted += q ? q->accepted : 0;
    }
    end_round(s);
    tell(s);
}
