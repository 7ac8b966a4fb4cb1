// SPDX-License-Identifier: MIT
#include "bench/measure/selection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Tokens of an append; latents repeat after as many, index keys do not.
#define CHUNK 1024

// Heads and numbers of an indexer that does little else than picking the best positions. One head
// would have a sum of 0 at every other position.
#define PICK_HEADS 8
#define PICK_DIM 8

// One row of a layer, and the read of its newest position.
typedef struct row {
    kvern_layer layer;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
} row;

typedef struct setup {
    const selection_case *cell;
    kvern_context *context;
    row whole, pick; // `pick` has small index keys
    float *latent, *index, *q, *index_q, *weights, *out;
    int64_t *positions, count;
    kvern_selection selection;
} setup;

static float *new_tensor(size_t count, uint32_t seed, float range)
{
    float *tensor = malloc(count * sizeof *tensor);
    if (tensor)
        peer_fill(tensor, count, seed, range);
    return tensor;
}

static bool take_tensors(const selection_case *c, setup *s)
{
    const size_t query = c->latent_dim + c->rope_dim;
    s->latent = new_tensor(CHUNK * query, PEER_SEED_K, PEER_RANGE_KV);
    s->index = new_tensor((size_t)c->positions * c->index_dim, PEER_SEED_V, PEER_RANGE_KV);
    s->q = new_tensor(c->heads * query, PEER_SEED_Q, PEER_RANGE_Q);
    s->index_q = new_tensor(c->index_heads * c->index_dim, PEER_SEED_Q, PEER_RANGE_Q);
    s->weights = new_tensor(c->index_heads, PEER_SEED_V, PEER_RANGE_KV);
    s->out = malloc(c->heads * c->latent_dim * sizeof *s->out);
    s->positions = malloc((size_t)c->top_k * sizeof *s->positions);
    s->selection = kvern_selection_default(s->positions, &s->count, 1, c->top_k);
    return s->latent && s->index && s->q && s->index_q && s->weights && s->out && s->positions;
}

static kvern_status append(const setup *s, row *r, int64_t position, int64_t count, bool last)
{
    kvern_latent_tokens tokens = kvern_latent_tokens_default(&r->layer);
    tokens.latent = s->latent;
    tokens.rope = r->layer.rope_dim ? s->latent + CHUNK * s->cell->latent_dim : NULL;
    tokens.index = s->index + (size_t)position * r->layer.index_dim;
    tokens.counts = &count;
    return kvern_cache_append_latent(r->cache, KVERN_PHASE_WINDOW, &tokens, last ? &r->read : NULL);
}

static kvern_layer whole_layer(const selection_case *c)
{
    kvern_layer layer = kvern_layer_latent(c->latent_dim, c->rope_dim, c->index_dim);
    layer.latent_codec = layer.index_codec = c->storage;
    if (c->rope_dim)
        layer.rope_codec = c->storage;
    return layer;
}

static size_t pick_heads(const selection_case *c)
{
    return c->index_heads < PICK_HEADS ? c->index_heads : PICK_HEADS;
}

// Few other numbers lie between its index keys, so that reading them takes little.
static kvern_layer pick_layer(void)
{
    return kvern_layer_latent(PICK_DIM, 0, PICK_DIM);
}

static kvern_status open_row(const setup *s, kvern_layer layer, row *r)
{
    const selection_case *c = s->cell;
    r->layer = layer;
    kvern_status status = kvern_composition_create(s->context, &r->layer, 1, &r->composition);
    if (!status)
        status = kvern_cache_create(r->composition, 0, 1, &r->cache);
    for (int64_t at = 0; at < c->positions - 1 && !status; at += CHUNK) {
        const int64_t left = c->positions - 1 - at;
        status = append(s, r, at, left < CHUNK ? left : CHUNK, false);
    }
    return status ? status : append(s, r, c->positions - 1, 1, true);
}

static kvern_status open_setup(setup *s)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = s->cell->threads;
    kvern_status status = kvern_context_create(&options, &s->context);
    if (status)
        return status;
    if (!take_tensors(s->cell, s))
        return KVERN_ERR_MEMORY;
    status = open_row(s, whole_layer(s->cell), &s->whole);
    return status ? status : open_row(s, pick_layer(), &s->pick);
}

static void close_row(row *r)
{
    kvern_read_release(r->read);
    kvern_cache_destroy(r->cache);
    kvern_composition_release(r->composition);
}

static void close_setup(setup *s)
{
    close_row(&s->whole);
    close_row(&s->pick);
    kvern_context_release(s->context);
    free(s->latent);
    free(s->index);
    free(s->q);
    free(s->index_q);
    free(s->weights);
    free(s->out);
    free(s->positions);
}

// ---- Timed calls ----

static kvern_status run_select(setup *s, const row *r, size_t heads, double *seconds)
{
    kvern_index_queries queries =
        kvern_index_queries_default(heads, r->layer.index_dim, s->cell->top_k);
    queries.q = s->index_q;
    queries.weights = s->weights;
    const double start = clock_seconds();
    kvern_status status = kvern_read_select(r->read, &queries, &s->selection);
    *seconds = clock_seconds() - start;
    return status;
}

