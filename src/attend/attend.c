// SPDX-License-Identifier: MIT
// How an attend is cut and scheduled. A plan lives in one scratch buffer: the tiles, one slot of
// working memory per worker, and, when tiles are cut by spans, one slot per tile and span for
// partial results. Workers fetch items from a shared counter; whoever finishes the last span of a
// tile merges and writes its results.
#include "src/attend/attend.h"

#include "src/attend/sharing.h"
#include "src/attend/tile.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/math/fpenv.h"

#include <string.h>

// Tiles per thread that are enough to keep all threads busy to the end.
#define TILES_PER_THREAD 4

// Partial results take at most this much scratch; beyond it tiles are not cut by spans.
#define MOST_PARTIAL_BYTES ((size_t)16 << 20)

// Products below which handing work to other threads costs more than it saves.
#define LEAST_PARALLEL_WORK 200000.0

typedef struct plan {
    kvern_attend_job job;
    size_t most_heads; // KV heads that a tile may take
    size_t tile_count;
    size_t span_count; // spans of the longest tile
    bool split;        // an item is one span of a tile, not a whole tile
    size_t workers;
    size_t slot_bytes;     // working memory of a worker
    size_t partial_bytes;  // partial result of a tile and span
    const uint32_t *order; // rows with queries, those that share pages beside each other
    size_t order_count;
    kvern_tile *tiles;
    char *slots;
    char *partials;
    _Atomic size_t next_item;
} plan;

// Queries of one tile are less than so many positions apart, where that matters.
#define TILE_REACH (KVERN_TILE_REACH + KVERN_TILE_VECTORS)

// Numbers that a vector meets at every position.
static size_t numbers_of(const kvern_geometry *g)
{
    size_t numbers = 0;
    for (size_t s = 0; s < g->stream_count; s++)
        numbers += g->streams[s].dim;
    return numbers;
}

// Checks the rows, and looks at how much there is to do.
static kvern_status look_at_rows(plan *p)
{
    const kvern_window *window = &p->job.view->window;
    const size_t kv_heads = p->job.view->geometry->kv_heads;
    size_t most = 0; // tiles
    double work = 0;
    for (size_t r = 0; r < p->job.view->row_count; r++) {
        const int64_t length = p->job.view->rows[r].length;
        size_t vectors, tiles;
        if (!kvern_size_mul((size_t)p->job.queries->counts[r], p->job.group, &vectors) ||
            !kvern_size_mul(kvern_ceil_div(vectors, KVERN_TILE_VECTORS), kv_heads, &tiles) ||
            !kvern_size_add(most, tiles, &most))
            return kvern_fail(KVERN_ERR_OVERFLOW, "row %zu: too many queries", r);
        if (!tiles)
            continue;
        p->span_count =
            kvern_max_size(p->span_count, kvern_most_visible_spans(window, length, TILE_REACH));
        work += (double)vectors * (double)kv_heads * (double)kvern_most_visible(window, length) *
                (double)numbers_of(p->job.view->geometry);
    }
    if (work < LEAST_PARALLEL_WORK)
        p->workers = 1;
    return KVERN_OK;
}

// KV heads of a tile that holds `count` vectors of each: as many as it has room for, and all of a
// row's tiles alike.
static size_t heads_of(const plan *p, size_t count)
{
    const size_t kv_heads = p->job.view->geometry->kv_heads;
    const size_t most = kvern_min_size(p->most_heads, KVERN_TILE_VECTORS / count);
    return kvern_ceil_div(kv_heads, kvern_ceil_div(kv_heads, most));
}

static size_t vectors_of(const plan *p, const uint32_t *rows, size_t count)
{
    size_t vectors = 0;
    for (size_t r = 0; r < count; r++)
        vectors += kvern_row_vectors(&p->job, rows[r]);
    return vectors;
}

static void count_tiles(plan *p)
{
    const size_t kv_heads = p->job.view->geometry->kv_heads;
    p->tile_count = 0;
    for (size_t at = 0, rows; at < p->order_count; at += rows) {
        rows = kvern_sharing_together(&p->job, p->order + at, p->order_count - at);
        const size_t vectors = vectors_of(p, p->order + at, rows);
        const size_t last = vectors % KVERN_TILE_VECTORS;
        p->tile_count += vectors / KVERN_TILE_VECTORS * kv_heads;
        if (last)
            p->tile_count += kvern_ceil_div(kv_heads, heads_of(p, last));
    }
}

