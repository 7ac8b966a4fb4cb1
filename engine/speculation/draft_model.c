// SPDX-License-Identifier: MIT
#include "engine/speculation/draft_model.h"

#include "engine/speculation/draft_pace.h"

#include <stdlib.h>
#include <string.h>

// Tokens of one forward pass over what the draft model has not seen.
#define CHUNK 128

// How often a draft is taken to be right before anything is known.
#define FIRST_RATE 0.7f

typedef struct draft_row {
    sampler *sampler;
    draft_pace pace;
    size_t kept;     // tokens that its row of the state holds of the sequence; more are guesses
    size_t proposed; // tokens of the proposal that waits for its verdict
    draft_request *request; // that is being answered; NULL: none
    size_t most;            // tokens that it may be answered with
} draft_row;

typedef struct model_drafts {
    drafts base;
    const model *model;
    model_workspace *workspace;
    kvern_state *state; // row r begins as the sequence of row r does
    size_t count;       // of rows
    size_t shared;      // tokens that both models know: 0 to shared - 1
    size_t context_length;
    float cost;
    draft_row *rows; // [count]
    // Of a forward pass:
    size_t most_tokens;
    int32_t *tokens;        // [most_tokens] of all rows
    int64_t *counts;        // [count]
    int64_t *logits_counts; // [count] 0 or 1
    float *logits;          // [count, vocabulary]
    size_t *order;          // [count] of rows of the state
} model_drafts;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// ---- Vocabulary ----

// Vocabularies are often padded to a round size, and models of one family to different ones: what
// one of them lacks is never drafted.
static bool same_text(tokenizer_text a, tokenizer_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static kvern_status check_tokens(const tokenizer *draft, const tokenizer *own, engine_error *error)
{
    const size_t shared = smaller(tokenizer_size(draft), tokenizer_size(own));
    for (size_t i = 0; i < shared; i++) {
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
    if (model_tokenizer(draft) && model_tokenizer(model)) {
        return check_tokens(model_tokenizer(draft), model_tokenizer(model), error);
    }
    if (theirs != ours) { // numbers are all that is known of the tokens
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the draft model has a vocabulary of %zu tokens and the model one of "
                           "%zu: it cannot draft for it",
                           theirs, ours);
    }
    return KVERN_OK;
}

// ---- Forward passes ----

static bool lacks_memory(kvern_status status)
{
    return status == KVERN_ERR_MEMORY || status == KVERN_ERR_BUDGET;
}

static size_t length_of(const model_drafts *d, size_t row)
{
    return (size_t)kvern_state_length(d->state, row);
}

// The tokens of a row from a position on: of the sequence, or of the proposal behind it.
static const int32_t *tokens_at(const draft_request *q, size_t position)
{
    return position < q->count ? q->tokens + position : q->out + (position - q->count);
}

// A token that the draft model does not know is read as another one: it guesses worse behind it.
static void copy_tokens(const model_drafts *d, const int32_t *tokens, size_t count, int32_t *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (size_t)tokens[i] < d->shared ? tokens[i] : 0;
    }
}

// Forwards the next d->counts[r] tokens of each row, at least one in all.
static kvern_status forward(model_drafts *d, engine_error *error)
{
    size_t total = 0;
    bool window = false;
    for (size_t r = 0; r < d->count; r++) {
        if (d->counts[r] > 0) {
            copy_tokens(d, tokens_at(d->rows[r].request, length_of(d, r)), (size_t)d->counts[r],
                        d->tokens + total);
        }
        total += (size_t)d->counts[r];
        window |= d->counts[r] > 1;
    }
    const model_step step = {.phase = window ? KVERN_PHASE_WINDOW : KVERN_PHASE_DECODE,
                             .tokens = d->tokens,
                             .counts = d->counts,
                             .logits = d->logits,
                             .logits_counts = d->logits_counts};
    return model_forward(d->model, d->workspace, d->state, &step, error);
}

// ---- Rows ----

