// SPDX-License-Identifier: MIT
#include "src/attend/materialized.h"

#include "src/attend/softmax.h"
#include "src/attend/vector.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/codec/codec.h"
#include "src/codec/dense/dense.h"
#include "src/math/fpenv.h"

#include <math.h>
#include <string.h>

#define SLOTS KVERN_BLOCK_POSITIONS

// Queries of a tile at most.
#define MOST_QUERIES 256

// Products below which handing work to other threads costs more than it saves.
#define LEAST_PARALLEL_WORK 200000.0

// Queries [first, first + count) of a row, those of all heads.
typedef struct query_tile {
    size_t row, count;
    int64_t first;
} query_tile;

// How large things are.
typedef struct shape {
    size_t latent_dim, rope_dim, nope_dim, value_dim, query_dim;
    size_t most_queries; // of a tile
    size_t tiles, workers;
} shape;

typedef struct materialized {
    const kvern_view *view;
    const kvern_queries *queries;
    const kvern_latent_weights *weights;
    shape size;
    kvern_softmax_kernels kernels;
    const kvern_codec_kernels *f32;
    query_tile *tiles;
    char *slots; // working memory of the workers
    _Atomic size_t next;
} materialized;

// Results so far (softmax.h) of a tile's vectors.
typedef struct results {
    float *m, *l, *acc;
} results;

// The working memory of one worker.
typedef struct workspace {
    float *latent;     // [latent_dim][64], decoded
    float *keys;       // [query_dim][64]
    float *made;       // [value_dim][64]
    float *values;     // a block of f32 values
    float *q;          // [queries][query_dim], scaled
    float *weights;    // [queries][64]
    uint64_t *visible; // [queries]
    results span, total;
} workspace;

static const kvern_codec f32_codec = {.kind = KVERN_CODEC_F32};

// ---- Weights ----

static const kvern_sized WEIGHTS_SIZES =
    KVERN_SIZED(kvern_latent_weights, KVERN_SIZE_TO(kvern_latent_weights, row_stride));

void kvern_latent_weights_init(kvern_latent_weights *weights, size_t size, const kvern_layer *layer,
                               size_t nope_dim, size_t value_dim)
{
    const kvern_latent_weights defaults = {
        .nope_dim = nope_dim,
        .value_dim = value_dim,
        .head_stride = (int64_t)((nope_dim + value_dim) * layer->latent_dim),
        .row_stride = (int64_t)layer->latent_dim,
    };
    kvern_sized_init(&WEIGHTS_SIZES, &defaults, weights, size);
}

static bool is_dim(size_t dim)
{
    return dim > 0 && dim % 8 == 0 && dim <= KVERN_MAX_HEAD_DIM;
}

static kvern_status check_strides(const kvern_latent_weights *w, int64_t heads, int64_t latent_dim)
{
    const int64_t rows = (int64_t)(w->nope_dim + w->value_dim);
    int64_t a, b;
    if (w->head_stride < 0 || w->row_stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "a stride of the weights is negative");
    if (!kvern_i64_mul(heads, w->head_stride, &a) || !kvern_i64_mul(rows, w->row_stride, &b) ||
        !kvern_i64_add(a, b, &a) || !kvern_i64_add(a, latent_dim, &a) ||
        !kvern_i64_mul(a, (int64_t)sizeof(float), &a))
        return kvern_fail(KVERN_ERR_OVERFLOW, "an index of the weights does not fit");
    return KVERN_OK;
}

kvern_status kvern_materialized_weights(const kvern_geometry *geometry,
                                        const kvern_latent_weights *given, size_t query_heads,
                                        kvern_latent_weights *known)
{
    kvern_status status = kvern_sized_read(&WEIGHTS_SIZES, given, known);
    if (status)
        return status;
    if (!kvern_stream_find(geometry, KVERN_ROLE_VALUE) || !kvern_values_are_keys(geometry))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "a materialized read of a layer that has no latents");
    if (!known->weights)
        return kvern_fail(KVERN_ERR_ARGUMENT, "weights.weights is NULL");
    if (!is_dim(known->nope_dim) || !is_dim(known->value_dim))
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "weights.nope_dim is %zu and weights.value_dim %zu, not multiples of 8 "
                          "from 8 to %d",
                          known->nope_dim, known->value_dim, KVERN_MAX_HEAD_DIM);
    return check_strides(known, (int64_t)query_heads,
                         (int64_t)kvern_stream_for(geometry, KVERN_ROLE_VALUE)->dim);
}

