// SPDX-License-Identifier: MIT
#include "engine/speculation/draft_ngram.h"

#include "engine/speculation/draft_pace.h"
#include "engine/speculation/ngram_index.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct ngram_row {
    ngram_index *index;
    draft_pace pace;
    size_t kind;     // of the proposal that waits for its verdict
    size_t proposed; // its tokens
} ngram_row;

typedef struct ngram_drafts {
    drafts base;
    size_t count;
    ngram_row *rows; // [count]
} ngram_drafts;

// Matches of a similar length are as good as each other; the longer, the better. The rates are
// where each begins, and short ones begin where they hardly pay.
static const struct match_kind {
    size_t least; // tokens of the match
    float rate;
} MATCH_KINDS[DRAFT_PACE_KINDS] = {
    {NGRAM_LEAST, 0.25f}, {3, 0.4f}, {4, 0.6f}, {8, 0.8f}, {NGRAM_MOST, 0.9f}};

static size_t kind_of(size_t match)
{
    size_t kind = DRAFT_PACE_KINDS - 1;
    while (kind > 0 && match < MATCH_KINDS[kind].least) {
        kind--;
    }
    return kind;
}

static ngram_row *row_of(drafts *base, size_t row)
{
    return &((ngram_drafts *)base)->rows[row];
}

static void end(drafts *base, size_t row)
{
    ngram_row *r = row_of(base, row);
    ngram_index_trim(r->index, 0);
    r->pace = (draft_pace){0};
    for (size_t i = 0; i < DRAFT_PACE_KINDS; i++) {
        r->pace.rate[i] = MATCH_KINDS[i].rate;
    }
}

static kvern_status begin(drafts *base, size_t row, const draft_sequence *sequence,
                          engine_error *error)
{
    (void)sequence;
    (void)error;
    end(base, row);
    return KVERN_OK;
}

static kvern_status read_tokens(drafts *base, draft_request *requests, size_t count,
                                engine_error *error)
{
    (void)error;
    for (size_t i = 0; i < count; i++) {
        ngram_row *r = row_of(base, requests[i].row);
        ngram_index_extend(r->index, requests[i].tokens, requests[i].count);
    }
    return KVERN_OK;
}

// What followed the match; where the sequence ends, the draft itself goes on: a text that goes
// round in circles.
static void propose_row(ngram_row *r, draft_request *request)
{
    size_t next;
    const size_t match = ngram_index_find(r->index, request->tokens, request->count, &next);
    if (match == 0) {
        return;
    }
    r->kind = kind_of(match);
    r->pace.cost = request->cost;
    request->proposed = r->proposed = draft_pace_choose(&r->pace, r->kind, request->most);
    for (size_t i = 0; i < request->proposed; i++, next++) {
        const bool known = next < request->count;
        request->out[i] = known ? request->tokens[next] : request->out[next - request->count];
    }
}

static kvern_status propose(drafts *base, draft_request *requests, size_t count,
                            engine_error *error)
{
    (void)error;
    for (size_t i = 0; i < count; i++) {
        propose_row(row_of(base, requests[i].row), &requests[i]);
    }
    return KVERN_OK;
}

static kvern_status accept(drafts *base, size_t row, size_t accepted, engine_error *error)
{
    (void)error;
    ngram_row *r = row_of(base, row);
    draft_pace_learn(&r->pace, r->kind, r->proposed, accepted);
    return KVERN_OK;
}

static kvern_status trim(drafts *base, size_t row, size_t length, engine_error *error)
{
    (void)error;
    ngram_index_trim(row_of(base, row)->index, length);
    return KVERN_OK;
}

static uint64_t row_bytes(const drafts *base, size_t length)
{
    (void)base;
    (void)length;
    return 0;
}

static void destroy(drafts *base)
{
    ngram_drafts *d = (ngram_drafts *)base;
    for (size_t r = 0; d->rows && r < d->count; r++) {
        ngram_index_destroy(d->rows[r].index);
    }
    free(d->rows);
    free(d);
}

static const drafts_kind NGRAM = {.begin = begin,
                                  .end = end,
                                  .read = read_tokens,
                                  .propose = propose,
                                  .accept = accept,
                                  .trim = trim,
                                  .row_bytes = row_bytes,
                                  .destroy = destroy};

static kvern_status make_rows(ngram_drafts *d, size_t context_length, engine_error *error)
{
    kvern_status status = KVERN_OK;
    d->rows = calloc(d->count, sizeof *d->rows);
    if (!d->rows) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for drafts of %zu rows", d->count);
    }
    for (size_t r = 0; status == KVERN_OK && r < d->count; r++) {
        status = ngram_index_create(context_length, &d->rows[r].index, error);
    }
    for (size_t r = 0; status == KVERN_OK && r < d->count; r++) {
        end(&d->base, r);
    }
    return status;
}

kvern_status draft_ngram_create(size_t rows, size_t context_length, drafts **out,
                                engine_error *error)
{
    *out = NULL;
    ngram_drafts *d = calloc(1, sizeof *d);
    if (!d) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for drafts");
    }
    d->base.kind = &NGRAM;
    d->count = rows;
    const kvern_status status = make_rows(d, context_length, error);
    if (status != KVERN_OK) {
        destroy(&d->base);
        return status;
    }
    *out = &d->base;
    return KVERN_OK;
}
