// SPDX-License-Identifier: MIT
// How an attend is cut and scheduled. A plan lives in one scratch buffer: the tiles, one slot of
// working memory per worker, and what tiles that are cut by spans need. Which tiles are cut depends
// on how long they are beside all others, so that a long row keeps all threads busy among short
// ones as well as alone. Workers take spans of cut tiles first, then whole tiles.
#include "src/attend/attend.h"

#include "src/attend/sharing.h"
#include "src/attend/split.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/math/fpenv.h"

#include <string.h>

// Items of equal size per thread that are enough to keep all threads busy to the end.
#define ITEMS_PER_THREAD 4

// Products below which handing work to other threads costs more than it saves.
#define LEAST_PARALLEL_WORK 200000.0

typedef struct plan {
    kvern_attend_job job;
    size_t most_heads; // KV heads that a tile may take
    size_t tile_count;
    size_t most_spans;  // of a tile, at most
    size_t total_spans; // of all tiles together
    size_t whole_spans; // a tile with more is cut
    size_t workers;
    size_t slot_bytes;     // working memory of a worker
    const uint32_t *order; // rows with queries, those that share pages beside each other
    size_t order_count;
    kvern_tile *tiles; // the cut ones in front
    size_t placed_cut, placed_whole;
    kvern_split split; // the cut ones
    char *slots;
    _Atomic size_t next_whole;
} plan;

// Queries of one tile are less than so many positions apart, where that matters.
#define TILE_REACH (KVERN_TILE_REACH + KVERN_TILE_VECTORS)

// Numbers that a vector meets at every position.
static size_t numbers_of(const kvern_geometry *g)
{
    size_t numbers = 0;
    for (size_t s = 0; s < g->stream_count; s++)
        numbers += (g->streams[s].role & KVERN_ROLE_SCORE ? g->streams[s].dim : 0) +
                   (g->streams[s].role & KVERN_ROLE_VALUE ? g->streams[s].dim : 0);
    return numbers;
}

// Of a tile of the row's queries, at most.
static size_t most_spans(const kvern_window *window, const kvern_read_row *row)
{
    const size_t passes = window->is_split ? KVERN_PASSES : 1;
    if (row->ranges || row->block)
        return passes * kvern_ceil_div((size_t)row->length, KVERN_SPAN_POSITIONS);
    return kvern_most_visible_spans(window, row->length, TILE_REACH);
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
        p->most_spans = kvern_max_size(p->most_spans, most_spans(window, &p->job.view->rows[r]));
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
    KVERN_ASSERT(count > 0 && count <= KVERN_TILE_VECTORS && p->most_heads > 0);
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
    while (p->workers > 1 && p->most_heads > 1 && p->most_spans &&
           p->tile_count < kvern_ceil_div(ITEMS_PER_THREAD * p->workers, p->most_spans)) {
        p->most_heads = kvern_ceil_div(p->most_heads, 2);
        count_tiles(p);
    }
}

// ---- Tiles ----

typedef void visit_tile(plan *p, const kvern_tile *tile);

// Visits the tiles of `count` vectors of some rows from vector `first` on, all KV heads.
static void visit_heads(plan *p, const uint32_t *rows, size_t row_count, size_t first, size_t count,
                        visit_tile *visit)
{
    const size_t kv_heads = p->job.view->geometry->kv_heads, most = heads_of(p, count);
    for (size_t head = 0; head < kv_heads; head += most) {
        kvern_tile tile = {
            .rows = rows,
            .row_count = row_count,
            .head = head,
            .heads = kvern_min_size(most, kv_heads - head),
            .first = first,
            .count = count,
        };
        kvern_tile_place(&p->job, &tile);
        visit(p, &tile);
    }
}

static void visit_tiles(plan *p, visit_tile *visit)
{
    for (size_t at = 0, rows; at < p->order_count; at += rows) {
        rows = kvern_sharing_together(&p->job, p->order + at, p->order_count - at);
        const size_t vectors = vectors_of(p, p->order + at, rows);
        for (size_t first = 0; first < vectors; first += KVERN_TILE_VECTORS)
            visit_heads(p, p->order + at, rows, first,
                        kvern_min_size(vectors - first, KVERN_TILE_VECTORS), visit);
    }
}

