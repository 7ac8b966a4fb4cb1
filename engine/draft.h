// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_H
#define KVERN_ENGINE_DRAFT_H

// Drafts: guesses at the next tokens of a sequence, which speculation (engine/speculate.h) lets the
// model check many at a time. What is guessed changes the speed and never the text.
//
// Kinds: draft_ngram.h looks for an earlier place in the sequence that looks like its end;
// draft_model.h asks a smaller model. A kind of one's own is a struct that begins with `drafts`.
//
// The calls of one sequence: read (as often as wanted), propose, and after a proposal of one token
// or more accept; then from the beginning. trim may come before any read or propose. The sequence
// is handed in whole every time; tokens that were handed in once stay what they were until a trim.

#include "engine/sampler.h"

typedef struct drafts drafts;

// What is to be continued.
typedef struct draft_request {
    const int32_t *tokens;  // the sequence; its last token has not been part of a read
    size_t count;           // at least 1
    size_t most;            // most tokens to propose; at least 1
    const sampler *sampler; // as it is when it will choose the first token that is guessed here
} draft_request;

typedef struct drafts_kind {
    kvern_status (*read)(drafts *d, const int32_t *tokens, size_t count, engine_error *error);
    kvern_status (*propose)(drafts *d, const draft_request *request, int32_t *out, size_t *count,
                            engine_error *error);
    kvern_status (*accept)(drafts *d, size_t accepted, engine_error *error);
    kvern_status (*trim)(drafts *d, size_t length, engine_error *error);
    void (*destroy)(drafts *d);
} drafts_kind;

struct drafts {
    const drafts_kind *kind;
};

// Takes in the first `count` tokens of the sequence, those of a prompt for example. Without it the
// next proposal does this work.
KVERN_CHECK kvern_status drafts_read(drafts *d, const int32_t *tokens, size_t count,
                                     engine_error *error);

// Proposes *count tokens, 0 to request->most, in out[]. A lack of memory is no failure: it makes
// the proposal shorter. On failure *count is 0.
KVERN_CHECK kvern_status drafts_propose(drafts *d, const draft_request *request, int32_t *out,
                                        size_t *count, engine_error *error);

// Ends a proposal: the first `accepted` of its tokens now follow in the sequence, the others do
// not.
KVERN_CHECK kvern_status drafts_accept(drafts *d, size_t accepted, engine_error *error);

// Only the first `length` tokens of the sequence are left, at most.
KVERN_CHECK kvern_status drafts_trim(drafts *d, size_t length, engine_error *error);

// NULL is allowed.
void drafts_destroy(drafts *d);

#endif
