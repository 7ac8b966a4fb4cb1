// SPDX-License-Identifier: MIT
#ifndef KVERN_DONOR_H
#define KVERN_DONOR_H

// Keys and values of another layer: cross-layer KV sharing (Gemma 3n, Gemma 4), and drafters that
// read the rows of the model that they draft for.
//
// **Shared layers** (KVERN_LAYER_SHARED) project queries alone and attend what an earlier layer of
// the same composition, their donor, keeps: in Gemma 4 the last layer of their own kind that keeps
// anything. They have no pages and take no bytes; steps, rounds, rows that come and go, plans and
// checkpoints pass them by.
//
//     layers[7] = kvern_layer_shared(layers, 5);
//     ...
//     kvern_step_append(state, 5, &tokens, &read);         // in a step
//     kvern_step_read_donor(state, 7, &read);              // later in the same step
//     kvern_read_attend(read, &queries);                   // queries of layer 7
//     kvern_read_release(read);
//
// What is asked about such a layer in a state (kvern_cache_length, _trimmable, _min_reusable,
// _max_append, _converted) is answered as for its donor, kvern_cache_bytes is 0, and what would
// store or fetch keys and values there is refused with KVERN_ERR_UNSUPPORTED: ask the donor. A
// cache of such a layer alone cannot be made, and kvern_state_import_padded wants no planes of it.
//
// **Drafters** with queries of their own and no keys read a target's rows: reads of chosen layers
// (kvern_state_read_donors), whose queries sit at each row's last position, are attended once for
// each token that is drafted, or their newest positions are copied out (kvern_read_export_newest).
// Both stay what they are whatever becomes of the target's rows.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// Hands out a read of what the donor of layer `layer` holds in the open step: the very read that
// the donor's append handed out, or would have (kvern_step_slots_done likewise), its counts of
// queries and its form included. So a donor that is converted when the step ends is read in bf16
// until then. Any number of such reads may be open, each released by itself
// (kvern_read_release), before kvern_step_end as a rule. On failure *read is NULL and nothing
// changed. Errors: KVERN_ERR_ARGUMENT (NULL), KVERN_ERR_RANGE (layer), KVERN_ERR_UNSUPPORTED (a
// layer that is not shared), KVERN_ERR_BUSY (no step is open, or the donor has not appended in it:
// the detail names it), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_step_read_donor(kvern_state *state, size_t layer,
                                                         kvern_read **read);

// What kvern_composition_last_layer returns where there is none.
#define KVERN_NO_LAYER ((size_t)-1)

// The last layer of a kind: of KVERN_LAYER_FULL and KVERN_LAYER_WINDOW, the one that a drafter
// borrows. KVERN_NO_LAYER: there is none.
KVERN_API size_t kvern_composition_last_layer(const kvern_composition *composition,
                                              kvern_layer_kind kind);

// kvern_cache_read_donor of `count` layers of a state, into reads[count], or of none: counts[r] (0
// or more) queries at the last positions of row r, 1 for a drafter's. Where a layer appended in an
// open step, its new tokens are read too. On failure all of reads[] is NULL. Errors: those of
// kvern_cache_read_donor; KVERN_ERR_ARGUMENT (NULL), KVERN_ERR_RANGE (a layer),
// KVERN_ERR_UNSUPPORTED (a layer that keeps no keys and values of its own: the detail names it).
KVERN_API KVERN_CHECK kvern_status kvern_state_read_donors(const kvern_state *state,
                                                           const size_t *layers, size_t count,
                                                           const int64_t *counts,
                                                           kvern_read **reads);

// Positions that the query of token `token` of row `row` sees, 0 being the first token of the read:
// those in [*begin, *end), and the row's first *kept ones (where they are not in it already). *end
// is the position behind the query's own, or, where that lies in a range of positions that see each
// other both ways or in a block (kvern_cache_read_block), the end of these. Flagged positions
// (KVERN_PHASE_BIDIRECTIONAL) that are seen besides are not told. Any pointer may be NULL. On
// failure nothing is written. Errors: KVERN_ERR_ARGUMENT (read is NULL), KVERN_ERR_RANGE (row, or a
// token that the read does not have).
KVERN_API KVERN_CHECK kvern_status kvern_read_range(const kvern_read *read, size_t row,
                                                    int64_t token, int64_t *begin, int64_t *end,
                                                    int64_t *kept);

// Where the newest positions of a read go: planes [rows, kv_heads, width, dim], right-justified, so
// that the last column of every row is its last position. Arrays are the caller's; a NULL one is
// not written.
typedef struct kvern_newest_planes {
    size_t size;               // sizeof(kvern_newest_planes); set by kvern_newest_planes_default
    int64_t width;             // columns, 0 or more: so many positions of each row at most
    void *k;                   // [rows, kv_heads, width, k_dim]
    void *v;                   // [rows, kv_heads, width, v_dim]
    kvern_type k_type, v_type; // elements of k and v
    int64_t *offsets;          // [rows] the position behind the row's last one
    int64_t *starts, *ends;    // [rows] columns in [start, end) are positions, the last of which is
                               // offset - 1; all others are zeros. end is width
} kvern_newest_planes;

// Writes the defaults to `size` bytes, sizeof(kvern_newest_planes) of the caller: no pointers, a
// width of 0, and f32 as the type of numbers.
KVERN_API void kvern_newest_planes_init(kvern_newest_planes *planes, size_t size);

// The same as a value.
static inline kvern_newest_planes kvern_newest_planes_default(void)
{
    kvern_newest_planes planes;
    kvern_newest_planes_init(&planes, sizeof planes);
    return planes;
}

// Copies the newest positions of every row of a read: as many as its last position sees in a
// stretch with itself (a window's, without kept ones in front of it, whatever ranges show it
// besides; of a block read, the block and the positions in front of it that the block sees so), and
// `width` at most. Numbers
// are what the row stores, rounded once to the type, and exactly in f32. On failure nothing was
// written. Errors: KVERN_ERR_ARGUMENT (NULL, a size or type that does not exist), KVERN_ERR_RANGE
// (a width that is negative or more than 2^40), KVERN_ERR_UNSUPPORTED (a read of latents),
// KVERN_ERR_OVERFLOW (planes that do not fit memory).
KVERN_API KVERN_CHECK kvern_status kvern_read_export_newest(const kvern_read *read,
                                                            const kvern_newest_planes *planes);

#ifdef __cplusplus
}
#endif

#endif
