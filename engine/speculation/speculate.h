// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SPECULATE_H
#define KVERN_ENGINE_SPECULATE_H

// Speculative decoding of one sequence: the newest token and drafts of what may follow are
// forwarded together, and the caller samples from the logits of each position as it would have
// without drafts. As long as it gets what was drafted, the next logits are there already; when it
// does not, the rest is taken back.
//
//   speculation_forward     newest token and drafts, in a round
//   sampler_next            from speculation_logits: token t
//   speculation_accept(t)   t was drafted: sample again
//   speculation_settle      t was not: the sequence ends before it
//
// The tokens are those that plain decoding gives, all of them and always: logits do not depend on
// how tokens were cut into steps, and the sampler draws the same random numbers in the same order
// (docs/engine.md, "Speculation").

#include "engine/model/model.h"
#include "engine/speculation/draft.h"

typedef struct speculation speculation;

// What drafts came to.
typedef struct speculation_counts {
    size_t rounds;   // passes that checked drafts
    size_t drafted;  // tokens
    size_t accepted; // of these, tokens that are part of the sequence now
} speculation_counts;

// Makes speculation with up to `most` drafts in a pass (at least 1), by row 0 of `drafts`. Borrows
// everything until speculation_destroy; the workspace has room for 1 + most tokens. On failure *out
// is NULL. Errors: KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status speculation_create(const model *model, model_workspace *workspace,
                                            drafts *drafts, size_t most, speculation **out,
                                            engine_error *error);

// NULL is allowed.
void speculation_destroy(speculation *s);

// Forwards the newest token of a sequence, whose other tokens are row 0 of `state`, and drafts
// behind it as far as `request` and the state allow; with none it is a plain decode. Of the
// request, tokens, count, most, which may be 0 here, and sampler are used. What was forwarded
// before must be settled. A lack of memory for drafts is met by a plain decode. On failure the
// state is as it was. Errors: those of model_forward and drafts_propose.
KVERN_CHECK kvern_status speculation_forward(speculation *s, kvern_state *state,
                                             const draft_request *request, engine_error *error);

// The logits of the newest token or accepted draft.
const float *speculation_logits(const speculation *s);

// Whether `token`, sampled from these logits, is the next draft: then it is accepted.
bool speculation_accept(speculation *s, int32_t token);

// Drafts that lie in the state and are not accepted.
size_t speculation_unsettled(const speculation *s);

// Takes back what is not accepted. Without a round nothing happens.
KVERN_CHECK kvern_status speculation_settle(speculation *s, kvern_state *state,
                                            engine_error *error);

// Sums of the rounds that were settled since the last call.
speculation_counts speculation_take_counts(speculation *s);

#endif
