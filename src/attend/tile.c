// SPDX-License-Identifier: MIT
#include "src/attend/tile.h"

#include "src/base/size.h"
#include "src/math/exp.h"
#include "src/math/half.h"

#include <math.h>
#include <string.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define VECTORS KVERN_TILE_VECTORS

// ---- Working memory ----

size_t kvern_partial_bytes(const kvern_attend_job *job)
{
    return VECTORS * (2 + job->geometry->v_dim) * sizeof(float);
}

kvern_partial kvern_partial_at(const kvern_attend_job *job, void *memory)
{
    (void)job;
    float *m = memory;
    return (kvern_partial){m, m + VECTORS, m + 2 * VECTORS};
}

size_t kvern_workspace_bytes(const kvern_attend_job *job)
{
    return VECTORS * ((job->geometry->query_floats + SLOTS) * sizeof(float) + sizeof(uint64_t)) +
           2 * kvern_partial_bytes(job);
}

// 32 vectors make every part a multiple of a cache line.
_Static_assert(VECTORS * sizeof(float) % 64 == 0, "parts of the working memory stay aligned");

kvern_workspace kvern_workspace_at(const kvern_attend_job *job, void *memory)
{
    kvern_workspace work;
    char *at = memory;
    work.q = (float *)at;
    at += VECTORS * job->geometry->query_floats * sizeof(float);
    work.weights = (float *)at;
    at += VECTORS * SLOTS * sizeof(float);
    work.visible = (uint64_t *)at;
    at += VECTORS * sizeof(uint64_t);
    work.span = kvern_partial_at(job, at);
    work.total = kvern_partial_at(job, at + kvern_partial_bytes(job));
    return work;
}

// ---- Queries ----

static float load_float(kvern_type type, const void *tensor, int64_t at)
{
    if (type == KVERN_F32)
        return ((const float *)tensor)[at];
    const uint16_t half = ((const uint16_t *)tensor)[at];
    return type == KVERN_BF16 ? kvern_f32_from_bf16(half) : kvern_f32_from_f16(half);
}

static void store_float(kvern_type type, void *tensor, int64_t at, float value)
{
    if (type == KVERN_F32)
        ((float *)tensor)[at] = value;
    else
        ((uint16_t *)tensor)[at] =
            type == KVERN_BF16 ? kvern_bf16_from_f32(value) : kvern_f16_from_f32(value);
}

// The query and the query head of vector i of the tile.
static int64_t query_of(const kvern_attend_job *job, const kvern_tile *tile, size_t i)
{
    return (int64_t)((tile->first + i) / job->group);
}

static int64_t head_of(const kvern_attend_job *job, const kvern_tile *tile, size_t i)
{
    return (int64_t)(tile->head * job->group + (tile->first + i) % job->group);
}

void kvern_tile_load(const kvern_attend_job *job, const kvern_tile *tile, kvern_workspace *work)
{
    const kvern_queries *q = job->queries;
    const kvern_geometry *g = job->geometry;
    for (size_t i = 0; i < tile->count; i++) {
        float *to = work->q + i * g->query_floats;
        const int64_t at = (q->q_start[tile->row] + query_of(job, tile, i)) * q->q_token_stride +
                           head_of(job, tile, i) * q->q_head_stride;
        for (size_t d = 0; d < g->k_dim; d++)
            to[d] = load_float(q->q_type, q->q, at + (int64_t)d) * q->scale;
        if (g->k_layout->prepare)
            g->k_layout->prepare(&g->k_codec, g->k_dim, to);
    }
}

// ---- Blocks and spans ----

// The number of slots of the block at `block_begin` that vector i sees: 0 to 64.
static size_t visible_slots(const kvern_attend_job *job, const kvern_tile *tile, size_t i,
                            int64_t block_begin)
{
    const int64_t seen = tile->first_position + query_of(job, tile, i) + 1 - block_begin;
    return seen <= 0 ? 0 : seen >= SLOTS ? SLOTS : (size_t)seen;
}

