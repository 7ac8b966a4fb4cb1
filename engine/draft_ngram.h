// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_NGRAM_H
#define KVERN_ENGINE_DRAFT_NGRAM_H

// Drafts from the sequence itself (prompt lookup): what followed the last time that the sequence
// went as it does now. They cost nothing to make, and are right where a text repeats itself or its
// prompt: code that is edited, passages that are quoted, lists.

#include "engine/draft.h"

// Drafts for sequences of up to `context_length` tokens. On failure *out is NULL. Errors:
// KVERN_ERR_RANGE, KVERN_ERR_MEMORY. Nothing else takes memory.
KVERN_CHECK kvern_status draft_ngram_create(size_t context_length, drafts **out,
                                            engine_error *error);

// Says what one more token costs in a pass that checks drafts, in parts of a pass without them; at
// first DRAFT_PACE_CHECK_COST. `d` is one of draft_ngram_create.
void draft_ngram_set_cost(drafts *d, float cost);

#endif
