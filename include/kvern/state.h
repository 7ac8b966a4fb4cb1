// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_H
#define KVERN_STATE_H

// A state: the caches of all layers of a model over the same rows; what an engine holds for its
// sequences.
//
//     kvern_step_begin(state, KVERN_PHASE_WINDOW, counts);
//     for each layer:
//         q, k, v = projections, with rotary embedding at kvern_step_position(state, row) and on
//         kvern_step_append(state, layer, &tokens, &read);
//         kvern_read_attend(read, &queries);
//         kvern_read_release(read);
//     kvern_step_end(state);                     or kvern_step_abandon: as if it had never begun
//
// A forward pass is a step. It is told at its beginning how many tokens each row will receive; the
// positions of those tokens are then fixed until it ends, for rotary embeddings of keys and queries
// alike. Every layer appends once, but for shared ones, which read what their donors have appended
// (kvern/donor.h). A step that is abandoned leaves the state as it was before it
// began.

#include <kvern/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

// The rows of all layers. Row r of every layer is the same sequence; between steps it has the same
// length in all of them.
typedef struct kvern_state kvern_state;

// Makes a state of `rows` empty rows, with one cache per layer of the composition, which it keeps a
// reference to. On failure *out is NULL. Errors: as kvern_cache_create.
KVERN_API KVERN_CHECK kvern_status kvern_state_create(kvern_composition *composition, size_t rows,
                                                      kvern_state **out);

// Ends a state, with an open step too. Reads and forks made from it live on. NULL is allowed.
KVERN_API void kvern_state_destroy(kvern_state *state);

// The composition that the state was made from, borrowed: it is there while the state is.
KVERN_API kvern_composition *kvern_state_composition(const kvern_state *state);

// The number of rows, empty ones included. Rows are named by their index; joins, kvern_state_keep
// and kvern_state_add_rows change it.
KVERN_API size_t kvern_state_rows(const kvern_state *state);

// The cache of one layer, borrowed for looking only, which includes exports and donor reads: calls
// that change it return KVERN_ERR_BUSY. It is there while the state is. NULL when the index is out
// of range.
KVERN_API const kvern_cache *kvern_state_cache(const kvern_state *state, size_t layer);

// Positions that a row holds, the tokens of an open step excluded; -1 for a row out of range.
KVERN_API int64_t kvern_state_length(const kvern_state *state, size_t row);

// The caches' functions of the same name over all layers (kvern/cache.h): a row can be trimmed as
// far as its strictest layer permits (the least), reused down to what the most demanding one keeps
// (the largest), and appended to without crossing the nearest start (the least). -1 for a row out
// of range.
KVERN_API int64_t kvern_state_trimmable(const kvern_state *state, size_t row);
KVERN_API int64_t kvern_state_min_reusable(const kvern_state *state, size_t row);
KVERN_API int64_t kvern_state_max_append(const kvern_state *state, size_t row);

// The largest length, at most `length`, that all layers can be trimmed to
// (kvern_cache_trim_length).
KVERN_API int64_t kvern_state_trim_length(const kvern_state *state, size_t row, int64_t length);

// Plans where the layers may convert a row (see kvern_cache_plan_boundary). On failure no layer
// changed. Errors: KVERN_ERR_RANGE (row, or a negative position), KVERN_ERR_BUSY (a step or a round
// is open).
KVERN_API KVERN_CHECK kvern_status kvern_state_plan_boundary(kvern_state *state, size_t row,
                                                             int64_t position);

// Bytes of the pages of all rows and layers, reserved room included; a page that several rows share
// counts once for each (see kvern_cache_bytes). What the context holds: kvern_context_memory.
KVERN_API uint64_t kvern_state_bytes(const kvern_state *state);

// Makes room in every layer so that a row can reach `tokens` positions without further allocation
// (see kvern_cache_reserve; kvern/plan.h for chunks, rounds and conversions). All or nothing.
// Errors: those of kvern_cache_reserve; KVERN_ERR_BUSY during a step or a round.
KVERN_API KVERN_CHECK kvern_status kvern_state_reserve(kvern_state *state, size_t row,
                                                       int64_t tokens, size_t query_vectors);

// Begins a step in which row r receives counts[r] tokens (one entry per row; all 0 is permitted).
// The room for all layers is taken here, so that the appends of the step cannot run out of pages.
// On failure nothing changed. Errors: those of the appends of kvern/cache.h; KVERN_ERR_BUSY when a
// step is open; KVERN_ERR_RANGE also when an open round (kvern/round.h) is for fewer tokens.
KVERN_API KVERN_CHECK kvern_status kvern_step_begin(kvern_state *state, kvern_phase phase,
                                                    const int64_t *counts);

