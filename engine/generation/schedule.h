// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SCHEDULE_H
#define KVERN_ENGINE_SCHEDULE_H

// Many generations at once: a scheduler of requests over one kvern_state, whose rows come and go.
//
//   schedule_create(model, composition, &options, &s, error)
//   schedule_submit(s, &request, &id, error)        as often as wanted, at any time
//   while (schedule_step(s)) ...                    callbacks tell what happens
//   schedule_destroy(s)
//
// A step is one forward pass. Every sequence that generates receives its newest token; sequences
// that are still in their prompt share a chunk of prompt tokens beside that, evenly, so that a
// short prompt does not wait for a long one. A sequence that ends leaves at once, and the next
// request takes its place.
//
// A conversation is a kept sequence: requests name it, and each continues where the one before it
// ended, so that nothing of it is forwarded twice. engine/generation/generate.h is a scheduler of
// one row that keeps its sequence.
//
// Stores (kvern/store.h, kvern/disk_store.h) have the rows of prompts and answers that ended: a
// prompt that begins as one of them takes that from there. The one in memory gives entries up where
// a request needs their room. With a store that machines share (kvern/remote_store.h) a request
// waits in the queue while its beginning is fetched, for as long as that store allows, and those
// behind it may pass.
//
// Drafts: with `draft_tokens`, steps without prompts check guesses at the next tokens of sequences
// that repeat themselves (engine/speculation/draft_ngram.h), or those of a smaller model
// (engine/speculation/draft_model.h): the newest token and the guesses are forwarded together, and
// each next token is sampled from the logits that it would have been sampled from without. More
// rows make a token dearer, so that fewer guesses pay. A draft model has a row for every sequence,
// which reads its prompt along; a sequence whose drafts lack memory goes on without them.
//
// Same bits: an answer is that of the same request alone, with the same chunk size, bit for bit:
// whatever runs beside it, arrives, leaves, is cancelled or fails.
//
// Memory is settled before a request runs. It is admitted, first in first out, when the bytes of
// its row at its final length (the prompt and max_tokens, at most the context) fit the context's
// budget next to all that the admitted rows may still take; then its room is reserved, so that no
// step fails for want of budget. The row of a draft model is admitted with it, unless the two could
// not be there even alone: then it goes without drafts. What the scheduler does not see may not
// take from the budget meanwhile: it wants a context with a budget for itself.
//
// A scheduler has no thread of its own and belongs to one thread at a time. Several may share a
// model.

#include "engine/model/model.h"
#include "engine/sampling/answer.h"
#include "engine/sampling/sampler.h"
#include "engine/speculation/draft.h"

#include <kvern/disk_store.h>
#include <kvern/remote_store.h>

typedef struct schedule schedule;

// Zero stands for the default of a field.
typedef struct schedule_options {
    size_t context_length; // most positions of a sequence; default: what the model was made for
    size_t chunk;          // most prompt tokens of one step; default: SCHEDULE_CHUNK
    size_t most_rows;      // sequences that run at once; default: SCHEDULE_ROWS
    size_t most_kept;      // sequences that may be kept between requests; default: none
    size_t draft_tokens;   // most drafts of a sequence in a step; default: no drafts
    // Whose drafts they are: `drafts`, with as many rows as there are sequences, running and kept;
    // or a smaller model; both NULL: n-grams of the sequence. Borrowed until schedule_destroy.
    drafts *drafts;
    const model *draft;
    kvern_composition *draft_composition; // of its KV cache
    float draft_cost; // time of its pass in parts of the model's; default: as their weights are
    // Where rows are kept that ended, in memory, on disk and at a server that machines share, and
    // what they are kept under: the model and whatever else they follow from. Of the model's
    // context. Borrowed until schedule_destroy. NULL: not there.
    kvern_store *store;
    kvern_disk_store *disk;
    kvern_remote_store *remote;
    kvern_store_key store_key;
} schedule_options;

#define SCHEDULE_CHUNK 128
// Of the beginning of another prompt: fewer tokens are not worth the tables.
#define SCHEDULE_LEAST_SHARED 16
// What the store that machines share must have more than the others, to be worth the way.
#define SCHEDULE_LEAST_FETCHED 64
#define SCHEDULE_ROWS 8