static void add_spans(plan *p, const kvern_tile *tile)
{
    p->total_spans += tile->spans;
}

static void count_if_cut(plan *p, const kvern_tile *tile)
{
    if (tile->spans <= p->whole_spans)
        return;
    p->split.tile_count++;
    p->split.span_count += tile->spans;
    p->split.vectors = kvern_max_size(p->split.vectors, tile->heads * tile->count);
}

// Of the whole tiles the last ones, which see the most positions, come first: largest first.
static void place(plan *p, const kvern_tile *tile)
{
    KVERN_ASSERT(p->placed_cut + p->placed_whole < p->tile_count);
    if (tile->spans > p->whole_spans)
        p->tiles[p->placed_cut++] = *tile;
    else
        p->tiles[p->tile_count - 1 - p->placed_whole++] = *tile;
}

// A tile is cut when it has more than a fair item's share of all spans. There are fewer such tiles
// than items that are enough.
static void choose_cut(plan *p)
{
    p->whole_spans = SIZE_MAX;
    if (p->workers == 1 || p->most_spans < 2)
        return;
    visit_tiles(p, add_spans);
    p->whole_spans = kvern_max_size(1, p->total_spans / (ITEMS_PER_THREAD * p->workers));
    visit_tiles(p, count_if_cut);
    KVERN_ASSERT(p->split.tile_count < ITEMS_PER_THREAD * p->workers);
}

// ---- Scratch ----

// Bytes of the scratch buffer, and of the tiles in it. Its three parts follow each other, each
// aligned to a cache line.
static kvern_status scratch_bytes(const plan *p, size_t *tiles, size_t *total)
{
    size_t slots, split;
    if (!kvern_size_mul(p->tile_count, sizeof(kvern_tile), tiles) ||
        !kvern_size_mul(p->workers, p->slot_bytes, &slots) || *tiles > SIZE_MAX - 64)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles do not fit memory", p->tile_count);
    *tiles = (*tiles + 63) & ~(size_t)63;
    if (!kvern_split_bytes(&p->split, &split) || !kvern_size_add(*tiles, slots, total) ||
        !kvern_size_add(*total, split, total))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles do not fit memory", p->tile_count);
    return KVERN_OK;
}

// ---- Work ----

static void attend_whole(const plan *p, const kvern_tile *tile, kvern_workspace *work)
{
    for (size_t s = 0; s < tile->spans; s++) {
        kvern_partial *to = s == 0 ? &work->total : &work->span;
        if (s == 0 || s == tile->coded_spans)
            kvern_tile_load(&p->job, tile, kvern_tile_pass(tile, s), work);
        kvern_tile_span(&p->job, tile, s, work, to);
        if (s > 0)
            kvern_tile_merge(&p->job, tile, s, work, &work->total, to);
    }
    kvern_tile_finish(&p->job, tile, &work->total);
}

static void run_worker(void *arg, size_t index)
{
    plan *p = arg;
    KVERN_ASSERT(index < p->workers);
    const kvern_fp_saved saved = kvern_fp_enter();
    kvern_workspace work = kvern_workspace_at(&p->job, p->slots + index * p->slot_bytes);
    const size_t whole = p->tile_count - p->split.tile_count;
    size_t taken;
    kvern_split_work(&p->split, &work);
    while ((taken = atomic_fetch_add(&p->next_whole, 1)) < whole)
        attend_whole(p, &p->tiles[p->split.tile_count + taken], &work);
    kvern_fp_leave(saved);
}

