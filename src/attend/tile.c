// SPDX-License-Identifier: MIT
#include "src/attend/tile.h"

#include "src/attend/latent_block.h"
#include "src/attend/vector.h"
#include "src/base/assert.h"
#include "src/base/size.h"

#include <math.h>
#include <string.h>

#define SLOTS KVERN_BLOCK_POSITIONS
#define VECTORS KVERN_TILE_VECTORS

// Numbers of a result.
static size_t value_dim(const kvern_attend_job *job)
{
    return kvern_stream_for(job->view->geometry, KVERN_ROLE_VALUE)->dim;
}

// ---- Working memory ----

// So many floats are whole cache lines.
static size_t whole_lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

size_t kvern_partial_bytes(const kvern_attend_job *job, size_t vectors)
{
    return whole_lines(vectors) * (2 + value_dim(job)) * sizeof(float);
}

kvern_partial kvern_partial_at(size_t vectors, void *memory)
{
    float *m = memory;
    return (kvern_partial){m, m + whole_lines(vectors), m + 2 * whole_lines(vectors)};
}

size_t kvern_workspace_bytes(const kvern_attend_job *job)
{
    return VECTORS * ((job->view->query_floats + SLOTS) * sizeof(float) + sizeof(uint64_t) +
                      sizeof(kvern_visibility)) +
           2 * kvern_partial_bytes(job, VECTORS) + kvern_latent_space_bytes(job);
}

// 32 vectors make every part a multiple of a cache line.
_Static_assert(VECTORS * sizeof(float) % 64 == 0, "parts of the working memory stay aligned");

kvern_workspace kvern_workspace_at(const kvern_attend_job *job, void *memory)
{
    kvern_workspace work;
    char *at = memory;
    KVERN_ASSERT((uintptr_t)memory % 64 == 0);
    work.q = (float *)at;
    at += VECTORS * job->view->query_floats * sizeof(float);
    work.weights = (float *)at;
    at += VECTORS * SLOTS * sizeof(float);
    work.visible = (uint64_t *)at;
    at += VECTORS * sizeof(uint64_t);
    work.sees = (kvern_visibility *)at;
    at += VECTORS * sizeof(kvern_visibility);
    work.span = kvern_partial_at(VECTORS, at);
    work.total = kvern_partial_at(VECTORS, at + kvern_partial_bytes(job, VECTORS));
    at += 2 * kvern_partial_bytes(job, VECTORS);
    work.latent = kvern_latent_space_at(job, at);
    KVERN_ASSERT(at + kvern_latent_space_bytes(job) == (char *)memory + kvern_workspace_bytes(job));
    return work;
}

// ---- Queries ----

// Of the pages that the tile reads in a pass.
static const kvern_geometry *geometry_of(const kvern_attend_job *job, const kvern_tile *tile,
                                         kvern_pass pass)
{
    return pass == KVERN_PASS_CODED ? job->view->geometry : job->view->rows[tile->rows[0]].geometry;
}

// The vectors [begin, end) of each head of a tile, which are those of one row from number `first`
// on.
typedef struct part {
    size_t row, begin, end, first;
} part;

// The part of the tile's row number `index`; the parts before it end at `begin`.
static part part_of(const kvern_attend_job *job, const kvern_tile *tile, size_t index, size_t begin)
{
    KVERN_ASSERT(index < tile->row_count && begin < tile->count);
    const size_t row = tile->rows[index];
    if (tile->row_count == 1)
        return (part){row, 0, tile->count, tile->first};
    return (part){row, begin, begin + kvern_row_vectors(job, row), 0};
}

// The query and the query head of vector i of one of the tile's heads.
static int64_t query_of(const kvern_attend_job *job, const part *p, size_t i)
{
    return (int64_t)((p->first + i - p->begin) / job->group);
}

static int64_t head_of(const kvern_attend_job *job, size_t head, const part *p, size_t i)
{
    return (int64_t)(head * job->group + (p->first + i - p->begin) % job->group);
}

// What vector i sees.
static kvern_visibility visibility_of(const kvern_attend_job *job, const part *p, size_t i)
{
    return kvern_visibility_of(&job->view->window, &job->view->rows[p->row],
                               job->queries->first[p->row] + query_of(job, p, i));
}

