// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_BATCH_H
#define KVERN_STATE_BATCH_H

// A batch: the rows that the caches of a state have in common, or those of a cache that stands
// alone. It knows how many there are, how long they are, and which step or round is open. What the
// caches store of the rows lies in its memory, one block, so that rows come and go at the cost of
// one allocation for all layers. There is a set of rows for each cache, and behind these another
// one for each cache whose layer keeps some positions precise (src/layer/layer.h).

#include "src/base/buffer_cache.h"
#include "src/layer/layer.h"

#include <kvern/cache.h>
#include <kvern/plan.h>

typedef struct kvern_checkpoint kvern_checkpoint; // src/state/checkpoint.h

typedef struct kvern_batch {
    size_t caches; // that share it
    size_t sets;   // of rows
    bool of_state; // only the state's steps and row operations change the caches
    size_t row_count, capacity;
    void *memory;
    kvern_row *spare; // per row, for the length of a call
    bool *named;      // likewise

    int64_t *lengths; // positions per row, without those of an open step
    bool step_open;
    kvern_phase phase; // of the open step
    int64_t *counts;   // its tokens per row; between steps, for the length of a call
    bool round_open;
    int64_t *round_begin; // lengths when the open round began
    int64_t *round_most;  // tokens that a row may receive in it

    kvern_checkpoint **checkpoints;               // of a row, the largest position first
    uint64_t checkpoint_budget, checkpoint_bytes; // those that they may have, and have
    uint64_t checkpoint_age;                      // of the next one

    kvern_reservation *reservation; // memory for reads and attends; NULL: none
    kvern_plan reserved;            // what that is for: the most of each row's plan
} kvern_batch;

// Bytes of a batch that is made for as many.
size_t kvern_batch_bytes(size_t sets, size_t rows);

// Makes a batch of `rows` empty rows for `caches` caches, in `sets` sets.
KVERN_CHECK kvern_status kvern_batch_create(kvern_heap *heap, size_t caches, size_t sets,
                                            size_t rows, kvern_batch *out);
void kvern_batch_free(kvern_heap *heap, kvern_batch *batch);

// One set of rows: that of a cache has the cache's number. Growing moves them.
kvern_layer_rows kvern_batch_rows(const kvern_batch *batch, size_t set);

// What they have in a round; all zero while none is open.
kvern_row_undo *kvern_batch_undos(const kvern_batch *batch, size_t set);

// Makes room for `rows` rows. What there is stays; on failure nothing changed.
KVERN_CHECK kvern_status kvern_batch_grow(kvern_heap *heap, kvern_batch *batch, size_t rows);

// A plan of all rows, of which one has what `plan` says and the others what was reserved for them:
// one call reads all of them, and many queries of one row meet many positions of another.
kvern_plan kvern_batch_plan(const kvern_batch *batch, const kvern_plan *plan);

// When no row of any of the caches has reserved room any more, the memory that was reserved for
// their reads goes as well.
void kvern_batch_unreserve(kvern_context *context, kvern_batch *batch);

// Whether nothing is open, or no round: KVERN_ERR_BUSY says what is. A step leaves what rows hold
// as it is, while the tokens of a round may never have been.
KVERN_CHECK kvern_status kvern_batch_check_idle(const kvern_batch *batch);
KVERN_CHECK kvern_status kvern_batch_check_no_round(const kvern_batch *batch);

// Checks the counts of an append in a phase: KVERN_ERR_ARGUMENT or KVERN_ERR_RANGE.
KVERN_CHECK kvern_status kvern_batch_check_counts(const kvern_batch *batch, kvern_phase phase,
                                                  const int64_t *counts);

#endif
