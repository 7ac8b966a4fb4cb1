// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_ATTENTION_RESIDUAL_H
#define KVERN_LAYER_ATTENTION_RESIDUAL_H

// Layers that keep some positions precise (kvern_layer.residual). Such a layer has two rows for
// each: the row itself, in bf16, which is to it as if a window of the newest positions moved over
// it with the first ones kept; and the coded row, in the planned codecs, whose position 0 is the
// first one behind those. Whatever rows can do, from room to rounds, both do in the same way.
//
// An append stores its tokens in the row. Pages that one of its queries reads in the planned
// codecs are then encoded, and stand in both rows until the append settles: then the row lets go of
// them. So the coded row follows from the row, from what its append or round has stored, and from
// whether it has reached its start:
//
//     row->held                      the end of what is coded for good, or 0
//     coded->length                  whole pages; between appends max(held - front, 0)
//     coded->converted               the row has reached its start; used where there is one
//     coded->held                    what a sliding window has passed
//
// Before its start nothing is coded, and a sliding window drops nothing.

#include "src/layer/layer.h"

// Positions that the coded row has when the row has `length` of them behind an append.
int64_t kvern_residual_length(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t length);

// Whether the row waits for its start, and an append that leaves it with `length` positions is the
// one that it waits for.
bool kvern_residual_is_due(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row, int64_t length);

// Takes all that can fail for the coded row to follow when the row grows by `count` positions, and
// to have `reserve` pages at least.
KVERN_CHECK kvern_status kvern_residual_prepare(const kvern_planned_layer *layer,
                                                const kvern_layer_rows *rows, size_t row,
                                                int64_t count, size_t reserve);

// Whether the coded row can follow so without a change.
bool kvern_residual_is_open(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            size_t row, int64_t count);

// Encodes what the queries of the last counts[r] positions read in the planned codecs.
void kvern_residual_store(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                          const int64_t *counts);

void kvern_residual_settle(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row);

// The coded row is cut to what it has when the row has been cut to its length.
void kvern_residual_truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                             size_t row);

// The end of a round in which the row grew from `begin` positions, and which left it its length.
void kvern_residual_take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                              size_t row, int64_t begin);

// The length from which on a row reads what one would that had never been longer.
int64_t kvern_residual_least_exact(const kvern_planned_layer *layer, const kvern_row *row);

// Kept positions of the coded row.
int64_t kvern_residual_keep(const kvern_planned_layer *layer);

// Pages that the row, or the coded one, has at most on its way to `tokens` positions, at most
// `growth` of them in one append or round. `waits`: it begins before its start, which an append of
// `chunk` positions passes.
size_t kvern_residual_precise_pages(const kvern_planned_layer *layer, int64_t tokens,
                                    int64_t growth);
size_t kvern_residual_coded_pages(const kvern_planned_layer *layer, int64_t tokens, int64_t growth);

#endif