static void load_part(const kvern_attend_job *job, const kvern_tile *tile, kvern_pass pass,
                      size_t head, const part *p, kvern_workspace *work)
{
    const kvern_queries *q = job->queries;
    const kvern_geometry *g = geometry_of(job, tile, pass);
    const kvern_stream_plan *keys = kvern_stream_for(g, KVERN_ROLE_SCORE);
    const size_t base = head * tile->count;
    for (size_t i = p->begin; i < p->end; i++) {
        work->sees[base + i] = visibility_of(job, p, i);
        float *to = work->q + (base + i) * g->query_floats;
        const int64_t at = (q->q_start[p->row] + query_of(job, p, i)) * q->q_token_stride +
                           head_of(job, tile->head + head, p, i) * q->q_head_stride;
        kvern_vector_load(&job->kernels, q, at, g->query_dim, to);
        if (job->latent) // their blocks are decoded first
            kvern_latent_rotate(job, to);
        else if (keys->kernels.prepare)
            keys->kernels.prepare(&keys->codec, keys->dim, to);
    }
}

void kvern_tile_load(const kvern_attend_job *job, const kvern_tile *tile, kvern_pass pass,
                     kvern_workspace *work)
{
    KVERN_ASSERT(tile->count > 0 && tile->heads * tile->count <= VECTORS);
    KVERN_ASSERT(tile->row_count == 1 || tile->first == 0);
    for (size_t r = 0, at = 0; r < tile->row_count; r++) {
        const part p = part_of(job, tile, r, at);
        for (size_t head = 0; head < tile->heads; head++)
            load_part(job, tile, pass, head, &p, work);
        at = p.end;
    }
    if (job->latent)
        kvern_latent_load(job, tile->count, work);
}

// ---- Visibility ----

void kvern_tile_place(const kvern_attend_job *job, kvern_tile *tile)
{
    kvern_visibility all = {.begin = INT64_MAX, .coded_begin = job->view->window.front};
    int64_t least = INT64_MAX;
    for (size_t r = 0, at = 0; r < tile->row_count; r++) {
        const part p = part_of(job, tile, r, at);
        const int64_t first = query_of(job, &p, p.begin), last = query_of(job, &p, p.end - 1);
        const kvern_visibility seen =
            kvern_visibility_of_some(&job->view->window, &job->view->rows[p.row],
                                     job->queries->first[p.row] + first, last - first + 1);
        all.kept = kvern_max_i64(all.kept, seen.kept);
        all.begin = kvern_min_i64(all.begin, seen.begin);
        all.end = kvern_max_i64(all.end, seen.end);
        all.coded_end = kvern_max_i64(all.coded_end, seen.coded_end);
        least = kvern_min_i64(least, visibility_of(job, &p, p.begin).coded_end);
        at = p.end;
    }
    KVERN_ASSERT(all.begin < all.end); // a query sees its own position
    for (size_t pass = 0; pass < KVERN_PASSES; pass++)
        tile->sees[pass] = kvern_visibility_in(&all, (kvern_pass)pass, least);
    tile->coded_spans = kvern_visible_spans(&tile->sees[KVERN_PASS_CODED]);
    tile->spans = tile->coded_spans + kvern_visible_spans(&tile->sees[KVERN_PASS_REST]);
    KVERN_ASSERT(tile->spans > 0);
}

// The first position of span number `span`.
static int64_t span_begin(const kvern_tile *tile, size_t span)
{
    const kvern_pass pass = kvern_tile_pass(tile, span);
    const size_t number = pass == KVERN_PASS_CODED ? span : span - tile->coded_spans;
    return kvern_visible_span_begin(&tile->sees[pass], number);
}

// How many ones the number has at its low end.
static int ones_at(uint64_t bits)
{
    KVERN_ASSERT(bits & 1);
    return ~bits ? __builtin_ctzll(~bits) : 64;
}

// ---- Blocks and spans ----

// Adds the values of a block for vectors [from, to) of the working memory: those that see the same
// slots go together, run by run.
static void accumulate_values(const kvern_stream_plan *v, const kvern_workspace *work, size_t from,
                              size_t to, const void *block, float *acc, const void *next)
{
    for (size_t i = from; i < to;) {
        uint64_t slots = work->visible[i];
        size_t end = i + 1;
        while (end < to && work->visible[end] == slots)
            end++;
        while (slots) {
            const int begin = __builtin_ctzll(slots), run_end = begin + ones_at(slots >> begin);
            KVERN_ASSERT(begin < run_end && run_end <= SLOTS);
            v->kernels.accumulate(&v->codec, block, v->dim, (size_t)begin, (size_t)run_end, end - i,
                                  work->weights + i * SLOTS, acc + i * v->dim, next);
            slots &= ~kvern_slots_below(run_end);
        }
        i = end;
    }
}