// The position of the first token of a row in the open step: the same number from begin to end,
// whatever has been appended meanwhile. -1 without an open step or for a row out of range.
KVERN_API int64_t kvern_step_position(const kvern_state *state, size_t row);

// The number of tokens of a row in the open step; -1 without one or for a row out of range.
KVERN_API int64_t kvern_step_count(const kvern_state *state, size_t row);

// Appends the step's tokens to one layer and hands out a read of it, which the caller releases
// (NULL: none wanted). tokens->counts is NULL, which stands for the step's, or equal to them
// (KVERN_ERR_BUSY otherwise). A layer appends once per
// step; the order of the layers is free. On failure the layer is unchanged and the step stays open.
// Errors: KVERN_ERR_BUSY (no open step, or the layer has appended already), KVERN_ERR_RANGE,
// KVERN_ERR_ARGUMENT, KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY or KVERN_ERR_BUDGET (for the read
// itself; or for pages, where a read that was made of the layer since the step began has to keep
// those that were taken: kvern_cache_read_donor).
KVERN_API KVERN_CHECK kvern_status kvern_step_append(kvern_state *state, size_t layer,
                                                     const kvern_tokens *tokens, kvern_read **read);

// Ends the step: the rows' lengths advance, and rows that have reached the start of a layer are
// converted there (within a round: when that ends). Release the step's reads before: while one is
// open, a conversion has to leave it the old pages. Errors, the step stays open: KVERN_ERR_BUSY (no
// step is open, or a layer has not appended: the detail names it); KVERN_ERR_MEMORY or
// KVERN_ERR_BUDGET (no room for a conversion).
KVERN_API KVERN_CHECK kvern_status kvern_step_end(kvern_state *state);

// Abandons the step: every row is as long as it was at its beginning, in the layers that had
// appended too, and the room that was taken for it goes back. Reads of the step stay what they are.
// Without an open step, and for NULL, nothing happens.
KVERN_API void kvern_step_abandon(kvern_state *state);

// Drops the newest `tokens` positions of a row in every layer, or in none (see kvern_cache_trim).
// Errors: KVERN_ERR_RANGE (row, a negative number, or more than the row holds),
// KVERN_ERR_UNSUPPORTED (more than kvern_state_trimmable, and not all), KVERN_ERR_BUSY (a step or a
// round is open).
KVERN_API KVERN_CHECK kvern_status kvern_state_trim(kvern_state *state, size_t row, int64_t tokens);

// Empties a row in every layer, and gives its reserved room back (see kvern_cache_reset). Errors:
// KVERN_ERR_RANGE, KVERN_ERR_BUSY (a step or a round is open).
KVERN_API KVERN_CHECK kvern_status kvern_state_reset(kvern_state *state, size_t row);

// A new state whose row i continues row rows[i] of this one; both share the pages until one of them
// writes (see kvern_cache_fork). The caller ends it with kvern_state_destroy, before or after this
// one. On failure *out is NULL. Errors: those of kvern_cache_fork; KVERN_ERR_BUSY during a step or
// a round.
KVERN_API KVERN_CHECK kvern_status kvern_state_fork(const kvern_state *state, const size_t *rows,
                                                    size_t count, kvern_state **out);

// Rows that come and go, in all layers or in none: the caches' functions of the same name
// (kvern/cache.h), with their errors. KVERN_ERR_BUSY during a step or a round, of another state
// too. Rows of other states in a given order, some of them perhaps fresh: join, add rows, keep.

// Moves all rows of the others behind this state's own. KVERN_ERR_UNSUPPORTED names the layer and
// both signatures.
KVERN_API KVERN_CHECK kvern_status kvern_state_join(kvern_state *state, kvern_state *const *others,
                                                    size_t count);

// Row i becomes the old row rows[i]; rows that are not named are dropped. Takes no memory, so that
// rows can leave where there is none.
KVERN_API KVERN_CHECK kvern_status kvern_state_keep(kvern_state *state, const size_t *rows,
                                                    size_t count);

// Adds `count` empty rows behind the others.
KVERN_API KVERN_CHECK kvern_status kvern_state_add_rows(kvern_state *state, size_t count);

// A new state of one row that continues row `row`, which stays: to go on with it elsewhere, or to
// keep what it holds, while this state goes on. On failure *out is NULL.
KVERN_API KVERN_CHECK kvern_status kvern_state_extract(const kvern_state *state, size_t row,
                                                       kvern_state **out);

#ifdef __cplusplus
}
#endif

#endif
