// SPDX-License-Identifier: MIT
#ifndef KVERN_CHECKPOINT_H
#define KVERN_CHECKPOINT_H

// Checkpoints: rows of a state as they were, to go back to. A recurrent state cannot be cut back,
// nor a window that has wrapped; so whoever wants to use the beginning of a row again (another
// question on the same document) keeps the row at the positions that may be wanted.
//
//     kvern_state_checkpoint_budget(state, UINT64_C(1) << 30);
//     ... steps to the end of the document ...
//     kvern_state_checkpoint(state, row);
//     ... steps ...
//     position = kvern_state_checkpoint_below(state, row, common);    the largest that is of use
//     kvern_state_return(state, row, position);
//     ... steps for the tokens from position to common, once more: they give the same bits ...
//
// A checkpoint is of all layers. It shares the row's pages, so it costs what the row will not have
// in common with it: the state of a recurrent layer, the pages of a window, a partly filled page.
// It is the row's: it moves with it (joins, kvern_state_keep) and goes with it. Forks and extracted
// rows begin without.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// How many bytes the checkpoints of all rows of the state may have together; 0, as at first: there
// are none. Where there are more already, checkpoints go until the rest fits, by the rule below.
// Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_BUSY (a step or a round is open).
KVERN_API KVERN_CHECK kvern_status kvern_state_checkpoint_budget(kvern_state *state,
                                                                 uint64_t bytes);

// Bytes that the checkpoints of the state count with: as many as they keep for themselves when
// their rows have gone on. They come on top of kvern_state_bytes.
KVERN_API uint64_t kvern_state_checkpoint_bytes(const kvern_state *state);

// Keeps the row as it is now; once for a position. Where the budget is full others go first: the
// one that is cheapest to lose, which is the one with the fewest tokens behind the next smaller
// checkpoint of its row, or behind its beginning: so many would have to be served again. Of equal
// ones the oldest goes. An empty row needs no checkpoint: nothing happens. The row shares pages
// with it as with a fork, so reserve again what is to last (kvern_state_reserve). On failure
// nothing changed. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE, KVERN_ERR_BUSY (a step or a round
// is open), KVERN_ERR_BUDGET (a checkpoint larger than the budget for them, or no memory),
// KVERN_ERR_MEMORY.
KVERN_API KVERN_CHECK kvern_status kvern_state_checkpoint(kvern_state *state, size_t row);

// Writes the positions of a row's checkpoints, the largest first, as far as `capacity` goes, and
// returns how many there are; 0 for a row out of range. `positions` may be NULL when capacity is 0.
KVERN_API size_t kvern_state_checkpoints(const kvern_state *state, size_t row, int64_t *positions,
                                         size_t capacity);

// The largest position that the row can go back to which is not above `position`: that of a
// checkpoint, the row's own length, or 0. -1 for a row out of range or a negative position.
KVERN_API int64_t kvern_state_checkpoint_below(const kvern_state *state, size_t row,
                                               int64_t position);

// The row becomes what it was at a checkpoint, in every layer, bit for bit: lengths, forms, what
// can be trimmed and reused. The checkpoint stays; those behind it go. At position 0 it is empty,
// as a new row; its present length leaves it as it is. What was reserved for the row stays, but for
// room of another form than it has then (kvern_cache_adopt). Takes no memory. Errors:
// KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (row, or a position without a checkpoint: the detail names
// the one below), KVERN_ERR_BUSY (a step or a round is open). On failure nothing changed.
KVERN_API KVERN_CHECK kvern_status kvern_state_return(kvern_state *state, size_t row,
                                                      int64_t position);

#ifdef __cplusplus
}
#endif

#endif