// The vectors [from, to) of each head that meet one page together. page NULL: none do.
typedef struct run {
    size_t from, to;
    kvern_pass pass;
    void *page;
} run;

// The first vectors of a part, from number *from on, that are neighbours and see something of the
// block at `begin`: all that do, unless positions are flagged. *from becomes where to go on.
static run run_of(const kvern_attend_job *job, const part *p, kvern_pass pass, int64_t begin,
                  const kvern_workspace *work, size_t *from)
{
    run r = {*from, p->end, pass, NULL};
    while (r.from < r.to && !kvern_sees_in(&work->sees[r.from], pass, begin, SLOTS))
        r.from++;
    while (r.from < r.to && !kvern_sees_in(&work->sees[r.to - 1], pass, begin, SLOTS))
        r.to--;
    *from = p->end;
    if (r.from < r.to && kvern_visibility_has_flags(&job->view->rows[p->row])) {
        const size_t last = r.to;
        for (r.to = r.from + 1;
             r.to < last && kvern_sees_in(&work->sees[r.to], pass, begin, SLOTS);)
            r.to++;
        *from = r.to;
    }
    if (r.from < r.to)
        r.page = kvern_read_page(&job->view->window, &job->view->rows[p->row], pass,
                                 (size_t)(begin / SLOTS))
                     ->data;
    return r;
}

// The page that is read first in the block at `begin`, which lies behind all that was read so far.
static void *first_page(const kvern_attend_job *job, const kvern_tile *tile, kvern_pass pass,
                        int64_t begin, const kvern_workspace *work)
{
    void *page = NULL;
    for (size_t r = 0, at = 0; r < tile->row_count && begin < tile->sees[pass].end && !page; r++) {
        const part p = part_of(job, tile, r, at);
        page = run_of(job, &p, pass, begin, work, &at).page;
        at = p.end;
    }
    return page;
}

// Which slots of the block at `begin` the vectors of a run see; returns those that any of them
// does.
static uint64_t look(const kvern_tile *tile, const run *r, int64_t begin, kvern_workspace *work)
{
    uint64_t any = 0;
    for (size_t i = r->from; i < r->to; i++) {
        const bool again =
            i > r->from && kvern_visibility_equal(&work->sees[i], &work->sees[i - 1]);
        work->visible[i] =
            again ? work->visible[i - 1] : kvern_visible_slots(&work->sees[i], begin);
        any |= work->visible[i];
    }
    for (size_t head = 1; head < tile->heads; head++)
        memcpy(work->visible + head * tile->count + r->from, work->visible + r->from,
               (r->to - r->from) * sizeof work->visible[0]);
    KVERN_ASSERT(work->visible[r->from] && work->visible[r->to - 1]); // or the run would be shorter
    return any;
}

// The scores of a run, head by head. What comes next are the page's values. Where few slots of a
// page are seen, as of those that rows have begun behind a shared prefix, these are little and
// follow each other, while the keys lie apart: then the next page's keys are the better hint.
static void score_run(const kvern_attend_job *job, const kvern_tile *tile, const run *r,
                      uint64_t any, const void *next_keys, kvern_workspace *work)
{
    const kvern_geometry *g = geometry_of(job, tile, r->pass);
    const kvern_stream_plan *keys = kvern_stream_for(g, KVERN_ROLE_SCORE);
    const kvern_stream_plan *values = kvern_stream_for(g, KVERN_ROLE_VALUE);
    KVERN_ASSERT(any && r->from < r->to && r->to <= tile->count);
    const size_t low = (size_t)__builtin_ctzll(any) / 16;
    const size_t high = kvern_ceil_div(SLOTS - (size_t)__builtin_clzll(any), 16);
    KVERN_ASSERT(low < high && high <= SLOTS / 16);
    const void *last =
        high - low == 1 && next_keys ? next_keys : kvern_page_block(values, r->page, tile->head);
    for (size_t h = 0; h < tile->heads; h++) {
        const size_t from = h * tile->count + r->from;
        const void *next =
            h + 1 < tile->heads ? kvern_page_block(keys, r->page, tile->head + h + 1) : last;
        keys->kernels.score(&keys->codec, kvern_page_block(keys, r->page, tile->head + h),
                            keys->dim, low, high, r->to - r->from, work->q + from * g->query_floats,
                            g->query_floats, work->weights + from * SLOTS, next);
    }
}

