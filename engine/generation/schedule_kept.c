// SPDX-License-Identifier: MIT
// Sequences that stay between requests.

#include "engine/generation/schedule_internal.h"

#include <stdlib.h>
#include <string.h>

// ---- Life ----

static kvern_status check_idle(const kept_sequence *k, engine_error *error)
{
    return k->busy ? engine_fail(error, KVERN_ERR_BUSY, "a request continues this sequence")
                   : KVERN_OK;
}

void schedule_kept_destroy(kept_sequence *k)
{
    if (!k) {
        return;
    }
    free(k->tokens);
    free(k);
}

kvern_status schedule_keep(schedule *s, kept_sequence **out, engine_error *error)
{
    *out = NULL;
    if (s->kept_count == s->options.most_kept) {
        return engine_fail(error, KVERN_ERR_RANGE, "%zu sequences are kept, and no more can be",
                           s->kept_count);
    }
    kept_sequence *k = calloc(1, sizeof *k);
    if (k) {
        k->tokens = malloc(s->options.context_length * sizeof *k->tokens);
    }
    if (!k || !k->tokens) {
        schedule_kept_destroy(k);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a sequence of %zu tokens",
                           s->options.context_length);
    }
    kvern_status status = schedule_free_row(s, &k->row, error);
    if (status != KVERN_OK) {
        schedule_kept_destroy(k);
        return status;
    }
    k->schedule = s;
    k->draft_row = DRAFT_NO_ROW;
    s->keeps[k->row] = k;
    s->kept_count++;
    *out = k;
    return KVERN_OK;
}

static void end_drafts(kept_sequence *k)
{
    if (k->draft_row != DRAFT_NO_ROW) {
        drafts_end(k->schedule->drafts, k->draft_row);
    }
    k->draft_row = DRAFT_NO_ROW;
}

kvern_status schedule_reset_kept(kept_sequence *k, engine_error *error)
{
    kvern_status status = check_idle(k, error);
    if (status != KVERN_OK) {
        return status;
    }
    // No step is open between requests, and the row exists: this cannot fail.
    (void)!kvern_state_reset(k->schedule->state, k->row);
    end_drafts(k);
    k->count = 0;
    return KVERN_OK;
}

kvern_status schedule_drop_kept(kept_sequence *k, engine_error *error)
{
    kvern_status status = schedule_reset_kept(k, error);
    if (status != KVERN_OK) {
        return status;
    }
    k->schedule->keeps[k->row] = NULL; // the empty row goes with the next step
    k->schedule->kept_count--;
    schedule_kept_destroy(k);
    return KVERN_OK;
}

int64_t kept_sequence_length(const kept_sequence *k)
{
    return kvern_state_length(k->schedule->state, k->row);
}

bool kept_sequence_pending(const kept_sequence *k)
{
    return k->count > (size_t)kept_sequence_length(k);
}

// ---- Going back ----

// Whether any number of the newest positions can be trimmed, and leaves a row as it was before
// them.
static bool trims_freely(const kvern_state *state)
{
    const kvern_composition *plan = kvern_state_composition(state);
    bool freely = true;
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        const kvern_layer *layer = kvern_composition_layer(plan, l);
        const bool all = layer->kind == KVERN_LAYER_FULL || layer->kind == KVERN_LAYER_LATENT ||
                         layer->kind == KVERN_LAYER_SHARED; // as its donor, which is here, too
        freely = freely && all && layer->start == KVERN_NO_START;
    }
    return freely;
}

static bool has_recurrent_layers(const kvern_composition *plan)
{
    bool has = false;
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        has = has || kvern_composition_layer(plan, l)->kind == KVERN_LAYER_RECURRENT;
    }
    return has;
}

// Of a kept sequence: the one that it goes back to, and the one that its running request makes.
#define CHECKPOINTS 2

kvern_status schedule_kept_prepare(schedule *s, engine_error *error)
{
    const kvern_composition *plan = kvern_state_composition(s->state);
    if (s->options.most_kept == 0 || !s->shares || !has_recurrent_layers(plan)) {
        return KVERN_OK;
    }
    // What a row of one token takes is the states of its layers, and a page of all others.
    const uint64_t each = kvern_composition_row_bytes(plan, 1);
    const uint64_t count = CHECKPOINTS * s->options.most_kept;
    s->checkpoint_bytes = each < UINT64_MAX / count ? count * each : UINT64_MAX;
    kvern_status status = kvern_state_checkpoint_budget(s->state, s->checkpoint_bytes);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "planning checkpoints");
}

