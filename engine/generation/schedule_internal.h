// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SCHEDULE_INTERNAL_H
#define KVERN_ENGINE_SCHEDULE_INTERNAL_H

// What the files of the scheduler share: schedule.c (steps), schedule_sequence.c (one request from
// its submission to its end), schedule_kept.c (sequences that stay between requests),
// schedule_room.c (memory), schedule_prefix.c (prompts that begin alike), schedule_stored.c
// (prompts that begin as one that ended), schedule_fetched.c (those that did elsewhere),
// schedule_draft.c (drafts).

#include "engine/generation/schedule.h"

#define SCHEDULE_NO_ROW SIZE_MAX

// A request and what has become of it.
typedef struct schedule_sequence {
    struct schedule_sequence *next; // behind it in the queue
    schedule_request request;       // its tokens and stops are not used
    int32_t *tokens;                // [final_length] the prompt, and what was sampled
    size_t count;                   // of the prompt
    size_t known;                   // all of them
    size_t final_length;            // most tokens that there can be
    sampler *sampler;               // its own, or the request's
    stop_matcher *stop;             // likewise; NULL: none
    answer answer;
    engine_error error;
    schedule_result result;
    bool cancelled; // by schedule_cancel
    bool refused;   // a callback failed: no further one but on_end
    double *timed;  // which of the result's times runs
    double since;   // when

    // While it runs:
    size_t forwarded;          // tokens of the prompt
    size_t chunk_end;          // where the chunk ends that it is in, which it would have alone, too
    bool prompt_ended;         // in this step
    bool over;                 // it leaves at the end of the step
    size_t draft_row;          // its row of s->drafts; DRAFT_NO_ROW: it goes without drafts
    bool undrafted;            // it goes without for good: with them it could not run even alone
    size_t like;               // draft row of the sequence that it begins as; DRAFT_NO_ROW: none
    size_t drafted;            // tokens that the step checks
    size_t accepted;           // of these, in front
    kvern_remote_fetch *fetch; // of its beginning, until it is seated; NULL: none
    bool asked;                // whether the store that machines share has been
    size_t source; // the row that its beginning is from, until it is seated; SCHEDULE_NO_ROW: none
    size_t checkpoint; // where in its prompt its row is going to be kept as it is; 0: nowhere
} schedule_sequence;

// A row of its own holds it between requests. A prompt of several chunks that trimming could not
// take back is forwarded in another row, which shares its pages and takes its place when the prompt
// is through: until then there is something to go back to.
struct kept_sequence {
    schedule *schedule;
    size_t row;
    int32_t *tokens; // [context_length]
    size_t count;    // of them; one more than are forwarded while the newest waits
    size_t draft_row;
    bool busy; // a request of it is queued or runs
};

// What stores have of a request's beginning.
typedef struct schedule_hit {
    kvern_store_hit memory;
    kvern_disk_hit disk;
    kvern_remote_found remote;
} schedule_hit;

// What the rows of the state receive in a step.
typedef struct schedule_plan {
    size_t tokens;
    bool prompts; // there are prompt tokens in it
    bool drafts;  // there are drafts in it: a round
} schedule_plan;

struct schedule {
    const model *model;
    kvern_context *context;
    model_workspace *workspace;
    kvern_state *state;
    schedule_options options; // complete
    size_t capacity;          // rows of the state at most: running and kept sequences
    bool shares;              // rows may take over the beginning of others
    bool closing;             // no more requests
    bool stepping;            // a step runs
    uint64_t base_bytes;      // that the context held before any request, the store's left out
    uint64_t last_id;
    double next_look;                // at what others put on disk (schedule_stored_look_again)
    schedule_sequence *first, **end; // the queue
    // By row of the state, [capacity]. Without either a row is empty; with both, the request
    // continues the sequence in its own row.
    schedule_sequence **rows; // the request that runs in it; NULL: none
    kept_sequence **keeps;    // the sequence that is kept in it; NULL: none
    size_t kept_count;
    uint64_t checkpoint_bytes; // for checkpoints of kept sequences; 0: they need none
    schedule_plan plan;
    drafts *drafts; // [capacity] in an order of their own; NULL: none
    // Of a step:
    int32_t *tokens;         // of all rows
    int32_t *drafted;        // [capacity, draft_tokens]
    draft_request *requests; // [capacity]
    int64_t *counts;         // [capacity]
    int64_t *settled;        // [capacity] tokens that stay of a round
    int64_t *logits_counts;  // [capacity]
    size_t *order;           // [capacity]
    size_t logits_room;      // of these at once
    size_t *indices;         // [logits_room] their tokens in the step
    float *logits;           // [logits_room, vocabulary]
    schedule_statistics statistics;
};