static void weigh(const kvern_attend_job *job, size_t from, size_t count, size_t dim,
                  const kvern_workspace *work, kvern_partial *out)
{
    job->kernels.softmax(count, work->weights + from * SLOTS, work->visible + from,
                         job->queries->softcap, out->m + from, out->l + from, out->acc + from * dim,
                         dim);
}

// Scores become weights: of all heads at once where the run's vectors follow each other.
static void weigh_run(const kvern_attend_job *job, const kvern_tile *tile, const run *r,
                      const kvern_workspace *work, kvern_partial *out)
{
    const size_t count = r->to - r->from, dim = value_dim(job);
    if (count == tile->count) {
        weigh(job, 0, tile->heads * count, dim, work, out);
        return;
    }
    for (size_t h = 0; h < tile->heads; h++)
        weigh(job, h * tile->count + r->from, count, dim, work, out);
}

// Adds a page of the block at `begin` to the results of the vectors that meet it. `next_page` is
// read after it; or NULL.
static void attend_run(const kvern_attend_job *job, const kvern_tile *tile, const run *r,
                       int64_t begin, void *next_page, kvern_workspace *work, kvern_partial *out)
{
    const kvern_geometry *g = geometry_of(job, tile, r->pass);
    const kvern_stream_plan *keys = kvern_stream_for(g, KVERN_ROLE_SCORE);
    const kvern_stream_plan *values = kvern_stream_for(g, KVERN_ROLE_VALUE);
    const void *next_keys = next_page ? kvern_page_block(keys, next_page, tile->head) : NULL;
    score_run(job, tile, r, look(tile, r, begin, work), next_keys, work);
    weigh_run(job, tile, r, work, out);
    for (size_t h = 0; h < tile->heads; h++) {
        const size_t base = h * tile->count;
        const void *next =
            h + 1 < tile->heads ? kvern_page_block(values, r->page, tile->head + h + 1) : next_keys;
        accumulate_values(values, work, base + r->from, base + r->to,
                          kvern_page_block(values, r->page, tile->head + h), out->acc, next);
    }
}

// The same where values are keys.
static void attend_latents(const kvern_attend_job *job, const kvern_tile *tile, const run *r,
                           int64_t begin, const void *next_page, kvern_workspace *work,
                           kvern_partial *out)
{
    const kvern_latent_run found = {
        .from = r->from, .to = r->to, .count = tile->count, .any = look(tile, r, begin, work)};
    KVERN_ASSERT(tile->heads == 1);
    kvern_latent_page(job, &found, r->page, next_page, work, out);
}

static void meet(const kvern_attend_job *job, const kvern_tile *tile, const run *r, int64_t begin,
                 void *next_page, kvern_workspace *work, kvern_partial *out)
{
    if (job->latent)
        attend_latents(job, tile, r, begin, next_page, work, out);
    else
        attend_run(job, tile, r, begin, next_page, work, out);
}

// Neighbouring rows that have the same page here meet it together.
static void attend_block(const kvern_attend_job *job, const kvern_tile *tile, kvern_pass pass,
                         int64_t begin, int64_t next_begin, kvern_workspace *work,
                         kvern_partial *out)
{
    run open = {0, 0, pass, NULL};
    for (size_t r = 0, at = 0; r < tile->row_count; r++) {
        const part p = part_of(job, tile, r, at);
        while (at < p.end) {
            const run next = run_of(job, &p, pass, begin, work, &at);
            if (open.page && next.page == open.page && next.from == open.to) {
                open.to = next.to;
            } else if (next.page) {
                if (open.page)
                    meet(job, tile, &open, begin, next.page, work, out);
                open = next;
            }
        }
    }
    if (open.page)
        meet(job, tile, &open, begin, first_page(job, tile, pass, next_begin, work), work, out);
}

// Spans of codes are merged with those of precise positions: sums of the numbers themselves.
static void finish_codes(const kvern_attend_job *job, const kvern_tile *tile, float *acc)
{
    const kvern_stream_plan *v =
        kvern_stream_for(geometry_of(job, tile, KVERN_PASS_CODED), KVERN_ROLE_VALUE);
    for (size_t i = 0; v->kernels.finish && i < tile->heads * tile->count; i++)
        v->kernels.finish(&v->codec, v->dim, acc + i * v->dim);
}