static kvern_status run_attend(const setup *s, const kvern_selection *selection, double *seconds)
{
    kvern_queries queries = kvern_queries_default(&s->whole.layer, s->cell->heads);
    queries.q = s->q;
    queries.out = s->out;
    queries.selection = selection;
    const double start = clock_seconds();
    kvern_status status = kvern_read_attend(s->whole.read, &queries);
    *seconds = clock_seconds() - start;
    return status;
}

// Samples of each kind, and of the limits.
enum { SELECT, PICK, ATTEND, DENSE, BYTES, FMA, SAMPLES };

static measure_fault run_all(setup *s, const roofline_buffer *buffer, size_t runs,
                             timed_peer *peers, size_t count, double *samples)
{
    const kvern_executor executor = kvern_context_executor(s->context);
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < runs && !status; i++) {
        const roofline limits =
            roofline_measure(buffer, &executor, kvern_context_cpu_features(s->context));
        samples[BYTES * runs + i] = limits.bytes_per_s;
        samples[FMA * runs + i] = limits.fma_per_s;
        for (int again = 0; again < 2 && !status; again++) // the first brings its keys to a cache
            status = run_select(s, &s->pick, pick_heads(s->cell), &samples[PICK * runs + i]);
        if (!status)
            status = run_select(s, &s->whole, s->cell->index_heads, &samples[SELECT * runs + i]);
        if (!status)
            status = run_attend(s, &s->selection, &samples[ATTEND * runs + i]);
        if (!status)
            status = run_attend(s, NULL, &samples[DENSE * runs + i]);
        clock_rest();
        if (!timed_peers_run(peers, count, i))
            return MEASURE_PEER_GONE;
    }
    return measure_fault_of(status);
}

static bool is_selected(const setup *s, float position)
{
    for (int64_t i = 0; i < s->count; i++)
        if ((float)s->positions[i] == position)
            return true;
    return false;
}

// Which positions are selected, as a vector of ones and zeros: each that only one of us has is
static bool compare(const setup *s, timed_peer *peer)
{
    const size_t count = (size_t)s->count;
    float *theirs = malloc(count * sizeof *theirs);
    const bool there = theirs && peer_output(&peer->process, 0, 0, theirs, count);
    for (size_t i = 0; i < count && there; i++) {
        peer->sums[0] += is_selected(s, theirs[i]) ? 0 : 2;
        peer->sums[1] += 1;
    }
    free(theirs);
    return there;
}

// Everything that is timed, on a setup that is ready.
static measure_fault measure(setup *s, const roofline_buffer *buffer, size_t runs,
                             timed_peer *peers, size_t count, double *samples)
{
    const selection_case *c = s->cell;
    char geometry[160];
    snprintf(geometry, sizeof geometry, "%lld %lld %zu %zu %zu", (long long)c->positions,
             (long long)c->top_k, c->index_heads, c->index_dim, c->threads);
    measure_fault fault = timed_peers_open(peers, count, runs, "select", geometry);
    if (!fault && !timed_peers_run(peers, count, 0)) // warms theirs
        fault = MEASURE_PEER_GONE;
    if (!fault)
        fault = run_all(s, buffer, runs, peers, count, samples);
    for (size_t p = 0; p < count && !fault; p++)
        if (peers[p].measured && !compare(s, &peers[p]))
            fault = MEASURE_PEER_GONE;
    if (!fault)
        fault = timed_peers_check(peers, count);
    timed_peers_close(peers, count, runs);
    return fault;
}

static void summarize(const selection_case *c, double *samples, size_t runs,
                      selection_result *result)
{
    result->select = clock_quartiles(samples + SELECT * runs, runs);
    result->pick = clock_quartiles(samples + PICK * runs, runs);
    result->attend = clock_quartiles(samples + ATTEND * runs, runs);
    result->dense = clock_quartiles(samples + DENSE * runs, runs);
    result->limits.bytes_per_s = clock_quantile(samples + BYTES * runs, runs, 0.5);
    result->limits.fma_per_s = clock_quantile(samples + FMA * runs, runs, 0.5);
    result->score_fma = (double)c->positions * (double)c->index_heads * (double)c->index_dim;
    result->score_share =
        roofline_share(&result->limits, 0, result->score_fma, result->select.median);
}

measure_fault selection_measure(const selection_case *cell, size_t runs,
                                const roofline_buffer *buffer, timed_peer *peers, size_t count,
                                selection_result *result)
{
    setup s = {.cell = cell};
    double *samples = calloc(SAMPLES * runs, sizeof *samples);
    memset(result, 0, sizeof *result);
    kvern_status status = samples ? open_setup(&s) : KVERN_ERR_MEMORY;
    double warm;
    if (!status)
        status = run_select(&s, &s.whole, cell->index_heads, &warm); // scratch and threads
    if (!status)
        status = run_attend(&s, &s.selection, &warm);
    measure_fault fault = measure_fault_of(status);
    if (!fault)
        fault = measure(&s, buffer, runs, peers, count, samples);
    if (!fault)
        summarize(cell, samples, runs, result);
    close_setup(&s);
    free(samples);
    return fault;
}
