// SPDX-License-Identifier: MIT
#include "src/attend/latent_block.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <string.h>

#define SLOTS KVERN_BLOCK_POSITIONS
#define VECTORS KVERN_TILE_VECTORS
#define PIECE 64 // dims that are decoded at a time: 16 KB
#define STRIP KVERN_LATENT_STRIP
#define FACTOR_FLOATS 8 // the softmax kernels bring up to date at least so many numbers per vector

static const kvern_geometry *geometry_of(const kvern_attend_job *job)
{
    return job->view->geometry;
}

static size_t latent_dim(const kvern_attend_job *job)
{
    return kvern_stream_for(geometry_of(job), KVERN_ROLE_VALUE)->dim;
}

// Vectors that a row of sums or weights has.
static size_t width_of(size_t count)
{
    KVERN_ASSERT(count > 0 && count <= VECTORS);
    return count <= VECTORS / 2 ? VECTORS / 2 : VECTORS;
}

// ---- Working memory ----

// Whether a page has the keys as a block of f32.
static bool is_f32(const kvern_geometry *g)
{
    bool all = true;
    for (size_t s = 0; s < g->stream_count; s++)
        all = all && (!(g->streams[s].role & KVERN_ROLE_SCORE) ||
                      g->streams[s].codec.kind == KVERN_CODEC_F32);
    return all;
}

size_t kvern_latent_space_bytes(const kvern_attend_job *job)
{
    const kvern_geometry *g = geometry_of(job);
    if (!kvern_values_are_keys(g))
        return 0;
    const size_t decoded = is_f32(g) ? 0 : PIECE * SLOTS;
    return (decoded + (g->query_dim + latent_dim(job) + SLOTS) * VECTORS) * sizeof(float);
}

kvern_latent_space kvern_latent_space_at(const kvern_attend_job *job, void *memory)
{
    const kvern_geometry *g = geometry_of(job);
    if (!kvern_values_are_keys(g))
        return (kvern_latent_space){0};
    kvern_latent_space space = {.sums = memory};
    space.weights = space.sums + latent_dim(job) * VECTORS;
    space.q = space.weights + SLOTS * VECTORS;
    if (!is_f32(g))
        space.block = space.q + g->query_dim * VECTORS;
    for (size_t s = 0; s < g->stream_count; s++)
        space.page_bytes += g->streams[s].role & KVERN_ROLE_SCORE ? g->streams[s].block_bytes : 0;
    return space;
}

void kvern_latent_rotate(const kvern_attend_job *job, float *q)
{
    const kvern_geometry *g = geometry_of(job);
    for (size_t s = 0; s < g->stream_count; s++) {
        const kvern_stream_plan *stream = &g->streams[s];
        if (!(stream->role & KVERN_ROLE_SCORE))
            continue;
        if (stream->kernels.rotate)
            stream->kernels.rotate(stream->dim, q);
        q += stream->dim;
    }
}

// A group that is not full has zeros.
void kvern_latent_load(const kvern_attend_job *job, size_t count, kvern_workspace *work)
{
    const size_t dim = geometry_of(job)->query_dim, group = job->latent->group;
    KVERN_ASSERT(VECTORS % group == 0);
    for (size_t first = 0; first < count; first += group) {
        float *to = work->latent.q + first * dim;
        const size_t here = kvern_min_size(count - first, group);
        if (here < group)
            memset(to, 0, dim * group * sizeof *to);
        job->latent->turn(here, dim, work->q + first * dim, dim, to, group);
    }
}

void kvern_latent_start(const kvern_attend_job *job, size_t count, kvern_workspace *work)
{
    const size_t width = width_of(count);
    memset(work->latent.sums, 0, latent_dim(job) * width * sizeof(float));
    memset(work->latent.weights, 0,
           SLOTS * width * sizeof(float)); // also for vectors that there are not
}

// ---- Pages in f32 ----

// Some dims of the keys of a page, as f32.
typedef struct piece {
    const float *values; // [end - begin][64]
    size_t begin, end;
} piece;

// A pass over the dims of a page below `limit`.
typedef struct pass {
    const void *page;
    size_t limit;
    const void *then;    // the page of the next pass; or NULL
    const char *missing; // what no cache has yet of the next page, from here on; or NULL
    size_t per_dim;      // bytes of it for every dim of the pass
} pass;

