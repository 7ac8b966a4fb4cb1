// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_RECURRENT_RECURRENT_H
#define KVERN_LAYER_RECURRENT_RECURRENT_H

// Recurrent layers (kvern/recurrent.h). A row is a whole row (src/rows/whole_row.h): its page holds
// the state that src/recurrent/recurrence.h describes, or a lane.
//
//     recurrent.c          what a plan means, and the list of operations
//     recurrent_rows.c     room, steps that are abandoned, going back
//     recurrent_run.c      tokens, and replaying those of a round
//     recurrent_content.c  rows as data

#include "src/layer/layer.h"
#include "src/recurrent/recurrence.h"

#include <kvern/recurrent.h>

// Tokens of a round at most: the slack of a layer.
#define KVERN_MAX_RECURRENT_SLACK 1024

extern const kvern_layer_ops kvern_recurrent_layer;

// Whether a plan sets fields that recurrent layers alone have.
bool kvern_recurrent_is_asked_for(const kvern_layer *plan);

// Refuses a layer of another kind by name (KVERN_ERR_UNSUPPORTED).
KVERN_CHECK kvern_status kvern_recurrent_check_kind(const kvern_planned_layer *layer);

static inline bool kvern_recurrent_is_lane(const kvern_planned_layer *layer)
{
    return layer->plan.recurrence == KVERN_RECURRENCE_LANE;
}

// Of a plan that is no lane.
kvern_recurrence_shape kvern_recurrent_shape(const kvern_layer *plan);

// Floats of the inputs that a record page keeps of a token: those of the convolution.
size_t kvern_recurrent_input_floats(const kvern_layer *plan);

// ---- Operations (see kvern_layer_ops) ----

kvern_status kvern_recurrent_prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, size_t reserve_row,
                                     int64_t reserve_tokens);
void kvern_recurrent_commit(const kvern_planned_layer *layer, const kvern_layer_rows *rows);
void kvern_recurrent_cancel(const kvern_planned_layer *layer, const kvern_layer_rows *rows);
void kvern_recurrent_keep_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               size_t row, int64_t tokens);
kvern_row_room kvern_recurrent_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row, const kvern_plan *plan);
void kvern_recurrent_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length);
kvern_status kvern_recurrent_check_round(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count);
int64_t kvern_recurrent_round_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row);
void kvern_recurrent_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *begin, const int64_t *lengths);

// ---- Tokens ----

// Turns a row that is prepared for tokens to the page that they are going to change, and makes it
// longer. row->before is what it was until then: NULL where it changes in place, or was empty.
void kvern_recurrent_turn(const kvern_layer_rows *rows, size_t row, int64_t count);

// The row's tokens are in its page.
void kvern_recurrent_close(const kvern_layer_rows *rows, size_t row);

// Checks the caller's view and weights, everything but the counts.
KVERN_CHECK kvern_status kvern_recurrent_check_tokens(const kvern_planned_layer *layer,
                                                      const kvern_recur_tokens *tokens,
                                                      const int64_t *counts, size_t rows);

// Bytes that a task needs for itself.
size_t kvern_recurrent_scratch_bytes(const kvern_planned_layer *layer);

// Takes checked tokens into rows that are prepared for them, which become longer. `scratch` has
// the layer's scratch_bytes: that of a task per thread.
void kvern_recurrent_run(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                         const kvern_recur_tokens *tokens, const int64_t *counts, float *scratch);

// Puts the first undos[r].replayed tokens of a round into the rows once more, which are turned and
// have the length that they will have.
void kvern_recurrent_replay(const kvern_planned_layer *layer, const kvern_layer_rows *rows);

// Hands out the lanes of rows that are prepared for tokens, which become longer.
void kvern_recurrent_open_lanes(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                const int64_t *counts, void **lanes);

// ---- Rows as data ----

// Whether the caller's arrays are what the layer has; `all`: all of them.
KVERN_CHECK kvern_status kvern_recurrent_check_content(const kvern_planned_layer *layer,
                                                       const kvern_recur_state *content, bool all);

// Copies what a page holds (NULL: that of an empty row) to the caller's arrays, or from them.
void kvern_recurrent_export(const kvern_planned_layer *layer, const kvern_page *page,
                            const kvern_recur_state *content);
void kvern_recurrent_import(const kvern_planned_layer *layer, const kvern_recur_state *content,
                            kvern_page *page);

#endif
