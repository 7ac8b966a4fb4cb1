// SPDX-License-Identifier: MIT
// The scheduler's steps: who leaves, who comes, what is forwarded, and who receives what.

#include "engine/generation/schedule_internal.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

// ---- Life ----

static kvern_status complete_options(const model *model, schedule_options *options,
                                     engine_error *error)
{
    const size_t most = model_get_facts(model)->context_length;
    if (options->context_length > most) {
        return engine_fail(
            error, KVERN_ERR_RANGE,
            "a context of %zu tokens is more than the %zu that the model was made for",
            options->context_length, most);
    }
    if (options->most_rows > KVERN_MAX_ROWS ||
        options->most_kept > KVERN_MAX_ROWS - options->most_rows) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "%zu rows and %zu kept sequences are more than %d", options->most_rows,
                           options->most_kept, KVERN_MAX_ROWS);
    }
    if (options->context_length == 0) {
        options->context_length = most;
    }
    if (options->draft_tokens > options->context_length) {
        return engine_fail(error, KVERN_ERR_RANGE, "%zu drafts are more than the context of %zu",
                           options->draft_tokens, options->context_length);
    }
    if (options->chunk == 0) {
        options->chunk = SCHEDULE_CHUNK;
    }
    if (options->chunk > options->context_length) {
        options->chunk = options->context_length;
    }
    if (options->most_rows == 0) {
        options->most_rows = SCHEDULE_ROWS;
    }
    return KVERN_OK;
}

// Tokens of a step: one of each row, and those of prompts or of drafts.
static size_t step_tokens(const schedule *s)
{
    const size_t drafts = s->options.most_rows * s->options.draft_tokens;
    return s->options.most_rows + (drafts > s->options.chunk ? drafts : s->options.chunk);
}

// Logits that are held at once: of a whole sequence at least. More of them are no faster.
#define LOGITS_AT_ONCE 64

static size_t most_logits(const schedule_options *options)
{
    const size_t each = 1 + options->draft_tokens;
    const size_t least = each > LOGITS_AT_ONCE ? each : LOGITS_AT_ONCE;
    return options->most_rows < least / each ? options->most_rows * each : least;
}

static kvern_status make_arrays(schedule *s, engine_error *error)
{
    const size_t rows = s->capacity, drafts = s->options.draft_tokens;
    const size_t vocabulary = model_get_facts(s->model)->vocabulary;
    s->rows = calloc(rows, sizeof *s->rows);
    s->keeps = calloc(rows, sizeof *s->keeps);
    s->tokens = calloc(step_tokens(s), sizeof *s->tokens);
    s->drafted = calloc(rows, (drafts + 1) * sizeof *s->drafted);
    s->requests = calloc(rows, sizeof *s->requests);
    s->settled = calloc(rows, sizeof *s->settled);
    s->counts = calloc(rows, sizeof *s->counts);
    s->logits_counts = calloc(rows, sizeof *s->logits_counts);
    s->order = calloc(rows, sizeof *s->order);
    s->indices = calloc(s->logits_room, sizeof *s->indices);
    s->logits = calloc(s->logits_room, vocabulary * sizeof *s->logits);
    if (!s->indices || !s->rows || !s->keeps || !s->tokens || !s->drafted || !s->requests ||
        !s->settled || !s->counts || !s->logits_counts || !s->order || !s->logits) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to schedule %zu rows", rows);
    }
    return KVERN_OK;
}