// Takes a row back to `length` tokens. What it cannot go back to, past a window or a conversion, is
// read again.
static kvern_status cut(model_drafts *d, size_t row, size_t length, engine_error *error)
{
    draft_row *r = &d->rows[row];
    r->kept = smaller(r->kept, length);
    if (length_of(d, row) <= length) {
        return KVERN_OK;
    }
    const bool back = (int64_t)length >= kvern_state_min_reusable(d->state, row);
    const int64_t surplus = (int64_t)(length_of(d, row) - length);
    const kvern_status status =
        back ? kvern_state_trim(d->state, row, surplus) : kvern_state_reset(d->state, row);
    r->kept = length_of(d, row);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "trimming the draft model");
}

// Row `row` of the state becomes its last one, which is taken out behind the others.
static void replace_row(model_drafts *d, size_t row)
{
    for (size_t r = 0; r < d->count; r++) {
        d->order[r] = r;
    }
    d->order[row] = d->count;
    (void)!kvern_state_keep(d->state, d->order, d->count); // takes no memory; the rows are there
}

// The empty row continues as much of another one as both have in common, or none of it.
static size_t take_over(model_drafts *d, size_t row, const draft_sequence *q)
{
    kvern_state *copy;
    if (q->like == DRAFT_NO_ROW) {
        return 0;
    }
    const size_t count = smaller(q->shared, d->rows[q->like].kept);
    if (count == 0 || (int64_t)count < kvern_state_min_reusable(d->state, q->like) ||
        kvern_state_extract(d->state, q->like, &copy) != KVERN_OK) {
        return 0;
    }
    const int64_t surplus = kvern_state_length(copy, 0) - (int64_t)count;
    const bool joined = kvern_state_trim(copy, 0, surplus) == KVERN_OK &&
                        kvern_state_join(d->state, &copy, 1) == KVERN_OK;
    if (joined) {
        replace_row(d, row);
    }
    kvern_state_destroy(copy);
    return joined ? count : 0;
}

static void end(drafts *base, size_t row)
{
    model_drafts *d = (model_drafts *)base;
    draft_row *r = &d->rows[row];
    (void)!kvern_state_reset(d->state, row); // no step is open, and the row exists
    r->kept = r->proposed = 0;
    r->pace = (draft_pace){.rate = {FIRST_RATE}};
}

static kvern_status reserve(model_drafts *d, size_t row, size_t tokens, engine_error *error)
{
    // It may have to catch up on many tokens at any time.
    kvern_plan plan = kvern_plan_default();
    plan.tokens = (int64_t)tokens;
    plan.chunk = (int64_t)d->most_tokens;
    plan.query_vectors = model_get_facts(d->model)->heads * d->most_tokens;
    const kvern_status status = kvern_state_reserve_plan(d->state, row, &plan);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "making room for drafts");
}

static kvern_status begin(drafts *base, size_t row, const draft_sequence *sequence,
                          engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    end(base, row);
    const size_t shared = take_over(d, row, sequence);
    const kvern_status status = reserve(d, row, smaller(sequence->room, d->context_length), error);
    if (status != KVERN_OK) {
        end(base, row);
        return status;
    }
    d->rows[row].kept = shared;
    return KVERN_OK;
}

static uint64_t row_bytes(const drafts *base, size_t length)
{
    const model_drafts *d = (const model_drafts *)base;
    return kvern_composition_row_bytes(kvern_state_composition(d->state),
                                       smaller(length, d->context_length));
}

// ---- Reading ----

// Whatever became of earlier proposals, these rows hold tokens of their sequences and no guesses.
static kvern_status cut_rows(model_drafts *d, engine_error *error)
{
    kvern_status status = KVERN_OK;
    for (size_t r = 0; status == KVERN_OK && r < d->count; r++) {
        status = d->rows[r].request ? cut(d, r, d->rows[r].kept, error) : KVERN_OK;
    }
    return status;
}

// Remembers the requests of rows whose sequences it can hold.
static void take_requests(model_drafts *d, draft_request *requests, size_t count)
{
    for (size_t r = 0; r < d->count; r++) {
        d->rows[r].request = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (requests[i].count <= d->context_length) {
            d->rows[requests[i].row].request = &requests[i];
        }
    }
}

// Tokens of a row's sequence that the model has not seen.
static size_t unseen(const model_drafts *d, size_t row)
{
    const draft_request *q = d->rows[row].request;
    return q && q->count > length_of(d, row) ? q->count - length_of(d, row) : 0;
}