// ---- Shapes and scratch ----

static shape shape_of(const kvern_geometry *g, const kvern_latent_weights *weights)
{
    const size_t latent_dim = kvern_stream_for(g, KVERN_ROLE_VALUE)->dim;
    const size_t rope_dim = g->query_dim - latent_dim;
    return (shape){.latent_dim = latent_dim,
                   .rope_dim = rope_dim,
                   .nope_dim = weights->nope_dim,
                   .value_dim = weights->value_dim,
                   .query_dim = weights->nope_dim + rope_dim};
}

size_t kvern_materialized_query_dim(const kvern_geometry *geometry,
                                    const kvern_latent_weights *weights)
{
    return shape_of(geometry, weights).query_dim;
}

static size_t whole_lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

// Floats of a worker's memory; `at`: where its parts are to lie, or NULL.
static size_t lay_out(const shape *s, float *memory, workspace *at)
{
    const size_t n = s->most_queries;
    const size_t part[] = {s->latent_dim * SLOTS,
                           s->query_dim * SLOTS,
                           s->value_dim * SLOTS,
                           s->value_dim * SLOTS,
                           n * s->query_dim,
                           n * SLOTS,
                           2 * n,
                           n,
                           n,
                           n * s->value_dim,
                           n,
                           n,
                           n * s->value_dim};
    float *begin[sizeof part / sizeof part[0]];
    size_t floats = 0;
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        begin[i] = memory ? memory + floats : NULL;
        floats += whole_lines(part[i]);
    }
    if (at)
        *at = (workspace){.latent = begin[0],
                          .keys = begin[1],
                          .made = begin[2],
                          .values = begin[3],
                          .q = begin[4],
                          .weights = begin[5],
                          .visible = (uint64_t *)begin[6],
                          .span = {begin[7], begin[8], begin[9]},
                          .total = {begin[10], begin[11], begin[12]}};
    return floats;
}

static bool scratch_parts(const shape *s, size_t *tiles, size_t *bytes)
{
    size_t tile_bytes;
    return kvern_size_mul(s->workers, lay_out(s, NULL, NULL) * sizeof(float), tiles) &&
           kvern_size_mul(s->tiles, sizeof(query_tile), &tile_bytes) &&
           kvern_size_add(*tiles, tile_bytes, bytes);
}

size_t kvern_materialized_scratch_bytes(const kvern_context *context,
                                        const kvern_geometry *geometry,
                                        const kvern_latent_weights *dims, size_t rows,
                                        int64_t queries)
{
    shape s = shape_of(geometry, dims);
    size_t tiles, bytes;
    s.most_queries = queries < MOST_QUERIES ? (size_t)queries : MOST_QUERIES;
    s.workers = context->executor.threads;
    if (queries == 0 ||
        !kvern_size_mul(rows, kvern_ceil_div((size_t)queries, s.most_queries), &s.tiles))
        return queries ? SIZE_MAX : 0;
    return scratch_parts(&s, &tiles, &bytes) ? bytes : SIZE_MAX;
}

// ---- One head of a tile ----

static kvern_visibility visibility_of(const materialized *m, const query_tile *tile, size_t i)
{
    return kvern_visibility_of(&m->view->window, &m->view->rows[tile->row],
                               m->queries->first[tile->row] + tile->first + (int64_t)i);
}

static void load_vectors(const materialized *m, const query_tile *tile, size_t head, workspace *w)
{
    const kvern_queries *q = m->queries;
    for (size_t i = 0; i < tile->count; i++) {
        const int64_t token = q->q_start[tile->row] + tile->first + (int64_t)i;
        kvern_vector_load(&m->kernels, q,
                          token * q->q_token_stride + (int64_t)head * q->q_head_stride,
                          m->size.query_dim, w->q + i * m->size.query_dim);
    }
}