// Tiles of many heads read memory best; there must be enough items for all threads, though.
static void choose_tiles(plan *p)
{
    p->most_heads = p->job.view->geometry->kv_heads;
    count_tiles(p);
    while (p->workers > 1 && p->most_heads > 1 && p->span_count &&
           p->tile_count < kvern_ceil_div(TILES_PER_THREAD * p->workers, p->span_count)) {
        p->most_heads = kvern_ceil_div(p->most_heads, 2);
        count_tiles(p);
    }
}

// Whether tiles are cut by spans: only when there are too few of them for the threads.
static bool wants_split(const plan *p)
{
    size_t slots, bytes;
    if (p->workers == 1 || p->span_count < 2 || p->tile_count >= TILES_PER_THREAD * p->workers)
        return false;
    return kvern_size_mul(p->tile_count, p->span_count, &slots) &&
           kvern_size_mul(slots, p->partial_bytes, &bytes) && bytes <= MOST_PARTIAL_BYTES;
}

static size_t item_count(const plan *p)
{
    return p->split ? p->tile_count * p->span_count : p->tile_count;
}

// Bytes of the scratch buffer with `partials` bytes of partial results; the three parts follow each
// other, each aligned to a cache line.
static kvern_status scratch_bytes(const plan *p, size_t partials, size_t *tiles, size_t *total)
{
    size_t slots;
    if (!kvern_size_mul(p->tile_count, sizeof(kvern_tile), tiles) ||
        !kvern_size_mul(p->workers, p->slot_bytes, &slots) || *tiles > SIZE_MAX - 64)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles do not fit memory", p->tile_count);
    *tiles = (*tiles + 63) & ~(size_t)63;
    if (!kvern_size_add(*tiles, slots, total) || !kvern_size_add(*total, partials, total))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles do not fit memory", p->tile_count);
    return KVERN_OK;
}

// The tiles of `count` vectors of some rows from vector `first` on, all KV heads; returns how many.
static size_t place_heads(const plan *p, kvern_tile *tiles, const uint32_t *rows, size_t row_count,
                          size_t first, size_t count)
{
    const size_t kv_heads = p->job.view->geometry->kv_heads, most = heads_of(p, count);
    kvern_tile *tile = tiles;
    for (size_t head = 0; head < kv_heads; head += most, tile++) {
        tile->rows = rows;
        tile->row_count = row_count;
        tile->head = head;
        tile->heads = kvern_min_size(most, kv_heads - head);
        tile->first = first;
        tile->count = count;
        kvern_tile_place(&p->job, tile);
        tile->pending = tile->spans;
    }
    return (size_t)(tile - tiles);
}

static void place_tiles(plan *p)
{
    kvern_tile *tile = p->tiles;
    for (size_t at = 0, rows; at < p->order_count; at += rows) {
        rows = kvern_sharing_together(&p->job, p->order + at, p->order_count - at);
        const size_t vectors = vectors_of(p, p->order + at, rows);
        for (size_t first = 0; first < vectors; first += KVERN_TILE_VECTORS)
            tile += place_heads(p, tile, p->order + at, rows, first,
                                kvern_min_size(vectors - first, KVERN_TILE_VECTORS));
    }
}

static kvern_partial partial_of(const plan *p, size_t tile, size_t span)
{
    const size_t slot = tile * p->span_count + span;
    return kvern_partial_at(&p->job, p->partials + slot * p->partial_bytes);
}

static void run_split_item(plan *p, size_t item, kvern_workspace *work)
{
    kvern_tile *tile = &p->tiles[item / p->span_count];
    const size_t index = (size_t)(tile - p->tiles), span = item % p->span_count;
    if (span >= tile->spans)
        return;
    kvern_tile_load(&p->job, tile, work);
    kvern_partial partial = partial_of(p, index, span);
    kvern_tile_span(&p->job, tile, span, work, &partial);
    if (atomic_fetch_sub(&tile->pending, 1) != 1)
        return;
    kvern_partial first = partial_of(p, index, 0);
    for (size_t s = 1; s < tile->spans; s++) {
        const kvern_partial next = partial_of(p, index, s);
        kvern_tile_merge(&p->job, tile, s, work, &first, &next);
    }
    kvern_tile_finish(&p->job, tile, &first);
}