// Makes a scheduler without requests. `composition` is of the model's geometry
// (model_composition). Borrows the model until schedule_destroy and keeps a reference to the
// composition. `options` may be NULL. On failure *out is NULL. Errors: KVERN_ERR_RANGE (a context
// length beyond the model's, more rows and kept sequences than KVERN_MAX_ROWS, more drafts than the
// context has tokens), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET, those of
// draft_model_check, KVERN_ERR_ARGUMENT (a draft model of another context than the model's).
KVERN_CHECK kvern_status schedule_create(const model *model, kvern_composition *composition,
                                         const schedule_options *options, schedule **out,
                                         engine_error *error);

// Ends all requests as cancelled (their on_end is called), and the scheduler. Not to be called from
// a callback. NULL is allowed.
void schedule_destroy(schedule *s);

// A sequence that stays between requests: its tokens, and its row of the state.
typedef struct kept_sequence kept_sequence;

// Makes an empty one. It belongs to the scheduler and ends with it at the latest. On failure *out
// is NULL. Errors: KVERN_ERR_RANGE (schedule_options.most_kept are there), KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status schedule_keep(schedule *s, kept_sequence **out, engine_error *error);

// Ends a kept sequence, or empties it. KVERN_ERR_BUSY while a request of it is queued or runs.
KVERN_CHECK kvern_status schedule_drop_kept(kept_sequence *k, engine_error *error);
KVERN_CHECK kvern_status schedule_reset_kept(kept_sequence *k, engine_error *error);

// Cuts a kept sequence back to where it differs from `tokens`, or as far before that as it has to
// be: then it is as if no more than these had been forwarded, bit for bit. *left is how many of
// `tokens` it has, always less than `count`, so that the next request has the rest. Attention
// goes back to any position that its window has not passed; recurrent layers to a checkpoint
// (kvern/checkpoint.h), which is made SCHEDULE_TAIL tokens before the end of each prompt, or where
// the prompt begins that has no more. Where there is none *left is 0. On failure nothing changed.
// Errors: KVERN_ERR_BUSY (a request of it is queued or runs), KVERN_ERR_ARGUMENT (no tokens).
KVERN_CHECK kvern_status schedule_rewind_kept(kept_sequence *k, const int32_t *tokens, size_t count,
                                              size_t *left, engine_error *error);

// A kept sequence becomes the only row of a state, which was computed elsewhere, with its tokens,
// one for each position: as if they had been forwarded here. On success the row has moved, and
// *state has none. On failure nothing changed. Errors: KVERN_ERR_BUSY (a request of it is queued or
// runs; as many other requests run as can), KVERN_ERR_RANGE (as many positions as the context has,
// or more; another number of tokens; a
// token outside the vocabulary), those of kvern_state_join (another context, other layers).
KVERN_CHECK kvern_status schedule_adopt_kept(kept_sequence *k, kvern_state *state,
                                             const int32_t *tokens, size_t count,
                                             engine_error *error);

// The end of a prompt that the next one may have otherwise: a template's beginning of an answer.
#define SCHEDULE_TAIL 16

// Between requests: positions of the sequence that are forwarded; whether its newest token, which
// was sampled, waits to be forwarded by the next request.
int64_t kept_sequence_length(const kept_sequence *k);
bool kept_sequence_pending(const kept_sequence *k);

// How a request ended.
typedef struct schedule_result {
    uint64_t id;
    kvern_status status;     // KVERN_OK, or why it failed
    const char *error;       // one sentence about a failure, "" otherwise; valid during on_end
    generate_reason reason;  // of an end without failure
    bool prompt_whole;       // all of its prompt was forwarded
    size_t prompt_tokens;    // of its sequence, up to where its answer begins, as far as it came
    size_t shared_tokens;    // of these, that were there before: of a sequence with the same
                             // beginning, or of the kept one
    size_t stored_tokens;    // of these, that a store had
    bool from_disk;          // the one on disk
    bool from_remote;        // the one that machines share
    const char *why;         // why it had no more, a static string; NULL: none was asked
    size_t generated_tokens; // sampled, the one that ended the turn excluded
    size_t decode_steps;     // its forward passes behind the prompt's
    size_t decode_tokens;    // sampled from these, one that ended the turn included
    draft_counts drafts;
    double queue_seconds;  // from schedule_submit to its first forward pass
    double prompt_seconds; // from there to its first token
    double decode_seconds; // from there to its end
} schedule_result;