// The vectors of a decoded block, rotated back.
static void rotate_back(const kvern_stream_plan *stream, float *values)
{
    float x[KVERN_MAX_STREAM_DIM];
    for (size_t slot = 0; slot < SLOTS; slot++) {
        for (size_t d = 0; d < stream->dim; d++)
            x[d] = values[d * SLOTS + slot];
        stream->kernels.finish(&stream->codec, stream->dim, x);
        for (size_t d = 0; d < stream->dim; d++)
            values[d * SLOTS + slot] = x[d];
    }
}

// The exact values of a stream of a page: where they lie, or decoded to `to`.
static const float *values_of(const kvern_stream_plan *stream, void *page, float *to)
{
    const void *block = kvern_page_block(stream, page, 0);
    if (stream->codec.kind == KVERN_CODEC_F32)
        return block;
    stream->kernels.decode_block(&stream->codec, block, stream->dim, 0, stream->dim, to);
    if (stream->kernels.rotate)
        rotate_back(stream, to);
    return to;
}

// Values with the slots of a dim behind each other become a block of f32 values.
static void turn_values(size_t dim, const float *from, float *to)
{
    for (size_t first = 0; first < dim; first += KVERN_DENSE_PANEL) {
        const size_t width = kvern_dense_panel_width(dim, first);
        float *panel = to + first * SLOTS;
        for (size_t slot = 0; slot < SLOTS; slot++) {
            for (size_t d = 0; d < width; d++)
                panel[slot * width + d] = from[(first + d) * SLOTS + slot];
        }
    }
}

// Keys and values of one head for the positions of a page. A row of weights meets the latents as a
// query meets keys, so the score kernel makes them, and leaves keys as a block of f32 has them.
static void make_block(const materialized *m, size_t head, void *page, workspace *w)
{
    const kvern_geometry *g = m->view->geometry;
    const shape *s = &m->size;
    const kvern_latent_weights *weights = m->weights;
    const size_t stride = (size_t)weights->row_stride;
    const float *rows = weights->weights + (int64_t)head * weights->head_stride;
    const float *latent = values_of(kvern_stream_for(g, KVERN_ROLE_VALUE), page, w->latent);
    m->f32->score(&f32_codec, latent, s->latent_dim, 0, SLOTS / 16, s->nope_dim, rows, stride,
                  w->keys, NULL);
    for (size_t i = 0; i < g->stream_count; i++) {
        float *to = w->keys + s->nope_dim * SLOTS;
        if (g->streams[i].role != KVERN_ROLE_SCORE)
            continue;
        const float *rope = values_of(&g->streams[i], page, to);
        if (rope != to)
            memcpy(to, rope, s->rope_dim * SLOTS * sizeof *to);
    }
    m->f32->score(&f32_codec, latent, s->latent_dim, 0, SLOTS / 16, s->value_dim,
                  rows + s->nope_dim * stride, stride, w->made, NULL);
    turn_values(s->value_dim, w->made, w->values);
}

// Adds the values of a block for the vectors from `from` on: those that see the same slots, the
// first ones of the block, go together.
static void accumulate(const materialized *m, size_t from, size_t count, workspace *w)
{
    const size_t dim = m->size.value_dim;
    for (size_t i = from, end; i < count; i = end) {
        for (end = i + 1; end < count && w->visible[end] == w->visible[i];)
            end++;
        const size_t slots = SLOTS - (size_t)__builtin_clzll(w->visible[i]);
        m->f32->accumulate(&f32_codec, w->values, dim, 0, slots, end - i, w->weights + i * SLOTS,
                           w->span.acc + i * dim, NULL);
    }
}