bool schedule_kept_forget(schedule *s)
{
    const bool some = kvern_state_checkpoint_bytes(s->state) > 0;
    if (some) { // no step is open, so neither fails
        (void)!kvern_state_checkpoint_budget(s->state, 0);
        (void)!kvern_state_checkpoint_budget(s->state, s->checkpoint_bytes);
    }
    return some;
}

// A sequence without a checkpoint, for want of memory, begins anew where it could have gone back.
void schedule_kept_checkpoint(schedule *s, size_t row)
{
    schedule_sequence *q = s->rows[row];
    if (q->checkpoint == 0 || q->forwarded != q->checkpoint) {
        return;
    }
    q->checkpoint = 0;
    if (kvern_state_checkpoint(s->state, row) == KVERN_OK) {
        (void)!schedule_room_renew(s, row); // gives checkpoints up where they take its room
    }
}

// The most positions, at most `most`, that a row can go back to.
static size_t reachable(const schedule *s, size_t row, size_t most)
{
    const int64_t length = kvern_state_length(s->state, row), wanted = (int64_t)most;
    if (wanted >= length) {
        return (size_t)length;
    }
    if (!s->shares) { // what a row is depends on how it began
        return 0;
    }
    const bool trimmed = wanted >= kvern_state_min_reusable(s->state, row) &&
                         length - wanted <= kvern_state_trimmable(s->state, row);
    return trimmed ? most : (size_t)kvern_state_checkpoint_below(s->state, row, wanted);
}

static kvern_status go_to(schedule *s, size_t row, size_t length)
{
    const int64_t surplus = kvern_state_length(s->state, row) - (int64_t)length;
    if (length == 0) {
        return kvern_state_reset(s->state, row);
    }
    return kvern_state_checkpoint_below(s->state, row, (int64_t)length) == (int64_t)length
               ? kvern_state_return(s->state, row, (int64_t)length)
               : kvern_state_trim(s->state, row, surplus);
}

static void trim_drafts(kept_sequence *k, size_t length)
{
    // Drafts that fail to forget draft on: what they guess may be wrong.
    if (k->draft_row != DRAFT_NO_ROW) {
        (void)!drafts_trim(k->schedule->drafts, k->draft_row, length, NULL);
    }
}

kvern_status schedule_rewind_kept(kept_sequence *k, const int32_t *tokens, size_t count,
                                  size_t *left, engine_error *error)
{
    kvern_status status = check_idle(k, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (count == 0) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "there is no token to go back to");
    }
    size_t common = 0;
    while (common < count - 1 && common < k->count && tokens[common] == k->tokens[common]) {
        common++;
    }
    if (common < k->count) {
        const size_t length = reachable(k->schedule, k->row, common);
        status = go_to(k->schedule, k->row, length);
        if (status != KVERN_OK) {
            return engine_fail_kvern(error, status, "going back in the sequence");
        }
        trim_drafts(k, length);
        k->count = length;
    }
    *left = k->count;
    return KVERN_OK;
}

// ---- From elsewhere ----

static kvern_status check_adopted(const kept_sequence *k, const kvern_state *state,
                                  const int32_t *tokens, size_t count, engine_error *error)
{
    const size_t context = k->schedule->options.context_length;
    if (kvern_state_rows(state) != 1 || kvern_state_length(state, 0) != (int64_t)count ||
        count == 0) {
        return engine_fail(error, KVERN_ERR_RANGE, "%zu tokens are not those of one row", count);
    }
    if (count >= context) {
        return engine_fail(error, KVERN_ERR_RANGE, "%zu tokens leave no room in a context of %zu",
                           count, context);
    }
    return schedule_check_tokens(k->schedule, tokens, count, error);
}

// The newest row of the state is the sequence's now.
static void move_to(kept_sequence *k, size_t row)
{
    schedule *s = k->schedule;
    (void)!kvern_state_reset(s->state, k->row); // cannot fail, as in schedule_reset_kept
    s->keeps[k->row] = NULL;
    s->keeps[row] = k;
    k->row = row;
    end_drafts(k);
}

