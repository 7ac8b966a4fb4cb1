// SPDX-License-Identifier: MIT
#include "src/attend/latent_block.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <string.h>

#define SLOTS KVERN_BLOCK_POSITIONS
#define VECTORS KVERN_TILE_VECTORS
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
    const size_t decoded = is_f32(g) ? 0 : g->query_dim * SLOTS;
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

// ---- Scores and weights ----

// Whole groups: neighbours that do not meet the block get scores that nobody looks at.
static void score(const kvern_attend_job *job, const kvern_latent_run *run, const float *values,
                  const char *next, kvern_workspace *work)
{
    const kvern_geometry *g = geometry_of(job);
    const size_t group = job->latent->group, first = run->from / group;
    const kvern_latent_score s = {.keys = values,
                                  .dim = g->query_dim,
                                  .groups = kvern_ceil_div(run->to, group) - first,
                                  .q = work->latent.q + first * g->query_dim * group,
                                  .scores = work->weights + first * group * SLOTS,
                                  .next = next,
                                  .next_bytes = work->latent.page_bytes / 2};
    KVERN_ASSERT(run->any && s.groups > 0 && g->query_floats == g->query_dim);
    job->latent->score(&s);
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

// The slots in ascending order, those that the same vectors see together.
static void add_slots(const kvern_attend_job *job, const kvern_latent_run *run,
                      const uint64_t *visible, kvern_latent_sum *sum)
{
    const bool all = all_see(run, visible);
    for (size_t slot = 0; slot < SLOTS;) {
        const uint32_t vectors = vectors_at(run, visible, slot);
        sum->begin = slot++;
        while (slot < SLOTS && (all ? (run->any >> slot & 1) == (vectors != 0)
                                    : vectors_at(run, visible, slot) == vectors))
            slot++;
        if (!vectors)
            continue;
        // Lanes without a vector have weights of 0 and sums that nobody reads.
        const bool whole = run->to - run->from == run->count && all;
        sum->vectors = whole ? (uint32_t)((UINT64_C(1) << sum->width) - 1) : vectors;
        sum->end = slot;
        job->latent->sum(sum);
        sum->factors = NULL;
        sum->next = NULL;
    }
}

void kvern_latent_values(const kvern_attend_job *job, const kvern_latent_run *run,
                         const float *values, const char *next, kvern_workspace *work,
                         kvern_partial *out)
{
    const size_t width = width_of(run->count), dim = latent_dim(job);
    float factors[VECTORS];
    score(job, run, values, next, work);
    const bool any = weigh(job, run, work, factors, out);
    job->latent->turn(run->to - run->from, SLOTS, work->weights + run->from * SLOTS, SLOTS,
                      work->latent.weights + run->from, width);
    kvern_latent_sum sum = {.values = values,
                            .dim = dim,
                            .width = width,
                            .weights = work->latent.weights,
                            .factors = any ? factors : NULL,
                            .sums = work->latent.sums,
                            .next = next ? next + work->latent.page_bytes / 2 : NULL,
                            .next_bytes = work->latent.page_bytes / 2};
    add_slots(job, run, work->visible, &sum);
}

// ---- Pages ----

// The values of a page in f32: where they lie, or decoded.
static const float *values_of(const kvern_attend_job *job, const void *page, kvern_workspace *work)
{
    const kvern_geometry *g = geometry_of(job);
    const char *blocks = page;
    if (!work->latent.block)
        return (const float *)blocks;
    float *to = work->latent.block;
    for (size_t s = 0; s < g->stream_count; s++) {
        const kvern_stream_plan *stream = &g->streams[s];
        if (!(stream->role & KVERN_ROLE_SCORE))
            continue;
        stream->kernels.decode_block(&stream->codec, blocks + stream->offset, stream->dim, to);
        to += stream->dim * SLOTS;
    }
    return work->latent.block;
}

void kvern_latent_page(const kvern_attend_job *job, const kvern_latent_run *run, const void *page,
                       const void *next_page, kvern_workspace *work, kvern_partial *out)
{
    kvern_latent_values(job, run, values_of(job, page, work), next_page, work, out);
}

void kvern_latent_finish(const kvern_attend_job *job, size_t count, const kvern_workspace *work,
                         kvern_partial *out)
{
    const size_t dim = latent_dim(job);
    job->latent->turn(dim, count, work->latent.sums, width_of(count), out->acc, dim);
}