static kvern_status prepare(schedule *s, kvern_composition *composition, engine_error *error)
{
    kvern_status status = make_arrays(s, error);
    if (status == KVERN_OK) {
        status =
            model_workspace_create(s->model, step_tokens(s), s->capacity, &s->workspace, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_state_create(composition, 0, &s->state);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "making the KV cache");
    }
    status = schedule_kept_prepare(s, error);
    if (status == KVERN_OK) {
        status = schedule_draft_create(s, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    kvern_memory memory = {.size = sizeof memory};
    status = kvern_context_memory(s->context, &memory);
    s->base_bytes = memory.held_bytes - schedule_stored_bytes(s);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "asking for memory");
}

kvern_status schedule_create(const model *model, kvern_composition *composition,
                             const schedule_options *options, schedule **out, engine_error *error)
{
    *out = NULL;
    schedule_options complete = options ? *options : (schedule_options){0};
    kvern_status status = complete_options(model, &complete, error);
    if (status != KVERN_OK) {
        return status;
    }
    schedule *s = calloc(1, sizeof *s);
    if (!s) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a scheduler");
    }
    s->model = model;
    s->context = model_context(model);
    s->options = complete;
    s->capacity = complete.most_rows + complete.most_kept;
    s->logits_room = most_logits(&complete);
    s->shares = schedule_prefix_possible(composition);
    s->end = &s->first;
    status = prepare(s, composition, error);
    if (status != KVERN_OK) {
        schedule_destroy(s);
        return status;
    }
    *out = s;
    return KVERN_OK;
}

static schedule_sequence *unlink_sequence(schedule *s, schedule_sequence **at)
{
    schedule_sequence *q = *at;
    *at = q->next;
    if (!*at) {
        s->end = at;
    }
    return q;
}

// A request gives its row up.
static void vacate(schedule *s, schedule_sequence *q, size_t row)
{
    s->rows[row] = NULL;
    if (q->request.kept) {
        schedule_kept_leave(s, q, row);
        return;
    }
    // No step is open, and the row exists: this cannot fail.
    (void)!kvern_state_reset(s->state, row);
    schedule_draft_leave(s, q);
}

// A row's request ends: unless the sequence is kept its pages go; and its owner is told.
static void leave(schedule *s, size_t row)
{
    schedule_sequence *q = s->rows[row];
    schedule_stored_end(s, q, row);
    vacate(s, q, row);
    schedule_sequence_end(s, q);
}

static void end_all(schedule *s)
{
    for (size_t r = 0; s->state && r < kvern_state_rows(s->state); r++) {
        if (s->rows[r]) {
            s->rows[r]->answer.reason = GENERATE_CANCELLED;
            leave(s, r);
        }
    }
    while (s->first) {
        s->first->answer.reason = GENERATE_CANCELLED;
        schedule_sequence_end(s, unlink_sequence(s, &s->first));
    }
}

void schedule_destroy(schedule *s)
{
    if (!s) {
        return;
    }
    s->closing = true;
    end_all(s);
    for (size_t r = 0; s->state && r < kvern_state_rows(s->state); r++) {
        schedule_kept_destroy(s->keeps[r]);
    }
    kvern_state_destroy(s->state);
    if (!s->options.drafts) {
        drafts_destroy(s->drafts);
    }
    model_workspace_destroy(s->workspace);
    free(s->rows);
    free(s->keeps);
    free(s->tokens);
    free(s->drafted);
    free(s->requests);
    free(s->settled);
    free(s->counts);
    free(s->logits_counts);
    free(s->order);
    free(s->indices);
    free(s->logits);
    free(s);
}

// ---- Requests ----

kvern_status schedule_submit(schedule *s, const schedule_request *request, uint64_t *id,
                             engine_error *error)
{
    schedule_sequence *q;
    if (s->closing) {
        return engine_fail(error, KVERN_ERR_BUSY, "the scheduler ends");
    }
    kvern_status status = schedule_sequence_create(s, request, &q, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = schedule_room_check(s, q, error);
    if (status != KVERN_OK) {
        schedule_sequence_destroy(q);
        return status;
    }
    if (request->kept) {
        request->kept->busy = true;
    }
    q->result.id = *id = ++s->last_id;
    *s->end = q;
    s->end = &q->next;
    schedule_stored_look_again(s);
    return KVERN_OK;
}

bool schedule_cancel(schedule *s, uint64_t id)
{
    schedule_sequence *found = NULL;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        found = s->rows[r] && s->rows[r]->result.id == id ? s->rows[r] : found;
    }
    for (schedule_sequence *q = s->first; q && !found; q = q->next) {
        found = q->result.id == id ? q : NULL;
    }
    if (found) {
        found->cancelled = true;
    }
    return found;
}

