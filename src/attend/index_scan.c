// SPDX-License-Identifier: MIT
#include "src/attend/index_scan.h"

#include "src/attend/index_score.h"
#include "src/attend/latent_kernels.h"
#include "src/attend/top_positions.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/math/element.h"
#include "src/math/fpenv.h"

#include <string.h>

// Queries of a tile at most: so many that their heads fill the score kernels.
#define MOST_QUERIES 16
#define TILE_VECTORS 128

// Tiles of a round for each thread.
#define TILES_PER_THREAD 2

// Positions of a chunk.
#define CHUNK KVERN_SPAN_POSITIONS

// Dims of keys that are decoded at a time: 16 KB.
#define PIECE 64

// Vectors are scored by groups of as many at most (kvern_latent_kernels.group).
#define MOST_GROUP 8

// Products below which handing work to other threads costs more than it saves.
#define LEAST_PARALLEL_WORK 200000.0

// Queries of one row, those that see more than top_k positions.
typedef struct scan_tile {
    kvern_query_number first;
    size_t count;
    int64_t end; // of the positions that its last query sees
    size_t first_chunk, chunks;
    _Atomic size_t left; // chunks that are not scored yet
    uint32_t *keys;      // [count][most_positions]
} scan_tile;

// How large a round is.
typedef struct scan_extent {
    size_t tiles, tile_queries;
    size_t most_positions; // that a query sees, in whole blocks
    size_t query_floats;
    size_t heads;
    size_t workers;
} scan_extent;

typedef struct scan {
    const kvern_view *view;
    const kvern_index_queries *queries;
    const kvern_selection *selection;
    kvern_index_score_fn *score;
    const kvern_latent_kernels *products;
    scan_extent size;
    scan_tile *tiles;
    size_t tile_count;
    size_t chunk_count;
    uint32_t *keys;
    float *slots; // working memory, slot_floats for each worker
    _Atomic size_t next;
} scan;

// ---- Scratch ----

// Working memory of a worker.
typedef struct scan_slot {
    float *keys; // [PIECE][64]
    float *dots; // of one block: [vectors][64]
    float *queries;
    const scan_tile *tile; // whose queries they are; NULL: of none
} scan_slot;

// Query vectors of a tile, in whole groups.
static size_t slot_vectors(const scan_extent *size)
{
    return kvern_ceil_div(size->tile_queries * size->heads, MOST_GROUP) * MOST_GROUP;
}

// In whole cache lines.
static size_t slot_floats(const scan_extent *size)
{
    const size_t vectors = slot_vectors(size);
    const size_t queries = (vectors * size->query_floats + 15) / 16 * 16;
    return (PIECE + vectors) * KVERN_BLOCK_POSITIONS + queries;
}

static scan_slot slot_of(const scan *s, size_t worker)
{
    float *keys = s->slots + worker * slot_floats(&s->size);
    float *dots = keys + PIECE * KVERN_BLOCK_POSITIONS;
    return (scan_slot){keys, dots, dots + slot_vectors(&s->size) * KVERN_BLOCK_POSITIONS, NULL};
}

// Where the parts lie: the workers' memory first, then the keys, then the tiles.
static bool scratch_parts(const scan_extent *size, size_t *keys, size_t *tiles, size_t *bytes)
{
    size_t count, tile_bytes;
    return kvern_size_mul(size->workers, slot_floats(size) * sizeof(float), keys) &&
           kvern_size_mul(size->tiles, size->tile_queries, &count) &&
           kvern_size_mul(count, size->most_positions, &count) &&
           kvern_size_mul(count, sizeof(uint32_t), &count) && kvern_size_add(*keys, count, tiles) &&
           kvern_size_mul(size->tiles, sizeof(scan_tile), &tile_bytes) &&
           kvern_size_add(*tiles, tile_bytes, bytes);
}

static size_t tile_queries_of(size_t heads, int64_t queries)
{
    const size_t most = kvern_min_size(MOST_QUERIES, kvern_max_size(1, TILE_VECTORS / heads));
    return queries < (int64_t)most ? (size_t)queries : most;
}

static size_t whole_blocks(int64_t positions)
{
    return kvern_pages_of(positions) * KVERN_BLOCK_POSITIONS;
}

static size_t query_floats_of(const kvern_geometry *g)
{
    const kvern_stream_plan *index = kvern_stream_for(g, KVERN_ROLE_INDEX);
    return index->type->query_floats(&index->codec, index->dim);
}

