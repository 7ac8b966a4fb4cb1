// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_ATTENTION_ATTENTION_H
#define KVERN_LAYER_ATTENTION_ATTENTION_H

// Layers of keys and values, of all positions, of a window or of chunks. A row has a form: the
// codecs that its pages are in, which change once in a layer with a start (kvern_layer.start).
//
//     attention.c         what a plan means, and the list of operations
//     attention_rows.c    room, settling, going back
//     attention_store.c   appends
//     residual.h          what is added where some positions are kept precise

#include "src/layer/layer.h"

extern const kvern_layer_ops kvern_attention_layer;

// Refuses a layer of another kind by name (KVERN_ERR_UNSUPPORTED). What works on keys and values
// alone, whatever calls the functions below from outside this folder, asks first.
KVERN_CHECK kvern_status kvern_attention_check_kind(const kvern_planned_layer *layer);

// What the pages of a row look like, and where they come from; not those of its coded row
// (residual.h).
typedef struct kvern_form {
    const kvern_geometry *geometry;
    kvern_pool *pool;
} kvern_form;

kvern_form kvern_attention_form(const kvern_planned_layer *layer, const kvern_row *row);

// The page that a position of a row lies in between appends, and what it looks like.
typedef struct kvern_formed_page {
    const kvern_geometry *geometry;
    void *data;
} kvern_formed_page;

kvern_formed_page kvern_attention_page(const kvern_planned_layer *layer,
                                       const kvern_layer_rows *rows, size_t row, int64_t position);

// The first position, apart from the kept ones, that a row holds.
int64_t kvern_attention_held(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                             size_t row);

// Whether a row would be converted as a whole when an append leaves it with `length` positions.
bool kvern_attention_is_due(const kvern_planned_layer *layer, const kvern_row *row, int64_t length);

// Converts a row whose conversion is prepared, in the library's floating-point environment.
void kvern_attention_convert(const kvern_planned_layer *layer, kvern_row *row,
                             kvern_conversion *conversion);

// Pages that a row needs so that it can reach `tokens` positions by decodes.
size_t kvern_planned_pages(const kvern_planned_layer *layer, int64_t tokens);

// Pages to reserve for that in a row's present form. `waits`: before its start a row needs them up
// to there.
size_t kvern_reserved_pages(const kvern_planned_layer *layer, bool waits, int64_t tokens);

// ---- Operations (see kvern_layer_ops), which layers of latents have too ----

uint64_t kvern_attention_row_bytes(const kvern_planned_layer *layer, uint64_t tokens);
size_t kvern_attention_scratch_bytes(const kvern_planned_layer *layer, size_t rows,
                                     size_t query_vectors, int64_t tokens);

kvern_status kvern_attention_prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, size_t reserve_row,
                                     int64_t reserve_tokens);
void kvern_attention_commit(const kvern_planned_layer *layer, const kvern_layer_rows *rows);
void kvern_attention_cancel(const kvern_planned_layer *layer, const kvern_layer_rows *rows);
void kvern_attention_keep_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               size_t row, int64_t tokens);
kvern_row_room kvern_attention_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row, const kvern_plan *plan);

kvern_status kvern_attention_check_tokens(const kvern_planned_layer *layer,
                                          const kvern_lane_views *views, const int64_t *counts,
                                          size_t rows);
void kvern_attention_store(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           const kvern_lane_views *views, const int64_t *counts);
kvern_status kvern_attention_check_donor(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count);
void kvern_attention_fill_read(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *counts, kvern_read *read);

kvern_status kvern_attention_prepare_settling(const kvern_planned_layer *layer,
                                              const kvern_layer_rows *rows, const int64_t *counts,
                                              bool pending, bool shared, size_t *conversions);
void kvern_attention_settle(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            size_t row);
void kvern_attention_cancel_settling(const kvern_planned_layer *layer,
                                     const kvern_layer_rows *rows);

int64_t kvern_attention_trimmable(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                  size_t row);
int64_t kvern_attention_min_reusable(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     size_t row);
int64_t kvern_attention_max_append(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                   size_t row);
void kvern_attention_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length);
kvern_status kvern_attention_check_round(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row, int64_t count);
int64_t kvern_attention_round_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                    size_t row);
void kvern_attention_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                               const int64_t *begin, const int64_t *lengths);

#endif