// The stream that has dim d of a key; `first` is the dim that it begins with.
static const kvern_stream_plan *stream_at(const kvern_geometry *g, size_t d, size_t *first)
{
    size_t s = 0;
    *first = 0;
    for (; !(g->streams[s].role & KVERN_ROLE_SCORE) || d >= *first + g->streams[s].dim; s++)
        *first += g->streams[s].role & KVERN_ROLE_SCORE ? g->streams[s].dim : 0;
    KVERN_ASSERT(s < g->stream_count);
    return &g->streams[s];
}

// What there is from dim `begin` on, below `limit`: all, where the page has it in f32. Else as much
// as stays in a first-level cache is decoded, so a page is decoded twice, for scores and for sums,
// and its values never go through the next cache.
static piece piece_at(const kvern_attend_job *job, const pass *p, size_t begin,
                      kvern_workspace *work)
{
    size_t first;
    if (!work->latent.block)
        return (piece){(const float *)p->page + begin * SLOTS, begin, p->limit};
    const kvern_stream_plan *stream = stream_at(geometry_of(job), begin, &first);
    const size_t end = kvern_min_size(begin + PIECE, kvern_min_size(first + stream->dim, p->limit));
    stream->kernels.decode_block(&stream->codec, (const char *)p->page + stream->offset,
                                 stream->dim, begin - first, end - first, work->latent.block);
    return (piece){work->latent.block, begin, end};
}

// What is read behind a piece. About: what a codec has besides codes of the dims lies elsewhere.
static kvern_latent_next next_of(const kvern_attend_job *job, const pass *p, const piece *now)
{
    const size_t begin = now->end < p->limit ? now->end : 0;
    const void *page = begin ? p->page : p->then;
    kvern_latent_next next = {0};
    size_t first;
    if (page) {
        const kvern_stream_plan *stream = stream_at(geometry_of(job), begin, &first);
        const size_t dims = kvern_min_size(PIECE, first + stream->dim - begin);
        const size_t per_dim = (uint32_t)stream->block_bytes / (uint32_t)stream->dim;
        next.soon = (const char *)page + stream->offset + (begin - first) * per_dim;
        next.soon_bytes = dims * per_dim;
    }
    if (p->missing) {
        next.later = p->missing + now->begin * p->per_dim;
        next.later_bytes = (now->end - now->begin) * p->per_dim;
    }
    return next;
}

// ---- Scores and weights ----

// Whole groups: neighbours that do not meet the block get scores that nobody looks at.
static void score(const kvern_attend_job *job, const kvern_latent_run *run, const void *page,
                  const char *next, kvern_workspace *work)
{
    const size_t dim = geometry_of(job)->query_dim;
    const pass over = {page, dim, page, next, work->latent.page_bytes / 2 / dim};
    const size_t group = job->latent->group, first = run->from / group;
    kvern_latent_score s = {.dim = dim,
                            .groups = kvern_ceil_div(run->to, group) - first,
                            .q = work->latent.q + first * dim * group,
                            .scores = work->weights + first * group * SLOTS};
    KVERN_ASSERT(run->any && s.groups > 0 && geometry_of(job)->query_floats == dim);
    for (size_t d = 0; d < dim; d = s.end) {
        const piece p = piece_at(job, &over, d, work);
        s.keys = p.values;
        s.begin = p.begin;
        s.end = p.end;
        s.next = next_of(job, &over, &p);
        job->latent->score(&s);
    }
}

// What the sums of each vector are multiplied by; returns whether that is anything but 1. Ones that
// go through the softmax as if they were sums become the factors.
static bool weigh(const kvern_attend_job *job, const kvern_latent_run *run, kvern_workspace *work,
                  float factors[VECTORS], kvern_partial *out)
{
    _Alignas(64) float ones[VECTORS * FACTOR_FLOATS];
    const size_t from = run->from, count = run->to - from;
    bool any = false;
    for (size_t i = 0; i < count * FACTOR_FLOATS; i++)
        ones[i] = 1;
    job->kernels.softmax(count, work->weights + from * SLOTS, work->visible + from,
                         job->queries->softcap, out->m + from, out->l + from, ones, FACTOR_FLOATS);
    for (size_t i = 0; i < VECTORS; i++)
        factors[i] = 1;
    for (size_t i = 0; i < count; i++) {
        factors[from + i] = ones[i * FACTOR_FLOATS];
        any = any || factors[from + i] != 1;
    }
    return any;
}

