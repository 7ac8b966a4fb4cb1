// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_DRAFT_OPTIONS_H
#define KVERN_CLI_DRAFT_OPTIONS_H

// Speculative decoding in commands: the options --draft and --draft-tokens (options_draft_argp of
// cli/options/options.h), and what they load.

#include "cli/session/model_loading.h"

#include "engine/speculation/draft.h"

typedef struct loaded_draft {
    loaded_model model; // all zero for n-grams
    drafts *drafts;     // NULL without --draft
} loaded_draft;

// Refuses what --draft names and no model can be made of, before the weights of anything are
// loaded.
KVERN_CHECK kvern_status check_draft(const cli_options *options, engine_error *error);

// Makes the drafts that the options ask for, for a model that they have loaded; without --draft
// nothing. A draft model works on the model's threads, with a KV cache in bf16 in what the model's
// leaves of the budget. On failure *draft is all zero and *error names the file.
KVERN_CHECK kvern_status load_draft(const cli_options *options, const loaded_model *loaded,
                                    loaded_draft *draft, engine_error *error);

// Loads the draft model of a command that schedules many sequences, whose drafts share the model's
// context: its threads, and its budget. All zero for n-grams and without --draft. Refuses what
// load_draft does. On failure *draft is all zero and *error names the file.
KVERN_CHECK kvern_status load_draft_beside(const cli_options *options, const loaded_model *loaded,
                                           loaded_model *draft, engine_error *error);

// All zero is permitted.
void unload_draft(loaded_draft *draft);

#endif
