// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_MODEL_H
#define KVERN_ENGINE_DRAFT_MODEL_H

// Drafts from a smaller model with the same vocabulary. It keeps sequences of its own beside the
// model's, takes back what was not accepted, and catches up on what it has not seen. A forward pass
// of the draft model is for all rows of a proposal together: one for each token that is drafted.
//
// It chooses its tokens as the model will: by the same options and with the same random numbers,
// so that two models that see a text alike choose alike, greedily or not.

#include "engine/model/model.h"
#include "engine/speculation/draft.h"

// Whether `draft` can make drafts for `model`: both know the same tokens, apart from those that the
// larger vocabulary has beyond the smaller one. KVERN_ERR_UNSUPPORTED names the first token that
// differs.
KVERN_CHECK kvern_status draft_model_check(const model *draft, const model *model,
                                           engine_error *error);

typedef struct draft_model_options {
    size_t rows;           // sequences at once; 0: one
    size_t context_length; // most positions: beyond it nothing is proposed; 0: what the draft model
                           // was made for
    float cost; // time of its pass, in parts of the model's of as many tokens; 0: as their weights
                // are
} draft_model_options;

// Drafts by `draft`, in a KV cache of `composition` (model_composition of the draft model), for
// `model`. With one row it proposes a token whenever there is room for one, for whoever gives a
// draft model wants it to be used; with more rows, as many as can be expected to pay. Borrows both
// models until drafts_destroy and keeps a reference to the composition. `options` may be NULL. On
// failure *out is NULL. Errors: those of draft_model_check; KVERN_ERR_RANGE (more rows than
// KVERN_MAX_ROWS), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status draft_model_create(const model *draft, kvern_composition *composition,
                                            const model *model, const draft_model_options *options,
                                            drafts **out, engine_error *error);

#endif