static void init_plan(plan *p, const kvern_context *context, const kvern_view *view,
                      const kvern_queries *queries)
{
    memset(p, 0, sizeof *p);
    p->job.view = view;
    p->job.kernels = kvern_softmax_kernels_of(context->cpu_features);
    p->job.queries = queries;
    if (kvern_values_are_keys(view->geometry))
        p->job.latent = kvern_latent_kernels_of(context->cpu_features);
    p->job.group = queries->query_heads / view->geometry->kv_heads;
    KVERN_ASSERT(queries->query_heads % view->geometry->kv_heads == 0);
    p->workers = context->executor.threads;
    p->slot_bytes = kvern_workspace_bytes(&p->job);
    p->split.job = &p->job;
}

// Makes a plan, and says what scratch it needs: nothing without queries.
static kvern_status make_plan(plan *p, const kvern_context *context, const kvern_view *view,
                              const kvern_queries *queries, uint32_t *order, size_t *tile_bytes,
                              size_t *bytes)
{
    *tile_bytes = *bytes = 0;
    init_plan(p, context, view, queries);
    kvern_status status = look_at_rows(p);
    if (status)
        return status;
    p->order = order;
    p->order_count = kvern_sharing_order(&p->job, order, order + view->row_count);
    KVERN_ASSERT(p->order_count <= view->row_count);
    choose_tiles(p);
    if (p->tile_count == 0)
        return KVERN_OK;
    choose_cut(p);
    p->workers =
        kvern_min_size(p->workers, p->split.span_count + p->tile_count - p->split.tile_count);
    p->split.workers = p->workers;
    return scratch_bytes(p, tile_bytes, bytes);
}

static void run_plan(plan *p, const kvern_context *context, size_t tile_bytes, void *scratch)
{
    p->tiles = scratch;
    p->slots = (char *)scratch + tile_bytes;
    visit_tiles(p, place);
    KVERN_ASSERT(p->placed_cut == p->split.tile_count &&
                 p->placed_cut + p->placed_whole == p->tile_count);
    p->split.tiles = p->tiles;
    kvern_split_place(&p->split, p->slots + p->workers * p->slot_bytes);
    if (p->workers == 1)
        run_worker(p, 0);
    else
        context->executor.run(context->executor.user, p->workers, run_worker, p);
}

kvern_status kvern_attend(kvern_context *context, kvern_reservation *reservation,
                          const kvern_view *view, const kvern_queries *queries, uint32_t *order)
{
    plan p;
    size_t tile_bytes, bytes;
    void *scratch;
    kvern_status status = make_plan(&p, context, view, queries, order, &tile_bytes, &bytes);
    if (status || bytes == 0)
        return status;
    if ((status = kvern_buffer_take(context, reservation, KVERN_SCRATCH, bytes, &scratch)))
        return status;
    run_plan(&p, context, tile_bytes, scratch);
    kvern_buffer_give(context, scratch);
    return KVERN_OK;
}

kvern_status kvern_attend_within(kvern_context *context, const kvern_view *view,
                                 const kvern_queries *queries, uint32_t *order, void *scratch,
                                 size_t room)
{
    plan p;
    size_t tile_bytes, bytes;
    kvern_status status = make_plan(&p, context, view, queries, order, &tile_bytes, &bytes);
    KVERN_ASSERT(status || bytes <= room);
    if (!status && bytes > room)
        status = kvern_fail(KVERN_ERR_MEMORY, "an attend of %zu bytes in %zu", bytes, room);
    if (!status && bytes > 0)
        run_plan(&p, context, tile_bytes, scratch);
    return status;
}

// What attends of up to tile_count tiles, none with more than most_spans spans, cut at most.
static bool foresee_cut(plan *p)
{
    if (p->workers == 1 || p->most_spans < 2)
        return true;
    p->split.workers = p->workers;
    p->split.vectors = KVERN_TILE_VECTORS;
    p->split.tile_count = kvern_min_size(p->tile_count, ITEMS_PER_THREAD * p->workers - 1);
    return kvern_size_mul(p->split.tile_count, p->most_spans, &p->split.span_count);
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
    p.most_spans = kvern_most_visible_spans(&view->window, positions, TILE_REACH);
    return !foresee_cut(&p) || scratch_bytes(&p, &tile_bytes, &bytes) ? SIZE_MAX : bytes;
}
