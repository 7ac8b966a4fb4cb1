// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_NGRAM_H
#define KVERN_ENGINE_DRAFT_NGRAM_H

// Drafts from the sequence itself (prompt lookup): what followed the last time that the sequence
// went as it does now. They cost nothing to make, and are right where a text repeats itself or its
// prompt: code that is edited, passages that are quoted, lists.

#include "engine/speculation/draft.h"

// Drafts for `rows` sequences of up to `context_length` tokens. On failure *out is NULL. Errors:
// KVERN_ERR_RANGE, KVERN_ERR_MEMORY. Nothing else takes memory, and none of it is a context's.
KVERN_CHECK kvern_status draft_ngram_create(size_t rows, size_t context_length, drafts **out,
                                            engine_error *error);

#endif
