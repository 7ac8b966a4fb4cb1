// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_MODEL_LOADING_H
#define KVERN_CLI_MODEL_LOADING_H

// Opening a model for a command: the file, its facts, and for commands that compute also weights.

#include "cli/options/options.h"

#include "engine/model/model.h"

typedef struct loaded_model {
    kvern_context *context;         // NULL: it is another's
    kvern_composition *composition; // of the KV cache
    model *model;
    size_t context_length; // that the command may use
} loaded_model;

// Opens the file that `options` names and loads its weights, with a progress bar. What cannot work
// is refused before the weights are touched: a --ctx beyond the model's, or one whose KV cache does
// not fit the budget. Without --ctx the context is the model's, or as much of it as the budget
// holds. On failure *loaded is all zero and *error names the file or option.
KVERN_CHECK kvern_status load_model(const cli_options *options, loaded_model *loaded,
                                    engine_error *error);

// The same in a context of the caller's, which stays the caller's.
KVERN_CHECK kvern_status load_model_in(const cli_options *options, kvern_context *context,
                                       loaded_model *loaded, engine_error *error);

// Releases everything; all zero is permitted.
void unload_model(loaded_model *loaded);

// The context that `options` ask for: budget and threads.
KVERN_CHECK kvern_status load_context(const cli_options *options, kvern_context **out,
                                      engine_error *error);

// Puts the model's file name before a message that begins neither with it nor with that of a
// --kv-config.
kvern_status load_name_file(const cli_options *options, kvern_status status, engine_error *error);

#endif