static void drop_cancelled(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && schedule_sequence_cancelled(s->rows[r])) {
            s->rows[r]->answer.reason = GENERATE_CANCELLED;
            leave(s, r);
        }
    }
    schedule_sequence **at = &s->first;
    while (*at) {
        if (schedule_sequence_cancelled(*at)) {
            (*at)->answer.reason = GENERATE_CANCELLED;
            schedule_sequence_end(s, unlink_sequence(s, at));
        } else {
            at = &(*at)->next;
        }
    }
}

// ---- Rows ----

size_t schedule_running(const schedule *s)
{
    size_t count = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        count += s->rows[r] ? 1 : 0;
    }
    return count;
}

void schedule_compact(schedule *s)
{
    const size_t rows = kvern_state_rows(s->state);
    size_t count = 0;
    for (size_t r = 0; r < rows; r++) {
        if (s->rows[r] || s->keeps[r]) {
            s->order[count++] = r;
        }
    }
    if (count == rows || kvern_state_keep(s->state, s->order, count) != KVERN_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        s->rows[i] = s->rows[s->order[i]];
        s->keeps[i] = s->keeps[s->order[i]];
        if (s->keeps[i]) {
            s->keeps[i]->row = i;
        }
    }
    memset(s->rows + count, 0, (rows - count) * sizeof *s->rows);
    memset(s->keeps + count, 0, (rows - count) * sizeof *s->keeps);
}

kvern_status schedule_free_row(schedule *s, size_t *row, engine_error *error)
{
    const size_t rows = kvern_state_rows(s->state);
    *row = 0;
    while (*row < rows && (s->rows[*row] || s->keeps[*row])) {
        ++*row;
    }
    if (*row < rows) {
        return KVERN_OK;
    }
    kvern_status status = kvern_state_add_rows(s->state, 1);
    return status == KVERN_OK ? KVERN_OK : engine_fail_kvern(error, status, "adding a row");
}

// A new row behind the others with as much of the prompt as another row has, one with as much as
// the store has, if that is more, or an empty one.
static kvern_status choose_free_row(schedule *s, schedule_sequence *q, size_t *row,
                                    schedule_hit *hit, size_t stored, engine_error *error)
{
    size_t running;
    const size_t from = schedule_prefix_find(s, q, &running);
    *row = kvern_state_rows(s->state);
    if (running > stored && *row < s->capacity && schedule_prefix_take(s, q, from, running)) {
        return KVERN_OK;
    }
    kvern_status status = schedule_free_row(s, row, error);
    if (status == KVERN_OK && stored > 0) {
        (void)schedule_stored_take(s, q, *row, hit); // or it is served anew
    }
    return status;
}

// That, or the row of a kept sequence.
static kvern_status choose_row(schedule *s, schedule_sequence *q, size_t *row, engine_error *error)
{
    schedule_hit hit;
    const size_t stored = schedule_stored_find(s, q, &hit);
    kvern_status status = q->request.kept
                              ? schedule_kept_seat(s, q, row, stored > 0 ? &hit : NULL, error)
                              : choose_free_row(s, q, row, &hit, stored, error);
    schedule_stored_release(s, &hit);
    return status;
}

static kvern_status take_room(schedule *s, schedule_sequence *q, size_t *row, engine_error *error)
{
    const kvern_status status = schedule_room_take(s, *row, q, error);
    return status != KVERN_OK && schedule_kept_stay(s, q, row)
               ? schedule_room_take(s, *row, q, error)
               : status;
}

