// SPDX-License-Identifier: MIT
#ifndef KVERN_EXPERIMENTAL_SLOT_H
#define KVERN_EXPERIMENTAL_SLOT_H

// Experimental: this may change or go in any release (kvern/kvern.h).
//
// Decode slots: for a caller whose own kernel computes keys and values, and can store them where
// they belong. A decode step with slots is:
//
//     kvern_slot_plan(state, layer, row, &plan)       what the step would do; changes nothing
//     kvern_step_begin(state, KVERN_PHASE_DECODE, counts)     takes all room
//     for every layer:
//         kvern_step_slot(state, layer, row, &slot)   where row's keys and values go; or
//         kvern_step_write(state, layer, row, ...)    hands them over, for any codec
//         kvern_step_slots_done(state, layer, &read)  instead of kvern_step_append
//     kvern_step_end(state)                           or kvern_step_abandon: all as it was
//
// Nothing is allocated in reserved room (kvern_state_reserve). Slots work within rounds.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a decode of one token would mean for a row of a layer.
typedef struct kvern_planned_slot {
    size_t size;         // sizeof(kvern_planned_slot); set by the caller
    int64_t position;    // of the token
    kvern_codec k_codec; // how it would be stored
    kvern_codec v_codec;
    bool in_place;       // kvern_step_slot has pointers: both codecs are dense
    bool converts;       // the end of the step, or of the open round, would convert the row
    uint64_t page_bytes; // bytes of pages that the begin of the step would take for it
} kvern_planned_slot;

// Fills in *plan for the next token of a row; takes no memory and changes nothing. On failure *plan
// is unchanged. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (layer or row; the row is full),
// KVERN_ERR_BUSY (a step is open).
KVERN_API KVERN_CHECK kvern_status kvern_slot_plan(const kvern_state *state, size_t layer,
                                                   size_t row, kvern_planned_slot *plan);

// Where the keys or the values of one token lie. Element d of KV head h is
//     data[h * head_stride + (d / group) * group_stride + (d % group) * dim_stride]   for d < whole
//     rest[h * head_stride + (d - whole) * dim_stride]                                otherwise
// All strides count elements of `type`. Keys of bf16 lie in pairs of dims (group 2), other keys one
// by one; values lie in panels of 64 dims, and a last one that is narrower. What lies between the
// elements belongs to other tokens: it must not be written, nor written back.
typedef struct kvern_slot_stream {
    kvern_type type; // of the elements: the stored type, so the caller does the rounding
    void *data;      // element 0 of head 0; within a page that belongs to the row
    int64_t head_stride;
    // Dims of a group lie dim_stride apart, groups group_stride.
    int64_t group, group_stride, dim_stride;
    int64_t whole;         // dims in whole groups
    void *rest;            // NULL when there are no others
    uintptr_t reserved[2]; // 0
} kvern_slot_stream;

// Where both streams of a token lie: they have the geometry of the layer (kvern_layer), and may be
// of different types.
typedef struct kvern_slot {
    size_t size; // sizeof(kvern_slot); set by the caller
    kvern_slot_stream k, v;
} kvern_slot;

// Where the token of a row goes in a layer: the caller writes all elements of both streams before
// kvern_step_slots_done. The pointers are valid until the layer has appended, by that call or by
// kvern_step_append, or the step is abandoned; no donor read (kvern_cache_read_donor) of the layer
// can be made meanwhile. On failure *slot is unchanged. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE
// (layer or row; the row has no token in this step), KVERN_ERR_UNSUPPORTED (the step is no decode;
// a codec is not dense: use kvern_step_write), KVERN_ERR_BUSY (no step is open, or the layer has
// appended already), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET (a read has been made in this step that has
// to keep the page).
KVERN_API KVERN_CHECK kvern_status kvern_step_slot(kvern_state *state, size_t layer, size_t row,
                                                   kvern_slot *slot);

// Stores the token of a row in a layer, in whatever codec: k and v are packed [kv_heads, k_dim] and
// [kv_heads, v_dim] elements of `type`, borrowed for the call. May be called again until the layer
// is done: the newest call counts. On failure nothing changed. Errors: as kvern_step_slot, but for
// codecs, all of which do.
KVERN_API KVERN_CHECK kvern_status kvern_step_write(kvern_state *state, size_t layer, size_t row,
                                                    kvern_type type, const void *k, const void *v);

// The layer has appended: every row with a token has been handed out or written (else
// KVERN_ERR_BUSY, and the detail names the row). Hands out the read, as kvern_step_append does
// (NULL: none wanted). On failure nothing changed. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE,
// KVERN_ERR_UNSUPPORTED, KVERN_ERR_BUSY, KVERN_ERR_MEMORY or KVERN_ERR_BUDGET (for the read).
KVERN_API KVERN_CHECK kvern_status kvern_step_slots_done(kvern_state *state, size_t layer,
                                                         kvern_read **read);

#ifdef __cplusplus
}
#endif

#endif
