// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_SERVED_MODEL_H
#define KVERN_CLI_SERVED_MODEL_H

// What a scheduler of many sequences is made of: a model, its template, drafts, and the cache of
// prompts. For `kvern batch` and `kvern serve`.

#include "cli/session/prefix_cache.h"
#include "cli/session/session.h"

#include "engine/generation/schedule.h"

typedef struct served_model {
    loaded_model loaded;
    loaded_model draft;  // all zero: none
    chat_template *chat; // NULL: text is used as it is
    prefix_cache cache;
    char name[128]; // of the model's file, without folders and ".gguf"
} served_model;

// Loads all of it. *out must stay where it is. On failure *out is all zero and *error says why.
KVERN_CHECK kvern_status served_model_open(const session_options *options, served_model *out,
                                           engine_error *error);

// All zero is permitted.
void served_model_close(served_model *m);

// What schedule_create takes for `rows` sequences at once.
schedule_options served_model_schedule(const served_model *m, const session_options *options,
                                       size_t rows);

#endif
