// SPDX-License-Identifier: MIT
// Block reads: a read of a row and of a block behind it that is not appended. The block is stored
// in a share of the row, as an append would store it, and the share is given up when the read has
// been made; so its pages belong to the read, and the row does not notice.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/state/append.h"

#include <string.h>

// The shares of a cache's rows, for the length of a call.
typedef struct shares {
    const kvern_cache *cache;
    kvern_layer_rows rows;
} shares;

static kvern_status take_shares(const kvern_cache *cache, shares *out)
{
    const size_t count = cache->batch->row_count;
    const size_t bytes = (count + 1) * (sizeof(kvern_row) + sizeof(kvern_row_change));
    void *memory;
    kvern_status status = kvern_buffer_take(kvern_cache_context(cache), cache->batch->reservation,
                                            KVERN_OBJECT, bytes, &memory);
    if (status)
        return status;
    memset(memory, 0, bytes);
    out->cache = cache;
    out->rows = (kvern_layer_rows){.count = count, .rows = memory};
    out->rows.changes = (kvern_row_change *)(out->rows.rows + count + 1);
    for (size_t r = 0; r < count; r++)
        kvern_row_share(&cache->rows[r], &out->rows.rows[r]);
    return KVERN_OK;
}

static void give_shares(shares *s, bool failed)
{
    for (size_t r = 0; r < s->rows.count; r++)
        kvern_row_reset(&s->rows.rows[r]);
    if (failed)
        kvern_buffer_undo(kvern_cache_context(s->cache), s->rows.rows);
    else
        kvern_buffer_give(kvern_cache_context(s->cache), s->rows.rows);
}

// Stores the block and makes the read, or neither.
static kvern_status read_shares(shares *s, const kvern_lane_views *views, const int64_t *counts,
                                kvern_read **read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(s->cache);
    kvern_status status = layer->ops->prepare(layer, &s->rows, counts, 0, 0);
    if (status)
        return status;
    status = kvern_read_create(layer->context, s->cache->batch->reservation, s->rows.count, read);
    if (status) {
        layer->ops->cancel(layer, &s->rows);
        return status;
    }
    layer->ops->commit(layer, &s->rows);
    layer->ops->store(layer, &s->rows, views, counts);
    kvern_cache_fill_read(s->cache, &s->rows, counts, *read);
    for (size_t r = 0; r < s->rows.count; r++)
        (*read)->rows[r].block = counts[r] > 0;
    return KVERN_OK;
}

static kvern_status check(const kvern_cache *cache, const kvern_tokens *tokens)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    if (!layer->ops->can(layer, KVERN_CAN_BLOCK))
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: of kind %d, %s, which reads no blocks",
                          layer->index, (int)layer->plan.kind, layer->signature);
    if (tokens->ranges || tokens->range_counts || tokens->flags)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "ranges or flags in a block, whose tokens all see each other");
    return kvern_batch_check_counts(cache->batch, KVERN_PHASE_WINDOW, tokens->counts);
}

// What a step has stored is read, too.
static kvern_status check_rows(const kvern_cache *cache, const int64_t *counts)
{
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        if (cache->rows[r].handed_out && !cache->appended)
            return kvern_fail(KVERN_ERR_BUSY, "row %zu: a slot of the open step is handed out", r);
        if (counts[r] > KVERN_MAX_POSITIONS - cache->rows[r].length)
            return kvern_fail(KVERN_ERR_RANGE, "row %zu: a block beyond the last position", r);
    }
    return KVERN_OK;
}

kvern_status kvern_cache_read_block(const kvern_cache *cache, const kvern_tokens *tokens,
                                    kvern_read **read)
{
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    *read = NULL;
    if (!cache || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or tokens is NULL");
    kvern_tokens known;
    kvern_status status = kvern_sized_read(&kvern_tokens_sizes, tokens, &known);
    if (!status)
        status = check(cache, &known);
    if (!status)
        status = check_rows(cache, known.counts);
    if (status)
        return status;
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_lane_views views = kvern_tokens_views(&known, KVERN_PHASE_WINDOW);
    shares s;
    status = layer->ops->check_tokens(layer, &views, known.counts, cache->batch->row_count);
    if (!status)
        status = take_shares(cache, &s);
    if (status)
        return status;
    status = read_shares(&s, &views, known.counts, read);
    give_shares(&s, status != KVERN_OK);
    return status;
}