// The block at `begin`, for the vectors from `from` on, which see something of it.
static void attend_block(const materialized *m, const query_tile *tile, size_t head, int64_t begin,
                         size_t from, workspace *w)
{
    const size_t count = tile->count - from, dims = m->size.query_dim;
    const kvern_table *table = m->view->rows[tile->row].table;
    for (size_t i = from; i < tile->count; i++) {
        const kvern_visibility sees = visibility_of(m, tile, i);
        w->visible[i] = kvern_visible_slots(&sees, begin);
        KVERN_ASSERT(w->visible[i]);
    }
    const size_t tiles =
        kvern_ceil_div(SLOTS - (size_t)__builtin_clzll(w->visible[tile->count - 1]), 16);
    make_block(m, head, kvern_table_page(table, (size_t)(begin / SLOTS))->data, w);
    m->f32->score(&f32_codec, w->keys, dims, 0, tiles, count, w->q + from * dims, dims,
                  w->weights + from * SLOTS, NULL);
    m->kernels.softmax(count, w->weights + from * SLOTS, w->visible + from, m->queries->softcap,
                       w->span.m + from, w->span.l + from, w->span.acc + from * m->size.value_dim,
                       m->size.value_dim);
    accumulate(m, from, tile->count, w);
}

// The first vector of the tile that sees the position.
static size_t first_that_sees(const materialized *m, const query_tile *tile, int64_t position)
{
    const int64_t first = visibility_of(m, tile, 0).end;
    return position < first ? 0 : (size_t)(position - first + 1);
}

static void start(const shape *s, size_t count, results *r)
{
    for (size_t i = 0; i < count; i++) {
        r->m[i] = -INFINITY;
        r->l[i] = 0;
    }
    memset(r->acc, 0, count * s->value_dim * sizeof(float));
}

// The span at `begin`, for all vectors that see something of it, and merges it with those before.
static void attend_span(const materialized *m, const query_tile *tile, size_t head, int64_t begin,
                        int64_t end, workspace *w)
{
    const size_t dim = m->size.value_dim;
    start(&m->size, tile->count, &w->span);
    for (int64_t at = begin; at < end; at += SLOTS)
        attend_block(m, tile, head, at, first_that_sees(m, tile, at), w);
    const size_t from = first_that_sees(m, tile, begin);
    m->kernels.merge(tile->count - from, w->total.m + from, w->total.l + from,
                     w->total.acc + from * dim, w->span.m + from, w->span.l + from,
                     w->span.acc + from * dim, dim);
}

static void finish(const materialized *m, const query_tile *tile, size_t head, const results *r)
{
    const kvern_queries *q = m->queries;
    const size_t dim = m->size.value_dim;
    for (size_t i = 0; i < tile->count; i++) {
        const int64_t token = q->out_start[tile->row] + tile->first + (int64_t)i;
        kvern_vector_finish(&m->kernels, NULL, q, head,
                            token * q->out_token_stride + (int64_t)head * q->out_head_stride, dim,
                            r->m[i], r->l[i], r->acc + i * dim);
    }
}

static void attend_head(const materialized *m, const query_tile *tile, size_t head, workspace *w)
{
    const int64_t end = visibility_of(m, tile, tile->count - 1).end;
    load_vectors(m, tile, head, w);
    for (int64_t at = 0; at < end; at += KVERN_SPAN_POSITIONS) {
        const int64_t span_end = kvern_min_i64(at + KVERN_SPAN_POSITIONS, end);
        if (at > 0) {
            attend_span(m, tile, head, at, span_end, w);
            continue;
        }
        // The first span is the total: all vectors see the row's first position.
        const results spare = w->span;
        w->span = w->total;
        start(&m->size, tile->count, &w->span);
        for (int64_t block = 0; block < span_end; block += SLOTS)
            attend_block(m, tile, head, block, first_that_sees(m, tile, block), w);
        w->span = spare;
    }
    finish(m, tile, head, &w->total);
}

// ---- Work ----

static void run_materialized(void *arg, size_t worker)
{
    materialized *m = arg;
    const size_t floats = lay_out(&m->size, NULL, NULL);
    const size_t heads = m->queries->query_heads;
    workspace w;
    (void)lay_out(&m->size, (float *)m->slots + worker * floats, &w);
    const kvern_fp_saved saved = kvern_fp_enter();
    size_t taken;
    while ((taken = atomic_fetch_add(&m->next, 1)) < m->size.tiles * heads)
        attend_head(m, &m->tiles[taken / heads], taken % heads, &w);
    kvern_fp_leave(saved);
}