size_t kvern_index_scan_scratch_bytes(const kvern_context *context, const kvern_geometry *geometry,
                                      size_t rows, int64_t queries, size_t heads, int64_t positions)
{
    scan_extent size = {.heads = heads, .workers = context->executor.threads};
    size_t keys, tiles, bytes;
    size.tile_queries = tile_queries_of(heads, queries);
    size.query_floats = query_floats_of(geometry);
    size.most_positions = whole_blocks(positions);
    const size_t row_tiles = kvern_ceil_div((size_t)queries, size.tile_queries);
    if (!kvern_size_mul(rows, row_tiles, &size.tiles))
        return SIZE_MAX;
    size.tiles = kvern_min_size(size.tiles, TILES_PER_THREAD * size.workers);
    return scratch_parts(&size, &keys, &tiles, &bytes) ? bytes : SIZE_MAX;
}

// ---- Looking at the queries ----

static int64_t position_of(const scan *s, const kvern_query_number *at)
{
    return s->view->rows[at->row].base + s->queries->first[at->row] + at->index;
}

static bool sees_few(const scan *s, const kvern_query_number *at)
{
    return position_of(s, at) < s->queries->top_k;
}

// Sums up what there is to do. Queries that see few positions need no scores.
static kvern_status look_at_queries(scan *s, const kvern_context *context)
{
    scan_extent *size = &s->size;
    const int64_t top_k = s->queries->top_k;
    double work = 0;
    int64_t most_queries = 0, most_positions = 0;
    for (size_t r = 0; r < s->view->row_count; r++) {
        const kvern_read_row *row = &s->view->rows[r];
        const int64_t end = row->base + s->queries->first[r] + s->queries->counts[r];
        const int64_t many = kvern_min_i64(s->queries->counts[r], end - top_k);
        if (s->queries->counts[r] == 0 || many <= 0)
            continue;
        most_queries = kvern_max_i64(most_queries, many);
        most_positions = kvern_max_i64(most_positions, end);
        size->query_floats = kvern_max_size(size->query_floats, query_floats_of(row->geometry));
        work += (double)many * (double)end * (double)size->heads * (double)size->query_floats;
    }
    if (most_queries == 0)
        return KVERN_OK;
    size->workers = work < LEAST_PARALLEL_WORK ? 1 : context->executor.threads;
    size->tile_queries = tile_queries_of(size->heads, most_queries);
    size->most_positions = whole_blocks(most_positions);
    for (size_t r = 0; r < s->view->row_count; r++) {
        const int64_t end = s->view->rows[r].base + s->queries->first[r] + s->queries->counts[r];
        const int64_t many = kvern_min_i64(s->queries->counts[r], end - top_k);
        if (many > 0 &&
            !kvern_size_add(size->tiles, kvern_ceil_div((size_t)many, size->tile_queries),
                            &size->tiles))
            return kvern_fail(KVERN_ERR_OVERFLOW, "row %zu: too many index queries", r);
    }
    size->tiles = kvern_min_size(size->tiles, TILES_PER_THREAD * context->executor.threads);
    return KVERN_OK;
}

// ---- Tiles ----

static int64_t *list_of(const scan *s, size_t query)
{
    return s->selection->positions + (int64_t)query * s->selection->stride;
}

static void select_all(const scan *s, const kvern_query_number *at)
{
    const int64_t end = position_of(s, at) + 1;
    int64_t *positions = list_of(s, at->n);
    for (int64_t p = 0; p < end; p++)
        positions[p] = p;
    s->selection->counts[at->n] = end;
}

// Makes a tile of the queries from *at on, and moves *at behind them.
static void add_tile(scan *s, kvern_query_number *at)
{
    scan_tile *tile = &s->tiles[s->tile_count];
    const size_t rest = (size_t)(s->queries->counts[at->row] - at->index);
    memset(tile, 0, sizeof *tile);
    tile->first = *at;
    tile->count = kvern_min_size(s->size.tile_queries, rest);
    tile->end = position_of(s, at) + (int64_t)tile->count;
    tile->first_chunk = s->chunk_count;
    tile->chunks = kvern_ceil_div((size_t)tile->end, CHUNK);
    tile->left = tile->chunks;
    tile->keys = s->keys + s->tile_count * s->size.tile_queries * s->size.most_positions;
    KVERN_ASSERT(tile->count > 0 && (size_t)tile->end <= s->size.most_positions);
    s->tile_count++;
    s->chunk_count += tile->chunks;
    at->n += tile->count;
    at->index += (int64_t)tile->count;
}