kvern_status schedule_adopt_kept(kept_sequence *k, kvern_state *state, const int32_t *tokens,
                                 size_t count, engine_error *error)
{
    schedule *s = k->schedule;
    kvern_status status = check_idle(k, error);
    if (status == KVERN_OK) {
        status = check_adopted(k, state, tokens, count, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    schedule_compact(s);
    const size_t row = kvern_state_rows(s->state);
    if (row == s->capacity) {
        return engine_fail(error, KVERN_ERR_BUSY, "all %zu rows are in use", row);
    }
    status = kvern_state_join(s->state, &state, 1);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "taking the rows over");
    }
    move_to(k, row);
    memcpy(k->tokens, tokens, count * sizeof *tokens);
    k->count = count;
    return KVERN_OK;
}

// ---- Its requests ----

// Whether all that is to be forwarded of the prompt goes into the step that follows, however many
// prompts share it: then nothing can come in between, and a step that fails changes nothing.
static bool is_one_step(const schedule *s, const schedule_sequence *q, size_t row)
{
    const size_t rest = q->count - q->forwarded, rows = s->options.most_rows;
    return (rest == 1 || rest <= s->options.chunk / rows) &&
           rest <= (uint64_t)kvern_state_max_append(s->state, row);
}

// Another row behind the others with the positions of the kept one.
static kvern_status share(schedule *s, size_t row, engine_error *error)
{
    kvern_state *copy;
    kvern_status status = kvern_state_extract(s->state, row, &copy);
    if (status == KVERN_OK) {
        status = kvern_state_join(s->state, &copy, 1);
        kvern_state_destroy(copy);
    }
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "keeping the sequence");
}

kvern_status schedule_kept_seat(schedule *s, schedule_sequence *q, size_t *row, schedule_hit *hit,
                                engine_error *error)
{
    const kept_sequence *k = q->request.kept;
    const size_t before = (size_t)kept_sequence_length(k);
    q->forwarded = q->result.shared_tokens = before;
    *row = k->row;
    if (before == 0 && hit) {
        (void)schedule_stored_take(s, q, *row, hit); // or it is served anew
    }
    if (s->checkpoint_bytes > 0) {
        const size_t tail = q->count > SCHEDULE_TAIL ? q->count - SCHEDULE_TAIL : 0;
        q->checkpoint = tail > q->forwarded ? tail : q->forwarded;
    }
    const bool whole = is_one_step(s, q, k->row) && q->checkpoint <= q->forwarded;
    if (before == 0 || whole || trims_freely(s->state)) {
        return KVERN_OK;
    }
    *row = kvern_state_rows(s->state);
    return share(s, k->row, error);
}

bool schedule_kept_stay(schedule *s, schedule_sequence *q, size_t *row)
{
    const kept_sequence *k = q->request.kept;
    if (!k || *row == k->row || !is_one_step(s, q, k->row)) {
        return false;
    }
    (void)!kvern_state_reset(s->state, *row); // it is nobody's yet
    *row = k->row;
    q->checkpoint = 0;
    return true;
}

void schedule_kept_settle(schedule *s, schedule_sequence *q, size_t row)
{
    kept_sequence *k = q->request.kept;
    if (!k || row == k->row) {
        return;
    }
    (void)!kvern_state_reset(s->state, k->row); // cannot fail, as in schedule_reset_kept
    s->keeps[k->row] = NULL;
    s->keeps[row] = k;
    k->row = row;
}

// The sequence is what the request made of it.
static void take_over(schedule *s, kept_sequence *k, schedule_sequence *q, size_t row)
{
    schedule_kept_settle(s, q, row);
    memcpy(k->tokens, q->tokens, q->known * sizeof *k->tokens);
    k->count = q->known;
}

// The sequence is what it was before, with `length` positions.
static void go_back(schedule *s, kept_sequence *k, size_t row, size_t length)
{
    const int64_t surplus = kvern_state_length(s->state, row) - (int64_t)length;
    if (row != k->row || length == 0) {
        (void)!kvern_state_reset(s->state, row);
    } else if (surplus > 0) { // where that is exact
        (void)!kvern_state_trim(s->state, row, surplus);
    }
    trim_drafts(k, length);
}

void schedule_kept_leave(schedule *s, schedule_sequence *q, size_t row)
{
    kept_sequence *k = q->request.kept;
    k->draft_row = q->draft_row;
    if (q->forwarded == q->count) {
        take_over(s, k, q, row);
    } else {
        go_back(s, k, row, q->result.shared_tokens - q->result.stored_tokens);
    }
}
