// SPDX-License-Identifier: MIT
// Appends: check the caller's view, take all room, then store.
#include "src/state/append.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/state/both_ways.h"
#include "src/state/settle.h"
#include "src/state/walk.h"

#include <inttypes.h>
#include <string.h>

const kvern_sized kvern_tokens_sizes = KVERN_SIZED(
    kvern_tokens, KVERN_SIZE_TO(kvern_tokens, v_start), KVERN_SIZE_TO(kvern_tokens, flags));

void kvern_tokens_init(kvern_tokens *tokens, size_t size, const kvern_layer *layer)
{
    const kvern_tokens defaults = {
        .k_type = KVERN_F32,
        .v_type = KVERN_F32,
        .k_head_stride = (int64_t)layer->k_dim,
        .v_head_stride = (int64_t)layer->v_dim,
        .k_token_stride = (int64_t)(layer->kv_heads * layer->k_dim),
        .v_token_stride = (int64_t)(layer->kv_heads * layer->v_dim),
    };
    kvern_sized_init(&kvern_tokens_sizes, &defaults, tokens, size);
}

kvern_lane_views kvern_tokens_views(const kvern_tokens *t, kvern_phase phase)
{
    return (kvern_lane_views){
        .lanes =
            {
                [KVERN_LANE_K] = {t->k, t->k_type, t->k_token_stride, t->k_head_stride, t->k_start},
                [KVERN_LANE_V] = {t->v, t->v_type, t->v_token_stride, t->v_head_stride, t->v_start},
            },
        .both = {phase, t->ranges, t->range_counts, t->flags},
    };
}

void kvern_cache_fill_read(const kvern_cache *cache, const kvern_layer_rows *rows,
                           const int64_t *counts, kvern_read *read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    KVERN_ASSERT(!read->composition && read->row_count == rows->count);
    kvern_composition_retain(cache->composition);
    read->composition = cache->composition;
    layer->ops->fill_read(layer, rows, counts, read);
}

// Takes all that the append can fail for besides its room. What both_ways has made goes with that.
static kvern_status prepare_rest(kvern_cache *cache, const kvern_both_ways *both,
                                 const int64_t *counts, kvern_settling *settling, kvern_read **read)
{
    kvern_status status = kvern_both_ways_prepare(cache, both, counts);
    if (!status && settling)
        status = kvern_settling_prepare(cache, 1, counts, true, read != NULL, settling);
    if (status || !read)
        return status;
    status = kvern_read_create(kvern_cache_context(cache), cache->batch->reservation,
                               cache->batch->row_count, read);
    if (status && settling)
        kvern_settling_cancel(settling);
    return status;
}

kvern_status kvern_cache_store(kvern_cache *cache, const kvern_lane_views *views,
                               const int64_t *counts, bool settle, kvern_read **read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_settling settling;
    KVERN_ASSERT(!cache->appended);
    kvern_status status = layer->ops->check_tokens(layer, views, counts, rows.count);
    if (!status)
        status = kvern_both_ways_check(cache, &views->both, counts);
    if (!status)
        status = layer->ops->prepare(layer, &rows, counts, 0, 0);
    if (status)
        return status;
    if ((status = prepare_rest(cache, &views->both, counts, settle ? &settling : NULL, read))) {
        layer->ops->cancel(layer, &rows);
        return status;
    }
    layer->ops->commit(layer, &rows);
    layer->ops->store(layer, &rows, views, counts);
    kvern_both_ways_commit(cache, &views->both);
    if (read)
        kvern_cache_fill_read(cache, &rows, counts, *read);
    if (settle)
        kvern_settling_commit(&settling);
    return KVERN_OK;
}

static kvern_status check_donor(const kvern_cache *cache, const int64_t *counts)
{
    if (!cache || (cache->batch->row_count && !counts))
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or counts is NULL");
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_status status =
        layer->geometry.stream_count ? KVERN_OK : kvern_layer_check_lane(layer, KVERN_LANE_K);
    for (size_t r = 0; r < rows.count && !status; r++) {
        if (cache->rows[r].handed_out && !cache->appended)
            return kvern_fail(KVERN_ERR_BUSY, "row %zu: a slot of the open step is handed out", r);
        status = layer->ops->check_donor(layer, &rows, r, counts[r]);
    }
    return status;
}

kvern_status kvern_cache_read_donor(const kvern_cache *cache, const int64_t *counts,
                                    kvern_read **read)
{
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    *read = NULL;
    kvern_status status = check_donor(cache, counts);
    if (!status)
        status = kvern_read_create(kvern_cache_context(cache), cache->batch->reservation,
                                   cache->batch->row_count, read);
    if (status)
        return status;
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_cache_fill_read(cache, &rows, counts, *read);
    return KVERN_OK;
}

// In canonical arithmetic every query of a window is computed like a decode at its position, which
// is all that a known span asks for: the phases differ in what they permit.
kvern_status kvern_cache_append_lanes(kvern_cache *cache, kvern_phase phase,
                                      const kvern_lane_views *views, const int64_t *counts,
                                      kvern_read **read)
{
    kvern_status status = kvern_batch_check_counts(cache->batch, phase, counts);
    if (!status)
        status = kvern_layer_check_phase(kvern_cache_planned(cache), phase);
    if (!status)
        status = kvern_cache_store(cache, views, counts, true, read);
    for (size_t r = 0; !status && r < cache->batch->row_count; r++)
        cache->batch->lengths[r] += counts[r];
    KVERN_ASSERT(status || !kvern_caches_walk(cache));
    return status;
}

kvern_status kvern_cache_append(kvern_cache *cache, kvern_phase phase, const kvern_tokens *tokens,
                                kvern_read **read)
{
    if (read)
        *read = NULL;
    if (!tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "tokens is NULL");
    kvern_tokens known;
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = kvern_sized_read(&kvern_tokens_sizes, tokens, &known);
    if (!status)
        status = kvern_layer_check_lane(kvern_cache_planned(cache), KVERN_LANE_K);
    if (status)
        return status;
    const kvern_lane_views views = kvern_tokens_views(&known, phase);
    return kvern_cache_append_lanes(cache, phase, &views, known.counts, read);
}
