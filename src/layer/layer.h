// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_LAYER_H
#define KVERN_LAYER_LAYER_H

// What a layer of any kind is to caches and states: a plan, and a list of operations on rows. A
// kind is a folder below this one, whose operations stand in one line of layer.c.
//
// Every kind keeps a row in a kvern_row (src/rows/row.h), so what does not look inside one works
// for all of them: rows that join, leave, fork and are shared, their bytes, their end. What depends
// on the kind is listed in kvern_layer_ops. The operations work on rows wherever these lie: those
// of a cache, or spare ones.

#include "src/attend/read.h"
#include "src/rows/convert.h"
#include "src/rows/row.h"
#include "src/rows/undo.h"
#include "src/rows/window.h"

#include <kvern/cache.h>
#include <kvern/plan.h>
#include <string.h>

#define KVERN_SIGNATURE_BYTES 224

typedef struct kvern_layer_ops kvern_layer_ops;

// One layer: the caller's plan, what follows from it, and the pools that its pages come from.
// Layers with pages of one size share a pool, but not one of planned pages and one of first ones.
typedef struct kvern_planned_layer {
    size_t index; // in its composition
    // The layer whose rows it reads, of the same composition: another one in a shared layer, whose
    // own rows stay empty; else itself.
    const struct kvern_planned_layer *donor;
    kvern_context *context;
    const kvern_layer_ops *ops;
    kvern_layer plan;
    kvern_window window;
    kvern_geometry geometry; // of the planned codecs
    kvern_pool *pool;
    kvern_geometry first;    // of rows before plan.start, and of positions that are kept precise;
    kvern_pool *first_pool;  // without either it has no streams, and no pool
    size_t coded_set;        // of rows in a state: what is not precise of its own; 0: none
    kvern_pool *record_pool; // of pages with what a round puts into rows (geometry.record_bytes)
    char signature[KVERN_SIGNATURE_BYTES];
} kvern_planned_layer;

// Rows that a layer stores, with what changes of them need. A layer that keeps positions precise
// (kvern_layer.residual) has two of each: the row itself, which holds what is precise, and another
// one for what is stored in the planned codecs (src/layer/attention/residual.h).
typedef struct kvern_layer_rows {
    size_t count;
    kvern_row *rows;
    kvern_row_change *changes;     // one per row, for the length of a call
    kvern_conversion *conversions; // likewise
    kvern_row_undo *undos;         // one per row, for the length of a round; NULL: none is open
    bool of_state;                 // they are changed by steps, which can be abandoned

    kvern_row *coded; // the other rows, or NULL, with what they need
    kvern_row_change *coded_changes;
    kvern_row_undo *coded_undos;
} kvern_layer_rows;

// Forgets the changes of all rows.
static inline void kvern_layer_rows_clear_changes(const kvern_layer_rows *rows)
{
    memset(rows->changes, 0, rows->count * sizeof rows->changes[0]);
    if (rows->coded)
        memset(rows->coded_changes, 0, rows->count * sizeof rows->coded_changes[0]);
}

// Whether a row is still before its start (kvern_layer.start).
static inline bool kvern_layer_row_waits(const kvern_planned_layer *layer,
                                         const kvern_layer_rows *rows, size_t row)
{
    const kvern_row *converted = rows->coded ? rows->coded : rows->rows;
    return layer->plan.start != KVERN_NO_START && layer->first_pool && !converted[row].converted;
}

// One of them.
static inline kvern_layer_rows kvern_layer_row_alone(const kvern_layer_rows *rows, size_t row)
{
    return (kvern_layer_rows){1,
                              rows->rows + row,
                              rows->changes + row,
                              rows->conversions + row,
                              rows->undos ? rows->undos + row : NULL,
                              rows->of_state,
                              rows->coded ? rows->coded + row : NULL,
                              rows->coded ? rows->coded_changes + row : NULL,
                              rows->coded_undos ? rows->coded_undos + row : NULL};
}

// What the caller of an append has for one lane, starts and strides in tokens and elements.
typedef struct kvern_lane_view {
    const char *data;
    kvern_type type;
    int64_t token_stride, head_stride;
    const int64_t *start; // NULL: rows follow each other
} kvern_lane_view;

// Which of the tokens see each other both ways, as the caller says it (kvern_tokens).
typedef struct kvern_both_ways {
    kvern_phase phase;
    const kvern_range *ranges;
    const size_t *range_counts;
    const uint8_t *flags;
} kvern_both_ways;

// Whether there are such tokens in the phase.
static inline bool kvern_phase_is_both_ways(kvern_phase phase)
{
    return phase == KVERN_PHASE_RANGES || phase == KVERN_PHASE_BIDIRECTIONAL ||
           phase == KVERN_PHASE_ENCODER;
}

// Views of the lanes that the layer stores; others are not looked at.
typedef struct kvern_lane_views {
    kvern_lane_view lanes[KVERN_LANES];
    kvern_both_ways both;
} kvern_lane_views;