static kvern_status look_at_rows(materialized *m, const kvern_context *context)
{
    shape *s = &m->size;
    double work = 0;
    int64_t most = 0;
    for (size_t r = 0; r < m->view->row_count; r++) {
        most = kvern_max_i64(most, m->queries->counts[r]);
        work += (double)m->queries->counts[r] * (double)m->view->rows[r].length *
                (double)(s->query_dim + s->value_dim) * (double)m->queries->query_heads;
    }
    s->most_queries = most < MOST_QUERIES ? (size_t)most : MOST_QUERIES;
    for (size_t r = 0; r < m->view->row_count && most > 0; r++)
        if (!kvern_size_add(s->tiles,
                            kvern_ceil_div((size_t)m->queries->counts[r], s->most_queries),
                            &s->tiles))
            return kvern_fail(KVERN_ERR_OVERFLOW, "row %zu: too many queries", r);
    size_t items;
    if (!kvern_size_mul(s->tiles, m->queries->query_heads, &items))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles of %zu heads", s->tiles,
                          m->queries->query_heads);
    s->workers = work < LEAST_PARALLEL_WORK ? 1 : kvern_min_size(context->executor.threads, items);
    return KVERN_OK;
}

static void fill_tiles(materialized *m)
{
    query_tile *tile = m->tiles;
    for (size_t r = 0; r < m->view->row_count; r++) {
        const int64_t count = m->queries->counts[r];
        for (int64_t at = 0; at < count; at += (int64_t)m->size.most_queries)
            *tile++ = (query_tile){
                r, (size_t)kvern_min_i64(count - at, (int64_t)m->size.most_queries), at};
    }
    KVERN_ASSERT(tile == m->tiles + m->size.tiles);
}

static void init(materialized *m, const kvern_context *context, const kvern_view *view,
                 const kvern_queries *queries, const kvern_latent_weights *weights)
{
    *m = (materialized){.view = view,
                        .queries = queries,
                        .weights = weights,
                        .size = shape_of(view->geometry, weights),
                        .kernels = kvern_softmax_kernels_of(context->cpu_features)};
    m->f32 = kvern_codec_type_of(&f32_codec)->kernels_of(&f32_codec, context->cpu_features);
    KVERN_ASSERT(!kvern_visibility_is_limited(&view->window));
}

static void run(materialized *m, const kvern_context *context, size_t tiles, void *scratch)
{
    m->slots = scratch;
    m->tiles = (query_tile *)((char *)scratch + tiles);
    fill_tiles(m);
    if (m->size.workers == 1)
        run_materialized(m, 0);
    else
        context->executor.run(context->executor.user, m->size.workers, run_materialized, m);
}

kvern_status kvern_attend_materialized(kvern_context *context, kvern_reservation *reservation,
                                       const kvern_view *view, const kvern_queries *queries,
                                       const kvern_latent_weights *weights)
{
    materialized m;
    size_t tiles, bytes;
    void *scratch;
    init(&m, context, view, queries, weights);
    kvern_status status = look_at_rows(&m, context);
    if (status || m.size.tiles == 0)
        return status;
    if (!scratch_parts(&m.size, &tiles, &bytes))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu tiles do not fit memory", m.size.tiles);
    if ((status = kvern_buffer_take(context, reservation, KVERN_SCRATCH, bytes, &scratch)))
        return status;
    run(&m, context, tiles, scratch);
    kvern_buffer_give(context, scratch);
    return KVERN_OK;
}

void kvern_attend_materialized_within(kvern_context *context, const kvern_view *view,
                                      const kvern_queries *queries,
                                      const kvern_latent_weights *weights, void *scratch)
{
    materialized m;
    size_t tiles, bytes;
    init(&m, context, view, queries, weights);
    // Rows of one query each: nothing overflows that did not when the scratch was taken.
    if (look_at_rows(&m, context) || m.size.tiles == 0 || !scratch_parts(&m.size, &tiles, &bytes))
        return;
    KVERN_ASSERT(m.size.most_queries == 1 &&
                 bytes <= kvern_materialized_scratch_bytes(context, view->geometry, weights,
                                                           view->row_count, 1));
    run(&m, context, tiles, scratch);
}