// ---- Weighted sums ----

// The vectors of the run that see a slot.
static uint32_t vectors_at(const kvern_latent_run *run, const uint64_t *visible, size_t slot)
{
    uint32_t vectors = 0;
    for (size_t i = run->from; i < run->to; i++)
        vectors |= (uint32_t)(visible[i] >> slot & 1) << i;
    return vectors;
}

static bool all_see(const kvern_latent_run *run, const uint64_t *visible)
{
    bool all = true;
    for (size_t i = run->from; i < run->to; i++)
        all = all && visible[i] == run->any;
    return all;
}

// Slots [begin, end) that the same vectors see together.
typedef struct slots {
    size_t begin, end;
    uint32_t vectors;
} slots;

// All of them in ascending order; returns how many there are.
static size_t find_slots(const kvern_latent_run *run, const uint64_t *visible, slots found[SLOTS])
{
    size_t count = 0;
    if (run->any == UINT64_MAX && all_see(run, visible)) {
        // Lanes without a vector have weights of 0 and sums that nobody reads.
        const size_t lanes = run->to - run->from == run->count ? width_of(run->count) : 0;
        const uint64_t all = lanes ? (UINT64_C(1) << lanes) - 1 : vectors_at(run, visible, 0);
        found[0] = (slots){0, SLOTS, (uint32_t)all};
        return 1;
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        const uint32_t vectors = vectors_at(run, visible, slot);
        if (count && found[count - 1].end == slot && found[count - 1].vectors == vectors)
            found[count - 1].end++;
        else if (vectors)
            found[count++] = (slots){slot, slot + 1, vectors};
    }
    KVERN_ASSERT(count > 0);
    return count;
}

static void add_values(const kvern_attend_job *job, const kvern_latent_run *run, const void *page,
                       const char *next, const float *factors, kvern_workspace *work)
{
    const size_t width = width_of(run->count), dim = latent_dim(job);
    const size_t half = work->latent.page_bytes / 2;
    const pass over = {page, dim, work->latent.block ? next : NULL, next ? next + half : NULL,
                       half / dim};
    const size_t first = run->from / STRIP;
    slots found[SLOTS];
    const size_t count = find_slots(run, work->visible, found);
    for (size_t d = 0, end; d < dim; d = end) {
        const piece p = piece_at(job, &over, d, work);
        end = p.end;
        kvern_latent_sum sum = {.values = p.values,
                                .dim = end - d,
                                .strips = kvern_ceil_div(run->to, STRIP) - first,
                                .width = width,
                                .weights = work->latent.weights + first * STRIP,
                                .factors = factors ? factors + first * STRIP : NULL,
                                .sums = work->latent.sums + d * width + first * STRIP,
                                .next = next_of(job, &over, &p)};
        for (size_t i = 0; i < count; i++) {
            sum.begin = found[i].begin;
            sum.end = found[i].end;
            sum.vectors = found[i].vectors >> first * STRIP;
            job->latent->sum(&sum);
            sum.factors = NULL;
            sum.next = (kvern_latent_next){0};
        }
    }
}

void kvern_latent_page(const kvern_attend_job *job, const kvern_latent_run *run, const void *page,
                       const void *next_page, kvern_workspace *work, kvern_partial *out)
{
    float factors[VECTORS];
    score(job, run, page, next_page, work);
    const bool any = weigh(job, run, work, factors, out);
    job->latent->turn(run->to - run->from, SLOTS, work->weights + run->from * SLOTS, SLOTS,
                      work->latent.weights + run->from, width_of(run->count));
    add_values(job, run, page, next_page, any ? factors : NULL, work);
}

void kvern_latent_finish(const kvern_attend_job *job, size_t count, const kvern_workspace *work,
                         kvern_partial *out)
{
    const size_t dim = latent_dim(job);
    job->latent->turn(dim, count, work->latent.sums, width_of(count), out->acc, dim);
}