void kvern_tile_span(const kvern_attend_job *job, const kvern_tile *tile, size_t span,
                     kvern_workspace *work, kvern_partial *out)
{
    const size_t vectors = tile->heads * tile->count;
    for (size_t i = 0; i < vectors; i++) {
        out->m[i] = -INFINITY;
        out->l[i] = 0;
    }
    if (job->latent)
        kvern_latent_start(job, tile->count, work);
    else
        memset(out->acc, 0, vectors * value_dim(job) * sizeof(float));
    KVERN_ASSERT(span < tile->spans);
    const kvern_pass pass = kvern_tile_pass(tile, span);
    const kvern_visibility *sees = &tile->sees[pass];
    const int64_t begin = span_begin(tile, span);
    const int64_t end = kvern_min_i64(begin + KVERN_SPAN_POSITIONS, sees->end);
    for (int64_t at = kvern_next_block(sees, begin), next; at < end; at = next) {
        next = kvern_next_block(sees, at + SLOTS);
        KVERN_ASSERT(at % SLOTS == 0 && next > at);
        attend_block(job, tile, pass, at, next, work, out);
    }
    if (job->latent)
        kvern_latent_finish(job, tile->count, work, out);
    else if (pass == KVERN_PASS_CODED)
        finish_codes(job, tile, out->acc);
}

// ---- Merging and finishing ----

static void copy_partial(kvern_partial *to, const kvern_partial *from, size_t i, size_t dim)
{
    to->m[i] = from->m[i];
    to->l[i] = from->l[i];
    memcpy(to->acc + i * dim, from->acc + i * dim, dim * sizeof(float));
}

// What becomes of the total of a vector when a span is merged.
typedef enum merging { MERGING_NOTHING, MERGING_START, MERGING_BOTH } merging;

// Vectors whose first span this is start with it; others that see nothing of it skip it.
static merging merging_of(const kvern_visibility *sees, kvern_pass pass, int64_t begin)
{
    if (!kvern_sees_in(sees, pass, begin, KVERN_SPAN_POSITIONS))
        return MERGING_NOTHING;
    return kvern_sees_nothing_before(sees, pass, begin) ? MERGING_START : MERGING_BOTH;
}

void kvern_tile_merge(const kvern_attend_job *job, const kvern_tile *tile, size_t span,
                      const kvern_workspace *work, kvern_partial *total, const kvern_partial *part)
{
    const size_t dim = value_dim(job), vectors = tile->heads * tile->count;
    const kvern_pass pass = kvern_tile_pass(tile, span);
    const int64_t begin = span_begin(tile, span);
    KVERN_ASSERT(span < tile->spans);
    for (size_t i = 0, end; i < vectors; i = end) {
        const merging how = merging_of(&work->sees[i], pass, begin);
        end = i + 1;
        while (end < vectors && merging_of(&work->sees[end], pass, begin) == how)
            end++;
        for (size_t s = i; how == MERGING_START && s < end; s++)
            copy_partial(total, part, s, dim);
        if (how == MERGING_BOTH)
            job->kernels.merge(end - i, total->m + i, total->l + i, total->acc + i * dim,
                               part->m + i, part->l + i, part->acc + i * dim, dim);
    }
}

static void finish_part(const kvern_attend_job *job, const kvern_tile *tile, size_t head,
                        const part *p, kvern_partial *total)
{
    const kvern_queries *q = job->queries;
    const kvern_stream_plan *values =
        kvern_stream_for(geometry_of(job, tile, KVERN_PASS_REST), KVERN_ROLE_VALUE);
    for (size_t i = p->begin; i < p->end; i++) {
        const int64_t query = query_of(job, p, i);
        const int64_t query_head = head_of(job, tile->head + head, p, i);
        const size_t vector = head * tile->count + i;
        const int64_t at =
            (q->out_start[p->row] + query) * q->out_token_stride + query_head * q->out_head_stride;
        kvern_vector_finish(&job->kernels, values, q, (size_t)query_head, at, values->dim,
                            total->m[vector], total->l[vector], total->acc + vector * values->dim);
    }
}

void kvern_tile_finish(const kvern_attend_job *job, const kvern_tile *tile, kvern_partial *total)
{
    for (size_t r = 0, at = 0; r < tile->row_count; r++) {
        const part p = part_of(job, tile, r, at);
        for (size_t head = 0; head < tile->heads; head++)
            finish_part(job, tile, head, &p, total);
        at = p.end;
    }
}