// The tiles of the next round. Lists of queries that see few positions are written on the way.
static void fill_round(scan *s, kvern_query_number *at)
{
    s->tile_count = s->chunk_count = 0;
    while (kvern_query_number_find(s->view, s->queries->counts, at)) {
        if (sees_few(s, at)) {
            select_all(s, at);
            kvern_query_number_step(at);
        } else if (s->tile_count < s->size.tiles) {
            add_tile(s, at);
        } else {
            break;
        }
    }
}

// ---- Scores ----

// Whether products are sums over the decoded numbers of a key, without anything of the codec's own.
static bool is_plain_sum(const kvern_stream_plan *index)
{
    return !index->kernels.prepare;
}

// Vector number `n` of the tile, `stride` floats from one number to the next.
static void load_vector(const scan *s, const scan_tile *tile, size_t n, size_t dim, float *to,
                        size_t stride)
{
    const kvern_index_queries *q = s->queries;
    const size_t query = n / q->heads, head = n % q->heads;
    const int64_t token = q->start[tile->first.row] + tile->first.index + (int64_t)query;
    const int64_t at = token * q->q_token_stride + (int64_t)head * q->q_head_stride;
    for (size_t d = 0; d < dim; d++)
        to[d * stride] = kvern_load_element(q->q_type, q->q, at + (int64_t)d);
}

// The queries of a tile: heads of one query behind those of the query before. For plain sums they
// are turned as the kernels want them, and a group that is not full has zeros.
static void load_queries(const scan *s, const scan_tile *tile, const kvern_stream_plan *index,
                         float *to)
{
    const size_t count = tile->count * s->queries->heads, group = s->products->group;
    const size_t dim = index->dim;
    if (is_plain_sum(index)) {
        const size_t groups = kvern_ceil_div(count, group);
        memset(to + (groups - 1) * dim * group, 0, dim * group * sizeof *to);
        for (size_t n = 0; n < count; n++)
            load_vector(s, tile, n, dim, to + n / group * dim * group + n % group, group);
        return;
    }
    for (size_t n = 0; n < count; n++, to += s->size.query_floats) {
        load_vector(s, tile, n, dim, to, 1);
        index->kernels.prepare(&index->codec, dim, to);
    }
}

static const void *index_block(const scan *s, const scan_tile *tile, const kvern_stream_plan *index,
                               int64_t position)
{
    const kvern_table *table = s->view->rows[tile->first.row].table;
    void *page = kvern_table_page(table, (size_t)(position / KVERN_BLOCK_POSITIONS))->data;
    return kvern_page_block(index, page, 0);
}

// Products of plain sums: some dims at a time for all vectors, so that they stay in the first-level
// cache. What is in f32 is read where it lies.
static void multiply(const scan *s, const kvern_stream_plan *index, size_t vectors,
                     const char *block, const char *next, const scan_slot *slot)
{
    const bool in_place = index->codec.kind == KVERN_CODEC_F32;
    kvern_latent_score score = {.keys = (const float *)block,
                                .dim = index->dim,
                                .groups = kvern_ceil_div(vectors, s->products->group),
                                .q = slot->queries,
                                .scores = slot->dots};
    for (; score.begin < index->dim; score.begin = score.end) {
        score.end = in_place ? index->dim : kvern_min_size(score.begin + PIECE, index->dim);
        if (!in_place) {
            index->kernels.decode_block(&index->codec, block, index->dim, score.begin, score.end,
                                        slot->keys);
            score.keys = slot->keys;
        }
        score.next = (kvern_latent_next){0};
        if (next) {
            score.next.later = next + index->block_bytes * score.begin / index->dim;
            score.next.later_bytes = index->block_bytes * (score.end - score.begin) / index->dim;
        }
        if (!in_place && score.end < index->dim) {
            score.next.soon = block + index->block_bytes * score.end / index->dim;
            score.next.soon_bytes = index->block_bytes * PIECE / index->dim;
        }
        s->products->score(&score);
    }
}