// Counts the tokens of the next pass over what rows have not seen: true when nothing is left then.
static bool plan_reading(model_drafts *d)
{
    size_t left = d->most_tokens;
    bool last = true;
    for (size_t r = 0; r < d->count; r++) {
        const uint64_t most = (uint64_t)kvern_state_max_append(d->state, r);
        const size_t wanted = unseen(d, r), room = smaller(wanted, left);
        const size_t count = room < most ? room : (size_t)most;
        d->counts[r] = (int64_t)count;
        left -= count;
        last &= count == wanted;
    }
    return last;
}

// Logits of all rows come from one pass: the last token of each waits for it.
static void hold_back(model_drafts *d)
{
    for (size_t r = 0; r < d->count; r++) {
        d->counts[r] -= d->counts[r] > 0 && (size_t)d->counts[r] == unseen(d, r);
    }
}

// Forwards what rows have not seen of their sequences; with the logits of the last tokens when
// `wanted`.
static kvern_status catch_up(model_drafts *d, bool wanted, engine_error *error)
{
    kvern_status status = KVERN_OK;
    bool last = false, some;
    do {
        last = plan_reading(d);
        if (wanted && !last) {
            hold_back(d);
        }
        some = false;
        for (size_t r = 0; r < d->count; r++) {
            d->logits_counts[r] = wanted && last && d->counts[r] > 0;
            some |= d->counts[r] > 0;
        }
        status = some ? forward(d, error) : KVERN_OK;
        for (size_t r = 0; status == KVERN_OK && r < d->count; r++) {
            d->rows[r].kept += (size_t)d->counts[r];
        }
    } while (status == KVERN_OK && !last);
    return status;
}

static kvern_status read_tokens(drafts *base, draft_request *requests, size_t count,
                                engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    take_requests(d, requests, count);
    kvern_status status = cut_rows(d, error);
    if (status == KVERN_OK) {
        status = catch_up(d, false, error);
    }
    return lacks_memory(status) ? KVERN_OK : status;
}

// ---- Proposing ----

// Chooses how many tokens each row is to draft; rows without any are left alone.
static void choose_counts(model_drafts *d)
{
    for (size_t i = 0; i < d->count; i++) {
        draft_row *r = &d->rows[i];
        if (!r->request) {
            continue;
        }
        const size_t rest = d->context_length - r->request->count;
        r->pace.cost = r->request->cost + d->cost;
        r->most = draft_pace_choose(&r->pace, 0, smaller(r->request->most, rest + 1));
        if (r->most == 0 && d->count == 1) {
            r->most = 1;
        }
        if (r->most == 0) {
            r->request = NULL;
        }
    }
}

static void begin_proposals(model_drafts *d)
{
    for (size_t i = 0; i < d->count; i++) {
        draft_row *r = &d->rows[i];
        if (r->request) {
            r->most = smaller(r->most, drafts_trial(d->state, i) + 1);
            sampler_follow(r->sampler, r->request->sampler);
        }
    }
}

// Guesses a token of each row that the last pass gave logits of. True: some go on, and d->counts
// says which. Logits that nothing can be guessed from end a row's proposal.
static bool guess(model_drafts *d)
{
    const float *logits = d->logits;
    bool some = false;
    for (size_t i = 0; i < d->count; i++) {
        draft_request *q = d->rows[i].request;
        const bool known = d->logits_counts[i] > 0;
        d->counts[i] = d->logits_counts[i] = 0;
        if (!known) {
            continue;
        }
        const sampled_sequence sequence = {q->tokens, q->count, q->out, q->proposed};
        const kvern_status status =
            sampler_next(d->rows[i].sampler, logits, &sequence, &q->out[q->proposed], NULL);
        q->proposed += status == KVERN_OK;
        d->counts[i] = d->logits_counts[i] = status == KVERN_OK && q->proposed < d->rows[i].most;
        some |= d->counts[i] > 0;
        logits += model_get_facts(d->model)->vocabulary;
    }
    return some;
}

