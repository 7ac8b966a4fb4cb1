// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GENERATE_H
#define KVERN_ENGINE_GENERATE_H

// Generation for one sequence: a prompt is forwarded in chunks, then one token after the other is
// sampled and forwarded until something ends it. It is a scheduler (engine/generation/schedule.h)
// of one row, for callers that have one sequence and wait for it.
//
// A generator keeps its sequence between calls. A later call forwards only its own new tokens: a
// conversation never pays for its past again. The chunk size and drafts
// (engine/speculation/draft.h) change the speed and the memory, never a bit of the result.

#include "engine/generation/schedule.h"

typedef struct generator generator;

typedef struct generator_options {
    size_t context_length; // most positions of the sequence; 0: what the model was made for
    size_t chunk;          // most prompt tokens of one forward pass; 0: SCHEDULE_CHUNK
    drafts *drafts;        // of this generator alone; NULL: none
    size_t draft_tokens;   // most of them in one forward pass; 0: GENERATOR_DRAFT_TOKENS
    kvern_store *store;    // as in schedule_options: an empty sequence begins with what they have
    kvern_disk_store *disk;
    kvern_remote_store *remote;
    kvern_store_key store_key;
} generator_options;

#define GENERATOR_DRAFT_TOKENS 8

// Makes a generator with an empty sequence. `composition` is of the model's geometry
// (model_composition). Borrows the model and the drafts until generator_destroy and keeps a
// reference to the composition. `options` may be NULL. On failure *out is NULL. Errors:
// KVERN_ERR_RANGE (a context length beyond the model's), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status generator_create(const model *model, kvern_composition *composition,
                                          const generator_options *options, generator **out,
                                          engine_error *error);

// NULL is allowed.
void generator_destroy(generator *g);

// One generation. Everything is borrowed for the call; callbacks run on the calling thread and may
// be NULL. One that is given the generator may only look at it.
typedef struct generate_request {
    const int32_t *tokens; // the new tokens of the prompt: at least one, unless the sequence has a
    size_t count;          // sampled token that was not forwarded yet (generator_pending)
    int64_t max_tokens;    // most tokens to sample; -1: no limit; 0: the prompt is only forwarded
    sampler *sampler;      // of the model's vocabulary
    stop_matcher *stop;    // NULL: none. It is reset when the call begins.
    const atomic_bool *cancel; // NULL: none. Looked at before every forward pass.

    void *user;
    // After every chunk of the prompt: `done` of `total` tokens are forwarded.
    void (*on_prompt)(void *user, size_t done, size_t total);
    // Every token that is sampled, the one that ends the turn included.
    void (*on_token)(void *user, int32_t token);
    // Text to show: whole UTF-8 characters, without anything that stop strings hide.
    void (*on_text)(void *user, const char *text, size_t bytes);
} generate_request;

typedef struct generate_result {
    generate_reason reason;
    size_t prompt_tokens; // forwarded by this call before the first token was sampled
    size_t reused_tokens; // of its sequence, that were there before or that a store had
    bool from_disk;       // of these the store on disk had some
    bool from_remote;     // or the one that machines share
    const char *why;      // why a store had no more, a static string; NULL: none was asked
    double prompt_seconds;
    size_t generated_tokens; // sampled, the one that ended the turn excluded
    size_t decode_steps;     // forward passes behind the prompt's: of one token, and drafts
    size_t decode_tokens;    // sampled from these passes, one that ended the turn included
    double decode_seconds;   // of those passes, with the sampling and the drafting
    draft_counts drafts;
} generate_result;

// Runs one generation. *result is filled in as far as it came, on failure too.
//
// Afterwards the sequence is the prompt and the sampled tokens, those that completed a stop string
// included, the one that ended the turn not. A failure or a cancellation while the prompt is being
// forwarded leaves the sequence as it was before the call; later, it keeps what was generated.
// Under a budget there has to be room for the prompt and all of max_tokens, at most the context.
// Errors: KVERN_ERR_RANGE (a prompt longer than the rest of the context, a token outside the
// vocabulary), KVERN_ERR_ARGUMENT (no tokens), and those of model_forward and sampler_next.
KVERN_CHECK kvern_status generator_run(generator *g, const generate_request *request,
                                       generate_result *result, engine_error *error);

// Empties the sequence.
KVERN_CHECK kvern_status generator_reset(generator *g, engine_error *error);

// Cuts the sequence back to what it has of `tokens`, as far as it can go back to that; *left of
// them, less than `count`. See schedule_rewind_kept.
KVERN_CHECK kvern_status generator_rewind(generator *g, const int32_t *tokens, size_t count,
                                          size_t *left, engine_error *error);

// The sequence becomes one that was computed elsewhere: see schedule_adopt_kept.
KVERN_CHECK kvern_status generator_adopt(generator *g, kvern_state *state, const int32_t *tokens,
                                         size_t count, engine_error *error);

// Positions of the sequence that are forwarded; whether the newest sampled token waits to be
// forwarded by the next call.
int64_t generator_length(const generator *g);
bool generator_pending(const generator *g);

// The state with the sequence in row 0, for looking only, between calls.
const kvern_state *generator_state(const generator *g);

#endif