static kvern_status seat(schedule *s, schedule_sequence *q, size_t *row, engine_error *error)
{
    kvern_status status = schedule_sequence_seat(s, q, error);
    if (status == KVERN_OK) {
        status = choose_row(s, q, row, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = take_room(s, q, row, error);
    if (status != KVERN_OK) { // a row of its own goes at once: the next request may need its place
        vacate(s, q, *row);
        schedule_compact(s);
        q->forwarded = q->result.shared_tokens = q->result.stored_tokens = 0;
        q->result.from_disk = q->result.from_remote = false;
        q->like = DRAFT_NO_ROW;
        q->source = SCHEDULE_NO_ROW;
    }
    return status;
}

// ---- Planning a step ----

// The chunk that a sequence would be given alone. Where its pieces end in between, because others
// have their share of a step, decides nothing: a row is converted where its own chunk ends.
static void begin_chunk(schedule *s, size_t row)
{
    schedule_sequence *q = s->rows[row];
    const uint64_t most = (uint64_t)kvern_state_max_append(s->state, row);
    size_t chunk = q->count - q->forwarded;
    chunk = chunk < s->options.chunk ? chunk : s->options.chunk;
    q->chunk_end = q->forwarded + (chunk < most ? chunk : (size_t)most);
    // No step is open, and row and position exist: this cannot fail.
    (void)!kvern_state_plan_boundary(s->state, row, (int64_t)q->chunk_end);
}

// A prompt receives up to `most` tokens.
static void plan_prompt(schedule *s, size_t row, size_t most)
{
    schedule_sequence *q = s->rows[row];
    schedule_kept_checkpoint(s, row);
    if (q->forwarded >= q->chunk_end) {
        begin_chunk(s, row);
    }
    const bool cut = q->forwarded < q->checkpoint && q->checkpoint < q->chunk_end;
    size_t count = (cut ? q->checkpoint : q->chunk_end) - q->forwarded;
    count = count < most ? count : most;
    s->counts[row] = (int64_t)count;
    s->logits_counts[row] = count > 0 && q->forwarded + count == q->count;
    s->plan.tokens += count;
    s->plan.prompts |= count > 0;
}

static bool in_prompt(const schedule_sequence *q)
{
    return q->forwarded < q->count;
}

static size_t prompts(const schedule *s)
{
    size_t count = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        count += s->rows[r] && in_prompt(s->rows[r]);
    }
    return count;
}

// All prompts have a share of the chunk, so that a short one does not wait for a long one. What one
// does not need is for those behind it.
static void plan_prompts(schedule *s)
{
    size_t left = s->options.chunk, waiting = prompts(s);
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && in_prompt(s->rows[r])) {
            plan_prompt(s, r, (left + waiting - 1) / waiting);
            left -= (size_t)s->counts[r];
            waiting--;
        }
    }
}

static void plan_rows(schedule *s)
{
    s->plan = (schedule_plan){0};
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        schedule_sequence *q = s->rows[r];
        s->counts[r] = s->logits_counts[r] = q && !in_prompt(q);
        s->plan.tokens += (size_t)s->counts[r];
        if (q) {
            q->drafted = q->accepted = 0;
        }
    }
    plan_prompts(s);
}

// What was fetched takes memory, too: without it, where it does not fit.
static kvern_status seat_fetched(schedule *s, schedule_sequence *q, size_t *row,
                                 engine_error *error)
{
    kvern_status status = seat(s, q, row, error);
    if (status != KVERN_OK && q->fetch) {
        schedule_fetched_end(s, q);
        status = seat(s, q, row, error);
    }
    return status;
}

// Admits a request of the queue. False: it has to wait.
static bool admit_one(schedule *s, schedule_sequence **at)
{
    schedule_sequence *q = *at;
    engine_error error;
    size_t row;
    if (schedule_prefix_coming(s, q) || !schedule_room_likely(s, q)) {
        return false;
    }
    const kvern_status status = seat_fetched(s, q, &row, &error);
    if (status != KVERN_OK && schedule_running(s) > 0) {
        return false;
    }
    schedule_fetched_end(s, q);
    unlink_sequence(s, at);
    if (status != KVERN_OK) { // alone, and it does not fit
        schedule_sequence_fail(q, &error);
        schedule_sequence_end(s, q);
        return true;
    }
    s->rows[row] = q;
    s->statistics.shared_tokens += q->result.shared_tokens;
    s->statistics.stored_tokens += q->result.stored_tokens;
    schedule_sequence_time(q, &q->result.prompt_seconds);
    return true;
}