static void run_whole_item(plan *p, size_t item, kvern_workspace *work)
{
    kvern_tile *tile = &p->tiles[item];
    kvern_tile_load(&p->job, tile, work);
    kvern_tile_span(&p->job, tile, 0, work, &work->total);
    for (size_t s = 1; s < tile->spans; s++) {
        kvern_tile_span(&p->job, tile, s, work, &work->span);
        kvern_tile_merge(&p->job, tile, s, work, &work->total, &work->span);
    }
    kvern_tile_finish(&p->job, tile, &work->total);
}

static void run_worker(void *arg, size_t index)
{
    plan *p = arg;
    const kvern_fp_saved saved = kvern_fp_enter();
    kvern_workspace work = kvern_workspace_at(&p->job, p->slots + index * p->slot_bytes);
    const size_t items = item_count(p);
    size_t taken;
    while ((taken = atomic_fetch_add(&p->next_item, 1)) < items) {
        const size_t item =
            items - 1 - taken; // the last tiles see the most positions: largest first
        if (p->split)
            run_split_item(p, item, &work);
        else
            run_whole_item(p, item, &work);
    }
    kvern_fp_leave(saved);
}

static void init_plan(plan *p, const kvern_context *context, const kvern_view *view,
                      const kvern_queries *queries)
{
    memset(p, 0, sizeof *p);
    p->job.view = view;
    p->job.kernels = kvern_softmax_kernels_of(context->cpu_features);
    p->job.queries = queries;
    p->job.group = queries->query_heads / view->geometry->kv_heads;
    p->workers = context->executor.threads;
    p->slot_bytes = kvern_workspace_bytes(&p->job);
    p->partial_bytes = kvern_partial_bytes(&p->job);
}

kvern_status kvern_attend(kvern_context *context, const kvern_view *view,
                          const kvern_queries *queries, uint32_t *order)
{
    plan p;
    init_plan(&p, context, view, queries);
    kvern_status status = look_at_rows(&p);
    if (status)
        return status;
    p.order = order;
    p.order_count = kvern_sharing_order(&p.job, order, order + view->row_count);
    choose_tiles(&p);
    if (p.tile_count == 0)
        return KVERN_OK;
    p.split = wants_split(&p);
    p.workers = kvern_min_size(p.workers, item_count(&p));
    size_t tile_bytes, bytes;
    const size_t partials = p.split ? p.tile_count * p.span_count * p.partial_bytes : 0;
    if ((status = scratch_bytes(&p, partials, &tile_bytes, &bytes)))
        return status;
    void *scratch;
    if ((status = kvern_shelf_take(context, &context->scratch, bytes, &scratch)))
        return status;
    p.tiles = scratch;
    p.slots = (char *)scratch + tile_bytes;
    p.partials = p.slots + p.workers * p.slot_bytes;
    place_tiles(&p);
    if (p.workers == 1)
        run_worker(&p, 0);
    else
        context->executor.run(context->executor.user, p.workers, run_worker, &p);
    kvern_shelf_give(context, &context->scratch, scratch);
    return KVERN_OK;
}

// The most that attends of up to tile_count tiles and span_count spans keep as partial results.
// Fewer tiles can take more than many do: only few are cut by spans.
static size_t most_partial_bytes(const plan *p)
{
    size_t slots, bytes;
    if (p->workers == 1 || p->span_count < 2)
        return 0;
    const size_t tiles = kvern_min_size(p->tile_count, TILES_PER_THREAD * p->workers - 1);
    if (!kvern_size_mul(tiles, p->span_count, &slots) ||
        !kvern_size_mul(slots, p->partial_bytes, &bytes))
        return MOST_PARTIAL_BYTES;
    return kvern_min_size(bytes, MOST_PARTIAL_BYTES);
}

size_t kvern_attend_scratch_bytes(const kvern_context *context, const kvern_view *view,
                                  size_t query_heads, int64_t positions)
{
    plan p;
    const kvern_queries queries = {.query_heads = query_heads};
    init_plan(&p, context, view, &queries);
    const size_t row_tiles =
        kvern_ceil_div(p.job.group, KVERN_TILE_VECTORS) * view->geometry->kv_heads;
    size_t tile_bytes, bytes;
    if (query_heads == 0)
        return 0;
    if (!kvern_size_mul(row_tiles, view->row_count, &p.tile_count))
        return SIZE_MAX;
    p.span_count = kvern_most_visible_spans(&view->window, positions, TILE_REACH);
    return scratch_bytes(&p, most_partial_bytes(&p), &tile_bytes, &bytes) ? SIZE_MAX : bytes;
}
