// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_H
#define KVERN_ENGINE_DRAFT_H

// Drafts: guesses at the next tokens of sequences, which the model checks many at a time: one
// as many as can pay, in engine/generation/schedule.h. What is guessed
// changes the speed and never the text: logits do not depend on how tokens were cut into steps, and
// the sampler draws the same random numbers in the same order (docs/engine.md, "Speculation").
//
// Kinds: draft_ngram.h looks for an earlier place in the sequence that looks like its end;
// draft_model.h asks a smaller model. A kind of one's own is a struct that begins with `drafts`.
//
// Drafts have rows, a sequence in each, all of them empty at first. The calls of one row: read (as
// often as wanted), propose, and after a proposal of one token or more accept; then from the
// beginning. trim may come before any read or propose. A sequence is handed in whole every time;
// tokens that were handed in once stay what they were until a trim or the row's end.

#include "engine/sampling/sampler.h"

#include <kvern/kvern.h>

typedef struct drafts drafts;

// No row.
#define DRAFT_NO_ROW SIZE_MAX

// A sequence that is to be read, or continued. For a read, row, tokens and count suffice.
typedef struct draft_request {
    size_t row;
    const int32_t *tokens;  // the sequence
    size_t count;           // at least 1. To be continued: its last token has not been read
    size_t most;            // most tokens to propose; at least 1
    const sampler *sampler; // as it is when it will choose the first token that is guessed here
    float cost;   // what one more token costs the pass that checks, in parts of one without drafts
    int32_t *out; // [most] the proposal
    size_t proposed; // its tokens: 0 to most
} draft_request;

// A sequence that begins.
typedef struct draft_sequence {
    size_t length; // most tokens that there can be
    size_t room;   // tokens that memory is wanted for at once; the rest is taken as it is needed
    size_t like;   // the row of a sequence that begins as this one does; DRAFT_NO_ROW: none
    size_t shared; // tokens that the two have in common
} draft_sequence;

// What drafts came to.
typedef struct draft_counts {
    size_t rounds;   // passes that checked drafts
    size_t drafted;  // tokens
    size_t accepted; // of these, tokens that are part of the sequence now
} draft_counts;

typedef struct drafts_kind {
    kvern_status (*begin)(drafts *d, size_t row, const draft_sequence *sequence,
                          engine_error *error);
    void (*end)(drafts *d, size_t row);
    kvern_status (*read)(drafts *d, draft_request *requests, size_t count, engine_error *error);
    kvern_status (*propose)(drafts *d, draft_request *requests, size_t count, engine_error *error);
    kvern_status (*accept)(drafts *d, size_t row, size_t accepted, engine_error *error);
    kvern_status (*trim)(drafts *d, size_t row, size_t length, engine_error *error);
    uint64_t (*row_bytes)(const drafts *d, size_t length);
    void (*destroy)(drafts *d);
} drafts_kind;

struct drafts {
    const drafts_kind *kind;
};

// Begins another sequence in a row. On failure the row is empty. Errors: KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status drafts_begin(drafts *d, size_t row, const draft_sequence *sequence,
                                      engine_error *error);

// Ends a row's sequence, in the middle of a proposal too: the row is empty, its memory is given
// back, and how good its drafts were is forgotten.
void drafts_end(drafts *d, size_t row);

// Takes in the first tokens of `count` sequences, of different rows: those of prompts for example.
// Without it the next proposal does this work. A lack of memory is no failure.
KVERN_CHECK kvern_status drafts_read(drafts *d, draft_request *requests, size_t count,
                                     engine_error *error);

// Proposes tokens for `count` sequences, of different rows. A lack of memory is no failure, nor is
// a row whose next token cannot be guessed: it makes proposals shorter. On failure all of them are
// empty.
KVERN_CHECK kvern_status drafts_propose(drafts *d, draft_request *requests, size_t count,
                                        engine_error *error);

// Ends a row's proposal: the first `accepted` of its tokens now follow in the sequence, the others
// do not.
KVERN_CHECK kvern_status drafts_accept(drafts *d, size_t row, size_t accepted, engine_error *error);

// Only the first `length` tokens of a row's sequence are left, at most.
KVERN_CHECK kvern_status drafts_trim(drafts *d, size_t row, size_t length, engine_error *error);

// Bytes of the context that a sequence of `length` tokens takes; 0 for kinds that take none of it.
uint64_t drafts_row_bytes(const drafts *d, size_t length);

// NULL is allowed.
void drafts_destroy(drafts *d);

// The most tokens, the newest one among them, that a row of a state may be given on trial now: what
// a round can take back (kvern_state_round_limit), short of the append that converts the row, which
// is done in a step that is not on trial: a lack of memory for it is noticed before a token is
// shown, and no round fails to end. 0: none.
size_t drafts_trial(const kvern_state *state, size_t row);

#endif