static kvern_status draft_tokens(model_drafts *d, engine_error *error)
{
    kvern_status status = catch_up(d, true, error);
    if (status == KVERN_OK) {
        begin_proposals(d);
    }
    while (status == KVERN_OK && guess(d)) {
        status = forward(d, error);
    }
    return lacks_memory(status) ? KVERN_OK : status;
}

static kvern_status propose(drafts *base, draft_request *requests, size_t count,
                            engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    take_requests(d, requests, count);
    choose_counts(d);
    kvern_status status = cut_rows(d, error);
    if (status == KVERN_OK) {
        status = draft_tokens(d, error);
    }
    for (size_t i = 0; i < count; i++) {
        d->rows[requests[i].row].proposed = requests[i].proposed;
    }
    return status;
}

// The row holds all of its proposal but the last token.
static kvern_status accept(drafts *base, size_t row, size_t accepted, engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    draft_row *r = &d->rows[row];
    draft_pace_learn(&r->pace, 0, r->proposed, accepted);
    r->proposed = 0;
    r->kept = smaller(r->kept + accepted, length_of(d, row));
    return cut(d, row, r->kept, error);
}

static kvern_status trim(drafts *base, size_t row, size_t length, engine_error *error)
{
    model_drafts *d = (model_drafts *)base;
    return cut(d, row, smaller(length, d->rows[row].kept), error);
}

// ---- Life ----

static void destroy(drafts *base)
{
    model_drafts *d = (model_drafts *)base;
    kvern_state_destroy(d->state);
    model_workspace_destroy(d->workspace);
    for (size_t r = 0; d->rows && r < d->count; r++) {
        sampler_destroy(d->rows[r].sampler);
    }
    free(d->rows);
    free(d->tokens);
    free(d->counts);
    free(d->logits_counts);
    free(d->logits);
    free(d->order);
    free(d);
}

static const drafts_kind MODEL = {.begin = begin,
                                  .end = end,
                                  .read = read_tokens,
                                  .propose = propose,
                                  .accept = accept,
                                  .trim = trim,
                                  .row_bytes = row_bytes,
                                  .destroy = destroy};

static kvern_status make_arrays(model_drafts *d, engine_error *error)
{
    d->rows = calloc(d->count, sizeof *d->rows);
    d->tokens = calloc(d->most_tokens, sizeof *d->tokens);
    d->counts = calloc(d->count, sizeof *d->counts);
    d->logits_counts = calloc(d->count, sizeof *d->logits_counts);
    d->order = calloc(d->count, sizeof *d->order);
    d->logits = calloc(d->count, model_get_facts(d->model)->vocabulary * sizeof *d->logits);
    if (!d->rows || !d->tokens || !d->counts || !d->logits_counts || !d->order || !d->logits) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for drafts of %zu rows", d->count);
    }
    return KVERN_OK;
}

static kvern_status make_rows(model_drafts *d, kvern_composition *composition, engine_error *error)
{
    const sampler_options options = sampler_default_options();
    kvern_status status = kvern_state_create(composition, d->count, &d->state);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, "making the draft model's KV cache");
    }
    for (size_t r = 0; status == KVERN_OK && r < d->count; r++) {
        status = sampler_create(&options, d->shared, &d->rows[r].sampler, error);
        end(&d->base, r);
    }
    return status;
}

static kvern_status prepare(model_drafts *d, kvern_composition *composition, engine_error *error)
{
    kvern_status status = make_arrays(d, error);
    if (status == KVERN_OK) {
        status = model_workspace_create(d->model, d->most_tokens, d->count, &d->workspace, error);
    }
    return status == KVERN_OK ? make_rows(d, composition, error) : status;
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
    d->shared = smaller(model_get_facts(draft)->vocabulary, model_get_facts(model)->vocabulary);
    d->count = options->rows ? options->rows : 1;
    d->most_tokens = d->count > CHUNK ? d->count : CHUNK;
    d->context_length = options->context_length ? smaller(options->context_length, most) : most;
    // What a draft costs beside its place in the pass that checks it. One pass of the draft model
    // serves all rows, and all of them wait for it.
    d->cost = options->cost > 0 ? options->cost : weights;
    status = prepare(d, composition, error);
    if (status != KVERN_OK) {
        destroy(&d->base);
        return status;
    }
    *out = &d->base;
    return KVERN_OK;
}
