// SPDX-License-Identifier: MIT
#include "src/state/kept_row.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/rows/row_image.h"
#include "src/state/walk.h"

#include <inttypes.h>

const kvern_row *kvern_row_source_set(const kvern_row_source *source, size_t set)
{
    if (source->kept)
        return &source->kept[set];
    return &kvern_batch_rows(source->batch, set).rows[source->row];
}

static int64_t layer_floor(const kvern_planned_layer *layer, const kvern_row_source *source)
{
    kvern_row row = *kvern_row_source_set(source, layer->index), coded;
    kvern_layer_rows rows = {.count = 1, .rows = &row};
    if (layer->coded_set) {
        coded = *kvern_row_source_set(source, layer->coded_set);
        rows.coded = &coded;
    }
    const int64_t least = layer->ops->min_reusable(layer, &rows, 0);
    return row.ranges ? kvern_max_i64(least, row.ranges->list[row.range_count - 1].end) : least;
}

int64_t kvern_row_source_floor(const kvern_composition *composition, const kvern_row_source *source,
                               const kvern_planned_layer **layer)
{
    int64_t most = 0;
    *layer = NULL;
    for (size_t l = 0; l < composition->count; l++) {
        const kvern_planned_layer *at = &composition->layers[l];
        const int64_t floor = kvern_layer_is_shared(at) ? 0 : layer_floor(at, source);
        if (floor > most) {
            most = floor;
            *layer = at;
        }
    }
    return most;
}

// Whether rows of a set change their form at a start.
static bool has_forms(const kvern_state *state, size_t set)
{
    const kvern_composition *composition = state->composition;
    return set < composition->count && composition->layers[set].first_pool &&
           !composition->layers[set].window.is_split;
}

static void take_set(const kvern_row *kept, bool has_forms, kvern_row *row)
{
    const kvern_row_image image = {
        .converted = kept->converted,
        .is_other_form = has_forms && kept->converted != row->converted,
        .length = kept->length,
        .keep = (int64_t)kept->kept * KVERN_PAGE_POSITIONS,
        .held = kept->held,
        .floor = kept->floor,
        .ranges = kept->ranges,
        .range_count = kept->range_count,
    };
    row->spare = 0;
    kvern_row_truncate(row, 0);
    kvern_row_image_share(row, &image, kept->table);
    kvern_row_give_back(row);
}

void kvern_kept_row_take(kvern_state *state, size_t row, const kvern_row *kept)
{
    static const kvern_row empty = {0};
    for (size_t s = 0; s < state->batch.sets; s++)
        take_set(kept ? &kept[s] : &empty, has_forms(state, s),
                 &kvern_batch_rows(&state->batch, s).rows[row]);
}

void kvern_kept_row_share(const kvern_row *from, kvern_row *to)
{
    const kvern_row_image image = {
        .converted = from->converted,
        .length = from->length,
        .keep = (int64_t)from->kept * KVERN_PAGE_POSITIONS,
        .held = from->held,
        .floor = from->floor,
        .ranges = from->ranges,
        .range_count = from->range_count,
    };
    kvern_row_image_share(to, &image, from->table);
}

static void cut_layers(kvern_state *state, size_t row, int64_t length)
{
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_planned_layer *layer = kvern_cache_planned(&state->caches[l]);
        const kvern_layer_rows rows = kvern_cache_layer_rows(&state->caches[l]);
        layer->ops->truncate(layer, &rows, row, length);
    }
}

void kvern_kept_row_lend(kvern_state *state, size_t row, const kvern_row *kept,
                         int64_t kept_positions, int64_t positions)
{
    kvern_kept_row_take(state, row, kept);
    state->batch.lengths[row] = positions;
    if (positions < kept_positions)
        cut_layers(state, row, positions);
    KVERN_ASSERT(!kvern_state_walk(state));
}

kvern_status kvern_kept_row_check(const kvern_context *context, const kvern_state *state,
                                  size_t row, size_t count)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (state->composition->context != context)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the state belongs to another context");
    if (row >= state->batch.row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, state->batch.row_count);
    const int64_t length = state->batch.lengths[row];
    if (length == 0)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu is empty", row);
    if (count != (uint64_t)length)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu has %" PRId64 " positions, and not %zu", row,
                          length, count);
    return KVERN_OK;
}