static uint64_t first_bits(size_t count)
{
    return count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

// Adds the values of a block: vectors that see the same number of slots go together.
static void accumulate_values(const kvern_attend_job *job, const kvern_tile *tile, size_t from,
                              int64_t block_begin, const void *block, const float *weights,
                              float *acc, const void *next)
{
    const kvern_geometry *g = job->geometry;
    const size_t dim = g->v_dim;
    for (size_t i = from; i < tile->count;) {
        const size_t slots = visible_slots(job, tile, i, block_begin);
        size_t end = i + 1;
        while (end < tile->count && visible_slots(job, tile, end, block_begin) == slots)
            end++;
        g->v_kernels.accumulate(&g->v_codec, block, dim, 0, slots, end - i, weights + i * SLOTS,
                                acc + i * dim, next);
        i = end;
    }
}

static void attend_block(const kvern_attend_job *job, const kvern_tile *tile, size_t page,
                         kvern_workspace *work, kvern_partial *out)
{
    const kvern_geometry *g = job->geometry;
    const kvern_table *table = job->rows[tile->row].table;
    const int64_t begin = (int64_t)page * SLOTS;
    const void *k = kvern_page_k(g, table->pages[page]->data, tile->head);
    const void *v = kvern_page_v(g, table->pages[page]->data, tile->head);
    const void *next = begin + SLOTS < tile->end
                           ? kvern_page_k(g, table->pages[page + 1]->data, tile->head)
                           : NULL;
    size_t from = 0; // later queries see more, so those that see nothing come first
    while (visible_slots(job, tile, from, begin) == 0)
        from++;
    for (size_t i = from; i < tile->count; i++)
        work->visible[i] = first_bits(visible_slots(job, tile, i, begin));
    const size_t most = visible_slots(job, tile, tile->count - 1, begin);
    float *weights = work->weights + from * SLOTS;
    g->k_kernels.score(&g->k_codec, k, g->k_dim, 0, kvern_ceil_div(most, 16), tile->count - from,
                       work->q + from * g->query_floats, g->query_floats, weights, v);
    job->kernels.softmax(tile->count - from, weights, work->visible + from, job->queries->softcap,
                         out->m + from, out->l + from, out->acc + from * g->v_dim, g->v_dim);
    accumulate_values(job, tile, from, begin, v, work->weights, out->acc, next);
}

void kvern_tile_span(const kvern_attend_job *job, const kvern_tile *tile, size_t span,
                     kvern_workspace *work, kvern_partial *out)
{
    for (size_t i = 0; i < tile->count; i++) {
        out->m[i] = -INFINITY;
        out->l[i] = 0;
    }
    memset(out->acc, 0, tile->count * job->geometry->v_dim * sizeof(float));
    const int64_t begin = (int64_t)span * KVERN_SPAN_POSITIONS;
    const int64_t end =
        begin + KVERN_SPAN_POSITIONS < tile->end ? begin + KVERN_SPAN_POSITIONS : tile->end;
    for (int64_t at = begin; at < end; at += SLOTS)
        attend_block(job, tile, (size_t)(at / SLOTS), work, out);
}

// ---- Merging and finishing ----

// What is subtracted from a score before exp: the largest one, or 0 while that is -infinity.
static float base_of(float m)
{
    return m == -INFINITY ? 0 : m;
}

void kvern_tile_merge(const kvern_attend_job *job, const kvern_tile *tile, size_t span,
                      kvern_partial *total, const kvern_partial *part)
{
    const size_t dim = job->geometry->v_dim;
    const int64_t begin = (int64_t)span * KVERN_SPAN_POSITIONS;
    for (size_t i = 0; i < tile->count; i++) {
        if (visible_slots(job, tile, i, begin) == 0)
            continue;
        const float m = part->m[i] > total->m[i] ? part->m[i] : total->m[i];
        const float a = plain_exp(total->m[i] - base_of(m));
        const float b = plain_exp(part->m[i] - base_of(m));
        total->l[i] = fmaf(part->l[i], b, total->l[i] * a);
        job->kernels.blend(dim, total->acc + i * dim, a, part->acc + i * dim, b);
        total->m[i] = m;
    }
}

// A sink is one more score whose value vector is zero.
static void add_sink(float sink, float *m, float *l, float *acc, size_t dim)
{
    const float larger = sink > *m ? sink : *m;
    const float c = plain_exp(*m - base_of(larger));
    *l = fmaf(*l, c, plain_exp(sink - base_of(larger)));
    for (size_t d = 0; d < dim; d++)
        acc[d] *= c;
    *m = larger;
}

void kvern_tile_finish(const kvern_attend_job *job, const kvern_tile *tile, kvern_partial *total)
{
    const kvern_queries *q = job->queries;
    const size_t dim = job->geometry->v_dim;
    for (size_t i = 0; i < tile->count; i++) {
        const int64_t query = query_of(job, tile, i), head = head_of(job, tile, i);
        float *acc = total->acc + i * dim;
        if (q->sinks)
            add_sink(q->sinks[head], total->m + i, total->l + i, acc, dim);
        const int64_t at =
            (q->out_start[tile->row] + query) * q->out_token_stride + head * q->out_head_stride;
        const float l = total->l[i];
        for (size_t d = 0; d < dim; d++)
            store_float(q->out_type, q->out, at + (int64_t)d, l == 0 ? 0 : acc[d] / l);
    }
}