// `counts` has an entry per row: the tokens that it receives.
struct kvern_layer_ops {
    // ---- Planning ----

    // Whether the plan makes sense; the detail names layer `index`.
    kvern_status (*check)(size_t index, const kvern_layer *plan);
    // Says which positions are seen, and lists the streams: name, role, heads, dim, codec.
    void (*describe)(const kvern_layer *plan, kvern_window *window, kvern_geometry *g);
    // Writes what the signature says before the streams.
    void (*write_kind)(const kvern_layer *plan, char *text, size_t bytes);
    bool (*can)(const kvern_planned_layer *layer, kvern_capability capability);
    // Bytes of the pages that a row of `tokens` positions holds at most; UINT64_MAX: they do not
    // fit.
    uint64_t (*row_bytes)(const kvern_planned_layer *layer, uint64_t tokens);
    // Scratch of an attend with `query_vectors` query vectors (heads times queries) in each of
    // `rows` rows of up to `tokens` positions; SIZE_MAX when it does not fit.
    size_t (*scratch_bytes)(const kvern_planned_layer *layer, size_t rows, size_t query_vectors,
                            int64_t tokens);

    // ---- Room ----

    // Takes all that can fail for the rows to receive their tokens (counts NULL: none) and for row
    // `reserve_row` to reach `reserve_tokens` positions. All or nothing; commit or cancel follows.
    kvern_status (*prepare)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            const int64_t *counts, size_t reserve_row, int64_t reserve_tokens);
    void (*commit)(const kvern_planned_layer *layer, const kvern_layer_rows *rows);
    void (*cancel)(const kvern_planned_layer *layer, const kvern_layer_rows *rows);
    // Row number `row` keeps the room that was prepared and committed for `tokens` positions.
    void (*keep_room)(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row,
                      int64_t tokens);
    // What a row, as it is, is to have to do what the plan says, apart from what it shares;
    // plan->rows is not looked at.
    kvern_row_room (*room)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row, const kvern_plan *plan);

    // ---- Appends: a kind without streams has none of them, and is not asked ----

    // Checks the caller's views, everything but the counts.
    kvern_status (*check_tokens)(const kvern_planned_layer *layer, const kvern_lane_views *views,
                                 const int64_t *counts, size_t rows);
    // Stores the tokens behind the rows, which are prepared for them and become longer.
    void (*store)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                  const kvern_lane_views *views, const int64_t *counts);
    // Whether a read of row number `row` as it is can have queries at its last `count` positions.
    kvern_status (*check_donor)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t row, int64_t count);
    // Fills in a read of the rows as they are, whose last counts[r] positions have queries.
    void (*fill_read)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                      const int64_t *counts, kvern_read *read);

    // ---- Settling: what an append leaves to do for the rows that it gave tokens ----

    // Takes all that can fail. `pending`: the append has been prepared, but not committed.
    // `shared`: a read of it will be open. Adds to *conversions the rows that will be converted.
    kvern_status (*prepare_settling)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, bool pending, bool shared,
                                     size_t *conversions);
    // Settles one row. Rows of all layers may be settled at the same time, on several threads.
    void (*settle)(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row);
    void (*cancel_settling)(const kvern_planned_layer *layer, const kvern_layer_rows *rows);

    // ---- Going back ----

    int64_t (*trimmable)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                         size_t row);
    int64_t (*min_reusable)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            size_t row);
    int64_t (*max_append)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                          size_t row);
    // The row is left with `length` positions, a number that trimmable permits or that it had
    // before an open step.
    void (*truncate)(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row,
                     int64_t length);
    // Whether row number `row` could take back `count` tokens.
    kvern_status (*check_round)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t row, int64_t count);
    // Tokens that a round of the row may have.
    int64_t (*round_limit)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row);
    // The end of a round: rows had begin[r] positions and keep lengths[r].
    void (*take_back)(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                      const int64_t *begin, const int64_t *lengths);
};

// Whether the layer reads another one's rows and has none of its own.
static inline bool kvern_layer_is_shared(const kvern_planned_layer *layer)
{
    return layer->donor != layer;
}

// The operations of a kind of layers; NULL: there is no such kind.
const kvern_layer_ops *kvern_layer_ops_of(kvern_layer_kind kind);

// Refuses a layer that lacks something, by name, with the calls that are for it:
// KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_layer_fail_kind(const kvern_planned_layer *layer,
                                               const char *lacking);

// Refuses a layer that cannot receive tokens in the phase, by name (KVERN_ERR_UNSUPPORTED).
KVERN_CHECK kvern_status kvern_layer_check_phase(const kvern_planned_layer *layer,
                                                 kvern_phase phase);

// Refuses a layer that does not store the lane, by name (KVERN_ERR_UNSUPPORTED).
KVERN_CHECK kvern_status kvern_layer_check_lane(const kvern_planned_layer *layer, kvern_lane lane);

#endif
