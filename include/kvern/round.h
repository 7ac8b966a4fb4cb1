// SPDX-License-Identifier: MIT
#ifndef KVERN_ROUND_H
#define KVERN_ROUND_H

// Speculative rounds: tokens that may have to be taken back.
//
//     kvern_round_begin(state, counts)          at most counts[r] draft tokens in row r
//     kvern_step_begin ... kvern_step_end       one step or several, of any phase
//     kvern_round_rollback(state, keep)         the first keep[r] drafts stay; or
//     kvern_round_commit
//
// What a rollback drops has never been: lengths, what can be trimmed and reused, the pages that
// rows hold or share, and every later bit are those of a state that was given the kept tokens only,
// in one append. (Reads of the round that are still open keep their pages.) A round that would be
// more than a layer can take back is refused when it begins.
//
// While a round is open, steps are allowed, looking at lengths, donor reads (which keep what they
// see, whatever becomes of the round), and destroying the state. Everything else that takes the
// state or copies out of it is KVERN_ERR_BUSY: forks, rows that come and go, trims, resets,
// reservations, adoption, exports. A reservation (kvern_state_reserve) covers rounds.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// Begins a round in which row r may receive up to counts[r] tokens (one entry per row; 0 leaves a
// row out). Takes no memory. On failure nothing changed. Errors: KVERN_ERR_ARGUMENT,
// KVERN_ERR_RANGE (a negative count, or more than a row can hold), KVERN_ERR_UNSUPPORTED (a layer
// could not take so many tokens back, and the detail names layer and row: more than the slack of
// its window or of its recurrent state, or past the append at which the row is to be converted: at
// most kvern_state_max_append tokens, and none where the next append converts the row whatever its
// length, as the first one of a layer with a start of 0 does), KVERN_ERR_BUSY (a step or a round is
// open).
KVERN_API KVERN_CHECK kvern_status kvern_round_begin(kvern_state *state, const int64_t *counts);

// The most tokens that a round beginning now may have in a row: what kvern_round_begin does not
// refuse, as far as the row alone decides. -1 for a row out of range.
KVERN_API int64_t kvern_state_round_limit(const kvern_state *state, size_t row);

// Whether a round is open.
KVERN_API bool kvern_round_open(const kvern_state *state);

// Tokens that a row has received in the open round, those of an open step excluded; -1 without a
// round or for a row out of range.
KVERN_API int64_t kvern_round_appended(const kvern_state *state, size_t row);

// Ends the round; all of its tokens stay. Rows that have reached the start of a layer are converted
// now. Errors, the round stays open: KVERN_ERR_ARGUMENT, KVERN_ERR_BUSY (a step is open, or no
// round), KVERN_ERR_MEMORY or KVERN_ERR_BUDGET (no room for a conversion).
KVERN_API KVERN_CHECK kvern_status kvern_round_commit(kvern_state *state);

// Ends the round; of its tokens, the first keep[r] of row r stay, 0 to kvern_round_appended of
// them. Errors, the round stays open: those of kvern_round_commit, and KVERN_ERR_RANGE.
KVERN_API KVERN_CHECK kvern_status kvern_round_rollback(kvern_state *state, const int64_t *keep);

#ifdef __cplusplus
}
#endif

#endif