// ---- schedule.c ----

// Sequences that have a row.
size_t schedule_running(const schedule *s);

// Takes the rows that nobody has out of the state. Should there be no memory for that, they stay
// empty, and are used again.
void schedule_compact(schedule *s);

// Makes a free row of the state, an empty one, or adds one.
KVERN_CHECK kvern_status schedule_free_row(schedule *s, size_t *row, engine_error *error);

// ---- schedule_kept.c ----

// Gives a request that continues a kept sequence its row, where that has been forwarded; an empty
// one becomes what the store has (hit NULL: nothing). On failure the sequence is as it was.
KVERN_CHECK kvern_status schedule_kept_seat(schedule *s, schedule_sequence *q, size_t *row,
                                            schedule_hit *hit, engine_error *error);

// Decides whether kept sequences have checkpoints, and in how many bytes.
KVERN_CHECK kvern_status schedule_kept_prepare(schedule *s, engine_error *error);

// Instead of another row, which has no room, a request takes the row of the sequence that it
// continues, if it can be taken back there: without a checkpoint. False: it cannot.
bool schedule_kept_stay(schedule *s, schedule_sequence *q, size_t *row);

// Before a step: keeps the row as it is, if this is where its sequence wants that.
void schedule_kept_checkpoint(schedule *s, size_t row);

// Gives up all checkpoints: there is other use for their memory. False: there are none.
bool schedule_kept_forget(schedule *s);

// The prompt of a request is forwarded: if it continues a kept sequence, there is no way back now,
// and what that was before is given up.
void schedule_kept_settle(schedule *s, schedule_sequence *q, size_t row);

// Such a request leaves its row: the kept sequence becomes what it came to, or stays what it was.
void schedule_kept_leave(schedule *s, schedule_sequence *q, size_t row);

// Frees it, whatever its state.
void schedule_kept_destroy(kept_sequence *k);

// ---- schedule_sequence.c ----

// Whether tokens are of the model, before anything runs: a forward pass would refuse the step, and
// with it all its rows. KVERN_ERR_RANGE.
KVERN_CHECK kvern_status schedule_check_tokens(const schedule *s, const int32_t *tokens,
                                               size_t count, engine_error *error);

KVERN_CHECK kvern_status schedule_sequence_create(const schedule *s,
                                                  const schedule_request *request,
                                                  schedule_sequence **out, engine_error *error);

// Takes what a sequence needs to run, before it is given a row. Nothing happens the second time.
KVERN_CHECK kvern_status schedule_sequence_seat(const schedule *s, schedule_sequence *q,
                                                engine_error *error);

// NULL is allowed. Tells nobody.
void schedule_sequence_destroy(schedule_sequence *q);

// Whether its request has been cancelled.
bool schedule_sequence_cancelled(const schedule_sequence *q);

// From now on another time of the result runs.
void schedule_sequence_time(schedule_sequence *q, double *timed);

// Tells its owner how far its prompt is forwarded.
void schedule_sequence_tell_prompt(const schedule_sequence *q);

// Samples from the logits behind its newest token, unless it is over without. q->over: it is.
void schedule_sequence_sample(schedule_sequence *q, const float *logits);

// Fails with an error that the caller has.
void schedule_sequence_fail(schedule_sequence *q, const engine_error *error);

// Shows what was held back, tells its owner, and frees it.
void schedule_sequence_end(schedule *s, schedule_sequence *q);

// ---- schedule_room.c ----

// KVERN_ERR_BUDGET when a row of this request could not exist even alone. When its drafts could not
// beside it, it goes without them.
KVERN_CHECK kvern_status schedule_room_check(const schedule *s, schedule_sequence *q,
                                             engine_error *error);

// Whether the row fits beside all others, as far as it is known before it is tried. What the store
// has makes room for it.
bool schedule_room_likely(schedule *s, const schedule_sequence *q);

// Reserves the room of a row that none of s->rows has yet, and of its drafts. On failure the row
// and the drafts may hold room.
KVERN_CHECK kvern_status schedule_room_take(schedule *s, size_t row, schedule_sequence *q,
                                            engine_error *error);

// Reserves the room of a row once more, which shares more pages than before.
KVERN_CHECK kvern_status schedule_room_renew(schedule *s, size_t row);