static void admit(schedule *s)
{
    schedule_sequence **at = &s->first;
    schedule_fetched_ask(s);
    while (*at && prompts(s) < s->options.chunk && schedule_running(s) < s->options.most_rows) {
        if (schedule_fetched_coming(s, *at)) { // others pass it
            at = &(*at)->next;
        } else if (!admit_one(s, at)) {
            return;
        }
    }
}

// ---- The step ----

static void gather_row(const schedule *s, size_t row, int32_t *to)
{
    const schedule_sequence *q = s->rows[row];
    if (in_prompt(q)) {
        memcpy(to, q->tokens + q->forwarded, (size_t)s->counts[row] * sizeof *to);
        return;
    }
    to[0] = q->tokens[q->known - 1];
    memcpy(to + 1, s->drafted + row * s->options.draft_tokens, q->drafted * sizeof *to);
}

static kvern_status forward(schedule *s, engine_error *error)
{
    int32_t *to = s->tokens;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->counts[r] > 0) {
            gather_row(s, r, to);
        }
        to += s->counts[r];
    }
    const bool window = s->plan.prompts || s->plan.drafts;
    const model_step step = {.phase = window ? KVERN_PHASE_WINDOW : KVERN_PHASE_DECODE,
                             .tokens = s->tokens,
                             .counts = s->counts};
    return model_forward(s->model, s->workspace, s->state, &step, error);
}

// With its drafts, if there are some; a failure with them is met by a step without.
static kvern_status forward_drafts(schedule *s, engine_error *error)
{
    if (s->plan.drafts && schedule_draft_begin(s, error) == KVERN_OK) {
        if (forward(s, error) == KVERN_OK) {
            return KVERN_OK;
        }
        schedule_draft_drop(s);
    }
    return forward(s, error);
}

// The rows that had tokens in the step end with its error.
static void fail_step(schedule *s, const engine_error *error)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->counts[r] > 0) {
            schedule_sequence_fail(s->rows[r], error);
            leave(s, r);
        }
    }
}

static void count_step(schedule *s)
{
    schedule_statistics *sums = &s->statistics;
    size_t rows = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        const bool prompt = s->counts[r] > 0 && in_prompt(s->rows[r]);
        sums->prompt_tokens += prompt ? (uint64_t)s->counts[r] : 0;
        rows += s->counts[r] > 0 ? 1 : 0;
    }
    const uint64_t bytes = schedule_room_bytes(s);
    sums->steps++;
    sums->row_steps += rows;
    sums->peak_rows = rows > sums->peak_rows ? rows : sums->peak_rows;
    sums->peak_kv_bytes = bytes > sums->peak_kv_bytes ? bytes : sums->peak_kv_bytes;
}

// A row's sequence takes what the step gave; `logits` of its newest token and its drafts, if they
// were wanted.
static void deliver_row(schedule *s, size_t row, const float *logits)
{
    schedule_sequence *q = s->rows[row];
    const size_t before = q->answer.tokens;
    if (in_prompt(q)) {
        q->forwarded += (size_t)s->counts[row];
        schedule_sequence_tell_prompt(q);
        if (in_prompt(q)) {
            return;
        }
        schedule_kept_settle(s, q, row);
        q->prompt_ended = true;
        schedule_sequence_time(q, &q->result.decode_seconds);
    } else {
        q->result.decode_steps++;
    }
    do {
        schedule_sequence_sample(q, logits);
        logits += model_get_facts(s->model)->vocabulary;
    } while (!q->over && schedule_draft_accept(s, row));
    s->statistics.generated_tokens += q->answer.tokens - before;
}

// Rows from `begin` on whose logits are held at once; *count of them. Returns where they end.
static size_t gather_logits(schedule *s, size_t begin, size_t *token, size_t *count)
{
    size_t row = begin;
    *count = 0;
    while (row < kvern_state_rows(s->state) &&
           (size_t)s->logits_counts[row] <= s->logits_room - *count) {
        *token += (size_t)s->counts[row];
        for (size_t i = (size_t)s->logits_counts[row]; i > 0; i--) {
            s->indices[(*count)++] = *token - i;
        }
        row++;
    }
    return row;
}