// Order keys of the block at `position` for all queries of the tile.
static void score_block(const scan *s, const scan_tile *tile, const kvern_stream_plan *index,
                        int64_t position, const scan_slot *slot)
{
    const kvern_index_queries *q = s->queries;
    const int64_t behind = position + KVERN_BLOCK_POSITIONS;
    const size_t count = (size_t)(kvern_min_i64(behind, tile->end) - position);
    const void *block = index_block(s, tile, index, position);
    const void *next = behind < tile->end ? index_block(s, tile, index, behind) : NULL;
    const size_t vectors = tile->count * q->heads;
    if (is_plain_sum(index))
        multiply(s, index, vectors, block, next, slot);
    else
        index->kernels.score(&index->codec, block, index->dim, 0, KVERN_BLOCK_POSITIONS / 16,
                             vectors, slot->queries, s->size.query_floats, slot->dots, next);
    for (size_t i = 0; i < tile->count; i++) {
        const int64_t token = q->start[tile->first.row] + tile->first.index + (int64_t)i;
        s->score(q->heads, q->weights + token * q->weight_token_stride,
                 slot->dots + i * q->heads * KVERN_BLOCK_POSITIONS, count,
                 tile->keys + i * s->size.most_positions + position);
    }
}

static void score_chunk(const scan *s, const scan_tile *tile, size_t chunk, scan_slot *slot)
{
    const kvern_geometry *g = s->view->rows[tile->first.row].geometry;
    const kvern_stream_plan *index = kvern_stream_for(g, KVERN_ROLE_INDEX);
    const int64_t begin = (int64_t)chunk * CHUNK;
    const int64_t end = kvern_min_i64(begin + CHUNK, tile->end);
    if (slot->tile != tile)
        load_queries(s, tile, index, slot->queries);
    slot->tile = tile;
    for (int64_t at = begin; at < end; at += KVERN_BLOCK_POSITIONS)
        score_block(s, tile, index, at, slot);
}

// All keys of the tile are there.
static void select_best(const scan *s, const scan_tile *tile)
{
    for (size_t i = 0; i < tile->count; i++) {
        const int64_t sees = tile->end - (int64_t)(tile->count - 1 - i);
        const size_t query = tile->first.n + i;
        KVERN_ASSERT(sees > s->queries->top_k);
        kvern_top_positions(tile->keys + i * s->size.most_positions, sees, s->queries->top_k,
                            list_of(s, query));
        s->selection->counts[query] = s->queries->top_k;
    }
}

static scan_tile *tile_of_chunk(const scan *s, size_t chunk)
{
    scan_tile *tile = s->tiles;
    while (chunk >= tile->first_chunk + tile->chunks)
        tile++;
    return tile;
}

static void run_scan(void *arg, size_t worker)
{
    scan *s = arg;
    scan_slot slot = slot_of(s, worker);
    const kvern_fp_saved saved = kvern_fp_enter();
    size_t chunk;
    while ((chunk = atomic_fetch_add(&s->next, 1)) < s->chunk_count) {
        scan_tile *tile = tile_of_chunk(s, chunk);
        score_chunk(s, tile, chunk - tile->first_chunk, &slot);
        if (atomic_fetch_sub(&tile->left, 1) == 1)
            select_best(s, tile);
    }
    kvern_fp_leave(saved);
}

// ---- Rounds ----

static void run_rounds(scan *s, kvern_context *context)
{
    kvern_query_number at = {0, 0, 0};
    for (;;) {
        fill_round(s, &at);
        if (s->tile_count == 0)
            return;
        const size_t workers = kvern_min_size(s->size.workers, s->chunk_count);
        s->next = 0;
        if (workers == 1)
            run_scan(s, 0);
        else
            context->executor.run(context->executor.user, workers, run_scan, s);
    }
}

kvern_status kvern_index_scan(kvern_context *context, kvern_reservation *reservation,
                              const kvern_view *view, const kvern_index_queries *queries,
                              const kvern_selection *selection)
{
    scan s = {.view = view, .queries = queries, .selection = selection};
    size_t keys, tiles, bytes;
    void *scratch = NULL;
    s.score = kvern_index_score_of(context->cpu_features);
    s.products = kvern_latent_kernels_of(context->cpu_features);
    s.size.heads = queries->heads;
    kvern_status status = look_at_queries(&s, context);
    if (status)
        return status;
    if (!scratch_parts(&s.size, &keys, &tiles, &bytes))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles of index queries do not fit memory",
                          s.size.tiles);
    if (bytes > 0 &&
        (status = kvern_buffer_take(context, reservation, KVERN_SCRATCH, bytes, &scratch)))
        return status;
    if (scratch) {
        s.slots = scratch;
        s.keys = (uint32_t *)((char *)scratch + keys);
        s.tiles = (scan_tile *)((char *)scratch + tiles);
    }
    run_rounds(&s, context);
    kvern_buffer_give(context, scratch);
    return KVERN_OK;
}
