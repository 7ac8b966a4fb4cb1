// SPDX-License-Identifier: MIT
// Looking at the lanes that rows of latents, and reads of them, store.
#include "src/attend/read.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/math/fpenv.h"
#include "src/state/cache.h"

#include <inttypes.h>
#include <kvern/latent.h>

// Where the lanes go; NULL: not wanted.
typedef struct wanted {
    float *lanes[KVERN_LANES];
} wanted;

static wanted lanes_of(float *latent, float *rope, float *index)
{
    return (wanted){
        {[KVERN_LANE_LATENT] = latent, [KVERN_LANE_ROPE] = rope, [KVERN_LANE_INDEX] = index}};
}

static const kvern_stream_plan *find(const kvern_geometry *g, size_t lane)
{
    for (size_t s = 0; s < g->stream_count; s++) {
        if (g->streams[s].lane == lane)
            return &g->streams[s];
    }
    return NULL;
}

static kvern_status check(const kvern_geometry *g, const wanted *to, int64_t length, size_t row,
                          int64_t position, int64_t count)
{
    static const char *const names[KVERN_LANES] = {
        [KVERN_LANE_ROPE] = "rope", [KVERN_LANE_INDEX] = "index"};
    KVERN_ASSERT(find(g, KVERN_LANE_LATENT));
    for (size_t lane = KVERN_LANE_ROPE; lane <= KVERN_LANE_INDEX; lane++) {
        if (to->lanes[lane] && !find(g, lane))
            return kvern_fail(KVERN_ERR_ARGUMENT, "%s is asked for, and the layer has none",
                              names[lane]);
    }
    if (position < 0 || count < 0 || count > length || position > length - count)
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: %" PRId64 " positions from %" PRId64
                          " on, and it holds %" PRId64,
                          row, count, position, length);
    return KVERN_OK;
}

static void export_lane(const kvern_stream_plan *stream, const kvern_table *table, int64_t position,
                        int64_t count, float *to)
{
    for (int64_t at = position; at < position + count; at++, to += stream->dim)
        kvern_stream_decode(stream,
                            kvern_table_page(table, (size_t)at / KVERN_PAGE_POSITIONS)->data, 0,
                            (size_t)at % KVERN_PAGE_POSITIONS, to);
}

static void export_lanes(const kvern_geometry *g, const kvern_table *table, int64_t position,
                         int64_t count, const wanted *to)
{
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t s = 0; s < g->stream_count; s++) {
        if (to->lanes[g->streams[s].lane])
            export_lane(&g->streams[s], table, position, count, to->lanes[g->streams[s].lane]);
    }
    kvern_fp_leave(saved);
}

kvern_status kvern_cache_export_latent(const kvern_cache *cache, size_t row, int64_t position,
                                       int64_t count, float *latent, float *rope, float *index)
{
    const wanted to = lanes_of(latent, rope, index);
    if (!cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache is NULL");
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    kvern_status status = kvern_batch_check_no_round(cache->batch);
    if (!status)
        status = kvern_layer_check_lane(layer, KVERN_LANE_LATENT);
    if (status)
        return status;
    if (row >= cache->batch->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, cache->batch->row_count);
    const kvern_row *from = &cache->rows[row];
    status = check(&layer->geometry, &to, from->length, row, position, count);
    if (!status)
        export_lanes(&layer->geometry, from->table, position, count, &to);
    return status;
}

kvern_status kvern_read_export_latent(const kvern_read *read, size_t row, int64_t position,
                                      int64_t count, float *latent, float *rope, float *index)
{
    const wanted to = lanes_of(latent, rope, index);
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    if (!find(read->geometry, KVERN_LANE_LATENT))
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "the read is of a layer without latents");
    if (row >= read->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, read->row_count);
    const kvern_read_row *from = &read->rows[row];
    kvern_status status = check(read->geometry, &to, from->length, row, position, count);
    if (!status)
        export_lanes(read->geometry, from->table, position, count, &to);
    return status;
}