// The logits of a row's tokens, which are forwarded, cannot be had.
static void fail_row(schedule *s, size_t row, const engine_error *error)
{
    schedule_sequence *q = s->rows[row];
    q->forwarded += in_prompt(q) ? (size_t)s->counts[row] : 0;
    q->over = true;
    schedule_sequence_fail(q, error);
}

static void deliver_rows(schedule *s, size_t begin, size_t end, size_t count)
{
    engine_error error;
    const float *logits = s->logits;
    const kvern_status status =
        model_logits(s->model, s->workspace, s->indices, count, s->logits, &error);
    for (size_t r = begin; r < end; r++) {
        if (s->counts[r] > 0 && s->logits_counts[r] > 0 && status != KVERN_OK) {
            fail_row(s, r, &error);
        } else if (s->counts[r] > 0) {
            deliver_row(s, r, logits);
        }
        logits += (size_t)s->logits_counts[r] * model_get_facts(s->model)->vocabulary;
    }
}

static void deliver(schedule *s)
{
    size_t token = 0, count;
    for (size_t begin = 0, end; begin < kvern_state_rows(s->state); begin = end) {
        end = gather_logits(s, begin, &token, &count);
        deliver_rows(s, begin, end, count);
    }
}

static void leave_finished(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && s->rows[r]->over) {
            leave(s, r);
        }
    }
}

// Rows whose prompts ended in this step.
static void settle_prompts(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && s->rows[r]->prompt_ended) {
            s->rows[r]->prompt_ended = false;
            schedule_room_settle(s, r);
            schedule_stored_prompt(s, r);
        }
    }
}

static void run_step(schedule *s)
{
    engine_error error;
    if (forward_drafts(s, &error) != KVERN_OK) {
        fail_step(s, &error);
        return;
    }
    count_step(s);
    deliver(s);
    schedule_draft_settle(s);
    schedule_draft_read(s);
    leave_finished(s);
    settle_prompts(s);
}

bool schedule_step(schedule *s)
{
    if (s->stepping) {
        return true;
    }
    const double start = engine_seconds();
    s->stepping = true;
    drop_cancelled(s);
    schedule_compact(s);
    admit(s);
    plan_rows(s);
    schedule_draft_plan(s);
    if (s->plan.tokens > 0) {
        run_step(s);
    } else {
        schedule_fetched_wait(s);
    }
    schedule_compact(s);
    s->stepping = false;
    s->statistics.seconds += engine_seconds() - start;
    return s->first || schedule_running(s) > 0;
}

// ---- Looking ----

schedule_statistics schedule_get_statistics(const schedule *s)
{
    schedule_statistics statistics = s->statistics;
    statistics.running = schedule_running(s);
    statistics.queued = 0;
    for (const schedule_sequence *q = s->first; q; q = q->next) {
        statistics.queued++;
    }
    return statistics;
}

const kvern_state *schedule_state(const schedule *s)
{
    return s->state;
}

bool schedule_get_row(const schedule *s, size_t row, schedule_row *out)
{
    const bool there = row < kvern_state_rows(s->state) && (s->rows[row] || s->keeps[row]);
    if (!there) {
        return false;
    }
    const schedule_sequence *q = s->rows[row];
    const int64_t length = kvern_state_length(s->state, row);
    *out = (schedule_row){.length = length, .final_length = (size_t)length};
    if (q) {
        out->id = q->result.id;
        out->final_length = q->final_length;
        out->prompt_tokens = q->count;
        out->forwarded = q->forwarded;
        out->generated_tokens = q->answer.tokens;
        out->shared_tokens = q->result.shared_tokens;
        out->stored_tokens = q->result.stored_tokens;
        out->from_disk = q->result.from_disk;
        out->from_remote = q->result.from_remote;
        out->why = q->result.why;
    }
    return true;
}
