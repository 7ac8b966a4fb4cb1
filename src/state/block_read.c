// SPDX-License-Identifier: MIT
// Block reads: a read of a row and of a block behind it that is not appended. The block is stored
// as an append would store it, in memory that the read alone holds (src/rows/block_row.h) and that
// the next one uses again.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/attention.h"
#include "src/rows/block_row.h"
#include "src/state/append.h"

#include <inttypes.h>

// The pool of what a row stores now.
static kvern_pool *pool_of(const kvern_cache *cache, size_t row)
{
    return kvern_attention_form(kvern_cache_planned(cache), &cache->rows[row]).pool;
}

// In front of the block rows: what they are made of, and the other rows as they are.
static size_t rows_bytes(const kvern_cache *cache)
{
    const size_t bytes = (cache->batch->row_count + 1) * sizeof(kvern_row);
    return kvern_ceil_div(bytes, KVERN_HEAP_ALIGNMENT) * KVERN_HEAP_ALIGNMENT;
}

static bool row_bytes(const kvern_cache *cache, size_t row, int64_t count, size_t *bytes)
{
    *bytes = 0;
    return count == 0 ||
           kvern_block_row_bytes(pool_of(cache, row), &cache->rows[row], count, bytes);
}

// Memory for the block rows. No reservation counts it, nor is any used up by it.
static kvern_status take_memory(const kvern_cache *cache, const int64_t *counts, void **memory)
{
    size_t all = rows_bytes(cache);
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        size_t bytes;
        if (!row_bytes(cache, r, counts[r], &bytes) || !kvern_size_add(all, bytes, &all))
            return kvern_fail(KVERN_ERR_OVERFLOW,
                              "row %zu: a block of %" PRId64 " tokens does not fit memory", r,
                              counts[r]);
    }
    return kvern_buffer_take(kvern_cache_context(cache), NULL, KVERN_SCRATCH, all, memory);
}

static void make_rows(const kvern_cache *cache, const int64_t *counts, char *memory,
                      kvern_row *rows)
{
    char *at = memory + rows_bytes(cache);
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        size_t bytes;
        const bool fits = row_bytes(cache, r, counts[r], &bytes);
        KVERN_ASSERT(fits);
        (void)fits;
        if (counts[r])
            kvern_block_row_make(pool_of(cache, r), &cache->rows[r], counts[r], at, &rows[r]);
        else
            rows[r] = cache->rows[r];
        at += bytes;
    }
}

// Where some positions are kept precise, the block is: the coded rows do not follow.
static void fill(const kvern_cache *cache, const kvern_lane_views *views, const int64_t *counts,
                 void *memory, kvern_read *read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_row *const coded = rows.coded;
    rows.rows = memory;
    rows.coded = NULL;
    make_rows(cache, counts, memory, rows.rows);
    layer->ops->store(layer, &rows, views, counts);
    rows.coded = coded;
    kvern_cache_fill_read(cache, &rows, counts, read);
    read->blocks = memory;
    for (size_t r = 0; r < rows.count; r++) {
        read->rows[r].block = counts[r] > 0;
        if (counts[r])
            kvern_table_release(rows.rows[r].table); // the read holds it
    }
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
    void *memory;
    status = layer->ops->check_tokens(layer, &views, known.counts, cache->batch->row_count);
    if (!status)
        status = take_memory(cache, known.counts, &memory);
    if (status)
        return status;
    status =
        kvern_read_create(layer->context, cache->batch->reservation, cache->batch->row_count, read);
    if (status)
        kvern_buffer_undo(layer->context, memory);
    else
        fill(cache, &views, known.counts, memory, *read);
    return status;
}
