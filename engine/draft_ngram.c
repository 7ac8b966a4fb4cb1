// SPDX-License-Identifier: MIT
#include "engine/draft_ngram.h"

#include "engine/draft_pace.h"
#include "engine/ngram_index.h"

#include <stdlib.h>

typedef struct ngram_drafts {
    drafts base;
    ngram_index *index;
    draft_pace pace;
    size_t kind;     // of the proposal that waits for its verdict
    size_t proposed; // its tokens
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

static kvern_status read_tokens(drafts *base, const int32_t *tokens, size_t count,
                                engine_error *error)
{
    (void)error;
    ngram_index_extend(((ngram_drafts *)base)->index, tokens, count);
    return KVERN_OK;
}

// What followed the match; where the sequence ends, the draft itself goes on: a text that goes
// round in circles.
static kvern_status propose(drafts *base, const draft_request *request, int32_t *out, size_t *count,
                            engine_error *error)
{
    (void)error;
    ngram_drafts *d = (ngram_drafts *)base;
    size_t next;
    const size_t match = ngram_index_find(d->index, request->tokens, request->count, &next);
    if (match == 0) {
        return KVERN_OK;
    }
    d->kind = kind_of(match);
    *count = d->proposed = draft_pace_choose(&d->pace, d->kind, request->most);
    for (size_t i = 0; i < *count; i++, next++) {
        out[i] = next < request->count ? request->tokens[next] : out[next - request->count];
    }
    return KVERN_OK;
}

static kvern_status accept(drafts *base, size_t accepted, engine_error *error)
{
    (void)error;
    ngram_drafts *d = (ngram_drafts *)base;
    draft_pace_learn(&d->pace, d->kind, d->proposed, accepted);
    return KVERN_OK;
}

static kvern_status trim(drafts *base, size_t length, engine_error *error)
{
    (void)error;
    ngram_index_trim(((ngram_drafts *)base)->index, length);
    return KVERN_OK;
}

static void destroy(drafts *base)
{
    ngram_index_destroy(((ngram_drafts *)base)->index);
    free(base);
}

static const drafts_kind NGRAM = {
    .read = read_tokens, .propose = propose, .accept = accept, .trim = trim, .destroy = destroy};

kvern_status draft_ngram_create(size_t context_length, drafts **out, engine_error *error)
{
    *out = NULL;
    ngram_drafts *d = calloc(1, sizeof *d);
    if (!d) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for drafts");
    }
    d->base.kind = &NGRAM;
    d->pace.cost = DRAFT_PACE_CHECK_COST;
    for (size_t i = 0; i < DRAFT_PACE_KINDS; i++) {
        d->pace.rate[i] = MATCH_KINDS[i].rate;
    }
    kvern_status status = ngram_index_create(context_length, &d->index, error);
    if (status != KVERN_OK) {
        free(d);
        return status;
    }
    *out = &d->base;
    return KVERN_OK;
}

void draft_ngram_set_cost(drafts *d, float cost)
{
    ((ngram_drafts *)d)->pace.cost = cost;
}