// A request. Tokens, options and stop strings are copied; biases of the options are borrowed until
// on_end. Callbacks run on the thread of schedule_step and may be NULL; they may submit and cancel,
// but not step. One that returns something other than KVERN_OK ends its request with that status;
// the others go on.
typedef struct schedule_request {
    const int32_t *tokens; // of the prompt: 1 or more; or 0 behind a kept sequence whose newest
    size_t count;          // token waits
    int64_t max_tokens;    // most tokens to sample; -1: no limit; 0: the prompt is only forwarded
    sampler_options sampling;
    const char *const *stops;
    size_t stop_count;
    // The sequence that it continues; NULL: none. Afterwards that is the prompt and the sampled
    // tokens, those that completed a stop string included, the one that ended the turn not. A
    // request that ends before its prompt is forwarded leaves it as it was; one that ends later
    // keeps what was generated. One request at a time.
    kept_sequence *kept;
    // How it samples and what stops it, instead of `sampling` and `stops`, for callers that go on
    // with the same random numbers; NULL: as those say. Borrowed until on_end. The matcher is reset
    // when the request is submitted.
    sampler *sampler;
    stop_matcher *stop;
    // NULL: none. Looked at before every forward pass; any thread may set it. Borrowed until
    // on_end.
    const atomic_bool *cancel;

    void *user;
    // After every step that had tokens of its prompt: `done` of `total` new ones are forwarded.
    void (*on_prompt)(void *user, size_t done, size_t total);
    // Every token that is sampled, the one that ends the turn included, with the logits that it was
    // sampled from: [vocabulary], valid during the call.
    kvern_status (*on_token)(void *user, int32_t token, const float *logits);
    // Text to show: whole UTF-8 characters, without anything that stop strings hide.
    kvern_status (*on_text)(void *user, const char *text, size_t bytes);
    // The end, once for every request that was submitted. Its row has left by then.
    void (*on_end)(void *user, const schedule_result *result);
} schedule_request;

// Queues a request; *id names it. On failure nothing is queued and no callback is called. Errors:
// KVERN_ERR_ARGUMENT (no tokens, an empty stop string, those of sampler_create), KVERN_ERR_RANGE (a
// token outside the vocabulary, a prompt longer than the context or what the kept sequence leaves
// of it), KVERN_ERR_BUSY (another request of the kept sequence), KVERN_ERR_BUDGET (its row alone
// takes more than the budget leaves), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status schedule_submit(schedule *s, const schedule_request *request, uint64_t *id,
                                         engine_error *error);

// Has a request end as cancelled in the next step, before its forward pass. False when no such
// request is queued or runs.
bool schedule_cancel(schedule *s, uint64_t id);

// One step. False when no request is left. What fails is a request, never the scheduler: a failing
// forward pass ends the requests that had tokens in it, each with its error. Within a callback it
// does nothing and returns true.
bool schedule_step(schedule *s);

// Sums since the beginning, and what is now.
typedef struct schedule_statistics {
    size_t queued, running;   // requests now
    size_t finished;          // that came to an end of their own
    size_t cancelled, failed; // the others
    uint64_t steps;           // forward passes
    uint64_t row_steps;       // sequences that had tokens in them, over all steps
    size_t peak_rows;         // the most of them in one
    uint64_t prompt_tokens;   // forwarded
    uint64_t shared_tokens;   // of prompts, that did not have to be
    uint64_t stored_tokens;   // of these, that a store had
    uint64_t generated_tokens;
    uint64_t drafted;       // tokens that were checked
    uint64_t accepted;      // of these, tokens of answers
    double seconds;         // in schedule_step
    double queue_seconds;   // of all requests
    uint64_t peak_kv_bytes; // most bytes of the pages of all running rows, room not counted
} schedule_statistics;

schedule_statistics schedule_get_statistics(const schedule *s);

// The state with the running and the kept sequences, for looking only.
const kvern_state *schedule_state(const schedule *s);

// A row of that state, between two steps.
typedef struct schedule_row {
    uint64_t id;             // of the request that runs in it; 0: a kept sequence, none runs
    int64_t length;          // positions that are there
    size_t final_length;     // positions that it is admitted for; of a kept sequence: its length
    size_t prompt_tokens;    // of the request's sequence, up to where its answer begins
    size_t forwarded;        // of these, that are there
    size_t generated_tokens; // sampled so far
    size_t shared_tokens;    // as in schedule_result, and the others likewise
    size_t stored_tokens;
    bool from_disk;
    bool from_remote;
    const char *why;
} schedule_row;

// Writes what row `row` of the state is to *out. False: there is no such row, or nothing is in it.
bool schedule_get_row(const schedule *s, size_t row, schedule_row *out);

#endif