// The prompt of a row is forwarded: room for its chunks is given back.
void schedule_room_settle(schedule *s, size_t row);

// Bytes of the pages of all rows at their present lengths, room not counted.
uint64_t schedule_room_bytes(const schedule *s);

// ---- schedule_draft.c ----

// Makes the source of drafts that the options ask for.
KVERN_CHECK kvern_status schedule_draft_create(schedule *s, engine_error *error);

// Bytes that the drafts of a sequence take beside its row.
uint64_t schedule_draft_bytes(const schedule *s, const schedule_sequence *q);

// Gives a sequence a row of drafts with room for `room` tokens. On failure it has none.
KVERN_CHECK kvern_status schedule_draft_seat(schedule *s, schedule_sequence *q, size_t room,
                                             engine_error *error);

// Takes it away again, if it has one.
void schedule_draft_leave(schedule *s, schedule_sequence *q);

// After a step: drafts read what was forwarded of prompts.
void schedule_draft_read(schedule *s);

// Adds drafts to a step without prompts.
void schedule_draft_plan(schedule *s);

// Opens the round of a step with drafts. On failure nothing changed.
KVERN_CHECK kvern_status schedule_draft_begin(schedule *s, engine_error *error);

// The step failed: its round ends with nothing, and there are no drafts in it any more.
void schedule_draft_drop(schedule *s);

// The row's next draft was sampled, too: it is accepted.
bool schedule_draft_accept(schedule *s, size_t row);

// Ends the round of a step: what was accepted stays.
void schedule_draft_settle(schedule *s);

// ---- schedule_prefix.c ----

// Whether rows of this composition can be taken over at all.
bool schedule_prefix_possible(const kvern_composition *composition);

// The row that has most of the beginning; *count 0: none. All of what is common is there, unless
// more of it is coming.
size_t schedule_prefix_find(const schedule *s, const schedule_sequence *q, size_t *count);

// Whether it pays to wait: a row that is in its prompt will have more of this one's beginning.
bool schedule_prefix_coming(const schedule *s, const schedule_sequence *q);

// Adds a row behind the others that continues the first `count` tokens of row `row`; q->forwarded
// is set. False, and nothing changed: there is no memory.
bool schedule_prefix_take(schedule *s, schedule_sequence *q, size_t row, size_t count);

// ---- schedule_stored.c ----

// What other processes have written to disk meanwhile is found from now on; where none writes any
// more this one does. Does nothing where it would take more than a tenth of the time.
void schedule_stored_look_again(schedule *s);

// Tokens of a request's beginning that the store has; 0: none that are worth it. The hit is
// released in any case.
size_t schedule_stored_find(const schedule *s, schedule_sequence *q, schedule_hit *hit);
void schedule_stored_release(const schedule *s, schedule_hit *hit);

// An empty row becomes what was found; q->forwarded says how much that is. False, and nothing
// changed: there is no memory.
bool schedule_stored_take(schedule *s, schedule_sequence *q, size_t row, schedule_hit *hit);

// The prompt of a row is forwarded, or its request leaves it: the stores keep that. A prompt that
// its row serves to its end is published then for other machines alone.
void schedule_stored_prompt(schedule *s, size_t row);
void schedule_stored_end(schedule *s, const schedule_sequence *q, size_t row);

// The store gives up entries until so many bytes have come back, which are returned, or none is
// left.
uint64_t schedule_stored_forget(schedule *s, uint64_t bytes);

// Tokens of a request's beginning that the stores in memory and on disk have.
size_t schedule_stored_have(const schedule *s, const schedule_sequence *q);

// Bytes that the store holds.
uint64_t schedule_stored_bytes(const schedule *s);

// ---- schedule_fetched.c ----

// Begins to fetch for the first requests of the queue.
void schedule_fetched_ask(schedule *s);

// Whether its fetch has not come to its end.
bool schedule_fetched_coming(const schedule *s, const schedule_sequence *q);

// What was fetched, and an empty row that becomes it; its positions, or 0.
void schedule_fetched_find(const schedule *s, const schedule_sequence *q,
                           kvern_remote_found *found);
int64_t schedule_fetched_lend(schedule *s, schedule_sequence *q, size_t row,
                              const kvern_remote_found *found);

// Lets go of it.
void schedule_fetched_end(const schedule *s, schedule_sequence *q);

// Lets go of all, and of what waits to be written; how many there were.
uint64_t schedule_fetched_forget(schedule *s);

// Waits a little for a fetch, if any is on its way.
void schedule_fetched_wait(const schedule *s);

#endif
