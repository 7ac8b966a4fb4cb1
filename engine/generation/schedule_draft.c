// SPDX-License-Identifier: MIT
// Drafts of a scheduler's sequences: all rows of a step check theirs in one forward pass, which is
// a round of the state.

#include "engine/generation/schedule_internal.h"

#include "engine/speculation/draft_model.h"
#include "engine/speculation/draft_ngram.h"
#include "engine/speculation/draft_pace.h"

// ---- Rows of drafts ----

kvern_status schedule_draft_create(schedule *s, engine_error *error)
{
    const schedule_options *options = &s->options;
    if (options->draft_tokens == 0 || options->drafts) {
        s->drafts = options->draft_tokens > 0 ? options->drafts : NULL;
        return KVERN_OK;
    }
    if (!options->draft) {
        return draft_ngram_create(s->capacity, options->context_length, &s->drafts, error);
    }
    if (model_context(options->draft) != s->context) {
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "a draft model of another context than the model's");
    }
    const draft_model_options wanted = {.rows = s->capacity,
                                        .context_length = options->context_length,
                                        .cost = options->draft_cost};
    return draft_model_create(options->draft, options->draft_composition, s->model, &wanted,
                              &s->drafts, error);
}

uint64_t schedule_draft_bytes(const schedule *s, const schedule_sequence *q)
{
    return s->drafts && !q->undrafted ? drafts_row_bytes(s->drafts, q->final_length) : 0;
}

static bool is_taken(const schedule *s, size_t draft_row)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if ((s->rows[r] && s->rows[r]->draft_row == draft_row) ||
            (s->keeps[r] && s->keeps[r]->draft_row == draft_row)) {
            return true;
        }
    }
    return false;
}

// A row that no sequence has: there are as many as sequences that run.
static size_t free_row(const schedule *s)
{
    size_t row = 0;
    while (is_taken(s, row)) {
        row++;
    }
    return row;
}

kvern_status schedule_draft_seat(schedule *s, schedule_sequence *q, size_t room,
                                 engine_error *error)
{
    const kept_sequence *kept = q->request.kept;
    // What is kept may grow to the whole context.
    const draft_sequence sequence = {.length = kept ? s->options.context_length : q->final_length,
                                     .room = room,
                                     .like = q->like,
                                     .shared = kept ? 0 : q->result.shared_tokens};
    if (!s->drafts || q->undrafted) {
        return KVERN_OK;
    }
    if (kept && kept->draft_row != DRAFT_NO_ROW) {
        q->draft_row = kept->draft_row;
        return KVERN_OK;
    }
    const size_t row = free_row(s);
    const kvern_status status = drafts_begin(s->drafts, row, &sequence, error);
    q->draft_row = status == KVERN_OK ? row : DRAFT_NO_ROW;
    return status;
}

void schedule_draft_leave(schedule *s, schedule_sequence *q)
{
    if (q->draft_row != DRAFT_NO_ROW) {
        drafts_end(s->drafts, q->draft_row);
    }
    q->draft_row = DRAFT_NO_ROW;
}

void schedule_draft_read(schedule *s)
{
    size_t count = 0;
    for (size_t r = 0; s->plan.prompts && r < kvern_state_rows(s->state); r++) {
        const schedule_sequence *q = s->rows[r];
        if (q && !q->over && q->draft_row != DRAFT_NO_ROW) {
            s->requests[count++] =
                (draft_request){.row = q->draft_row, .tokens = q->tokens, .count = q->forwarded};
        }
    }
    if (count > 0) { // what fails here is read with the next proposal
        (void)!drafts_read(s->drafts, s->requests, count, NULL);
    }
}

// ---- Steps ----

// What one more token costs, in parts of a pass of one row. Measured for 2 to 8 rows: a pass takes
// as much longer for each.
#define TOKEN_COST 0.2f

// What one more token costs a pass of `rows` rows, in parts of it, and times the rows: their own
// tokens come later by that much.
static float cost_of(size_t rows)
{
    if (rows == 1) {
        return DRAFT_PACE_CHECK_COST;
    }
    const float more = TOKEN_COST * (float)rows;
    return more / (1 - TOKEN_COST + more);
}

// Whether every row of the step may take part in a round, with its newest token at least.
static bool round_possible(const schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && drafts_trial(s->state, r) == 0) {
            return false;
        }
    }
    return true;
}

// What a row may be given of drafts; most == 0: nothing.
static draft_request request_of(const schedule *s, size_t row, float cost)
{
    const schedule_sequence *q = s->rows[row];
    const size_t room = drafts_trial(s->state, row) - 1;
    size_t most = q->final_length - q->known - 1; // all but the last token may be a draft
    most = most < s->options.draft_tokens ? most : s->options.draft_tokens;
    most = most < room ? most : room;
    return (draft_request){.row = q->draft_row,
                           .tokens = q->tokens,
                           .count = q->known,
                           .most = most,
                           .sampler = q->sampler,
                           .cost = cost,
                           .out = s->drafted + row * s->options.draft_tokens};
}

static size_t gather_requests(schedule *s)
{
    const float cost = cost_of(schedule_running(s));
    size_t count = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && s->rows[r]->draft_row != DRAFT_NO_ROW) {
            s->requests[count] = request_of(s, r, cost);
            count += s->requests[count].most > 0;
        }
    }
    return count;
}

// Puts the proposals into the step. They are in the order of the rows.
static void plan_row(schedule *s, size_t row, size_t drafted)
{
    s->rows[row]->drafted = drafted;
    s->counts[row] += (int64_t)drafted;
    s->logits_counts[row] = s->counts[row];
    s->plan.tokens += drafted;
    s->plan.drafts |= drafted > 0;
}

void schedule_draft_plan(schedule *s)
{
    if (!s->drafts || s->plan.prompts || !round_possible(s)) {
        return;
    }
    const size_t count = gather_requests(s);
    if (count == 0 || drafts_propose(s->drafts, s->requests, count, NULL) != KVERN_OK) {
        return;
    }
    for (size_t r = 0, i = 0; i < count; r++) {
        if (s->rows[r] && s->rows[r]->draft_row == s->requests[i].row) {
            plan_row(s, r, s->requests[i++].proposed);
        }
    }
}

// Tells the drafts of all rows what became of them. One that fails drafts on all the same: what it
// guesses may be wrong, and it must be allowed to.
static void tell(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        const schedule_sequence *q = s->rows[r];
        if (q && q->drafted > 0) {
            (void)!drafts_accept(s->drafts, q->draft_row, q->accepted, NULL);
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
    const int32_t *drafts = s->drafted + row * s->options.draft_tokens;
    if (q->accepted == q->drafted || drafts[q->accepted] != q->tokens[q->known - 1]) {
        return false;
    }
    q->accepted++;
    return true;
}

static void count_drafts(schedule *s, schedule_sequence *q)
{
    s->statistics.drafted += q->drafted;
    s->statistics.accepted += q->accepted;
    q->result.drafts.rounds += q->drafted > 0;
    q->result.drafts.drafted += q->drafted;
    q->result.drafts.accepted += q->accepted;
}

void schedule_draft_settle(schedule *s)
{
    if (!s->plan.drafts) {
        return;
    }
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        schedule_sequence *q = s->rows[r];
        s->settled[r] = s->counts[r] > 0 ? 1 + (int64_t)q->accepted : 0;
        if (q) {
            count_drafts(s, q);
        }
    }
    end_round(s);
    tell(s);
}
