// SPDX-License-Identifier: MIT
#include "bench/measure/attention.h"

#include "bench/measure/cache_size.h"
#include "bench/measure/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Rows at most; each attend takes the next one, so that its pages have left the caches since they
// were last read.
#define MOST_ROWS 512

// Tokens that are filled at a time: of a million, the floats of all take more memory than the
// cache.
#define CHUNK_TOKENS 8192

// Attends that take less are timed when the threads are awake.
#define SHORT_SECONDS 0.005

typedef struct setup {
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    size_t rows;
    kvern_layer layer;
    float *k, *v; // of the next CHUNK_TOKENS tokens, or of the new ones
    uint32_t k_seed, v_seed;
    float *q, *out;
    int64_t *counts;
    bool is_short; // less than SHORT_SECONDS
} setup;

static double row_bytes(const attention_case *cell, const setup *s)
{
    return (double)(cell->positions + cell->new_tokens) *
           (double)kvern_composition_bytes_per_token(s->composition);
}

static size_t row_count(const attention_case *cell, const setup *s, size_t cold_bytes)
{
    if (strcmp(cell->phase, "decode") != 0)
        return 1; // a window computes long on what it reads
    const double rows = (double)cold_bytes / row_bytes(cell, s) + 1;
    return rows > MOST_ROWS ? MOST_ROWS : (size_t)rows;
}

// Numbers of a key and of a query.
static size_t key_dim(const attention_case *cell)
{
    return cell->head_dim + cell->rope_dim;
}

static bool take_tensors(const attention_case *cell, setup *s)
{
    const size_t tokens = cell->new_tokens > CHUNK_TOKENS ? (size_t)cell->new_tokens : CHUNK_TOKENS;
    const size_t stored = tokens * cell->kv_heads;
    const size_t asked = (size_t)cell->new_tokens * cell->query_heads;
    s->k = malloc(stored * key_dim(cell) * sizeof(float));
    s->v = malloc(stored * cell->head_dim * sizeof(float));
    s->q = malloc(asked * key_dim(cell) * sizeof(float));
    s->out = malloc(asked * cell->head_dim * sizeof(float));
    s->counts = calloc(s->rows, sizeof(int64_t));
    if (!s->k || !s->v || !s->q || !s->out || !s->counts)
        return false;
    s->k_seed = PEER_SEED_K;
    s->v_seed = PEER_SEED_V;
    peer_fill(s->q, asked * key_dim(cell), PEER_SEED_Q, PEER_RANGE_Q);
    return true;
}

// The next tokens of every row; all rows take the same ones.
static void fill_next(const attention_case *cell, setup *s, int64_t count)
{
    const size_t stored = (size_t)count * cell->kv_heads;
    s->k_seed = peer_fill(s->k, stored * key_dim(cell), s->k_seed, PEER_RANGE_KV);
    s->v_seed = peer_fill(s->v, stored * cell->head_dim, s->v_seed, PEER_RANGE_KV);
}

// Appends s->counts tokens, the first of each row at start[r] (NULL: rows follow each other).
// Latents are what others have for keys.
static kvern_status append(const attention_case *cell, setup *s, const int64_t *start,
                           kvern_read **read)
{
    if (cell->latent) {
        kvern_latent_tokens tokens = kvern_latent_tokens_default(&s->layer);
        tokens.latent = s->k;
        tokens.rope = cell->rope_dim ? s->k + cell->head_dim : NULL;
        tokens.latent_token_stride = tokens.rope_token_stride = (int64_t)key_dim(cell);
        tokens.latent_start = tokens.rope_start = start;
        tokens.counts = s->counts;
        return kvern_cache_append_latent(s->cache, KVERN_PHASE_WINDOW, &tokens, read);
    }
    kvern_tokens tokens = kvern_tokens_default(&s->layer);
    tokens.k = s->k;
    tokens.v = s->v;
    tokens.k_start = tokens.v_start = start;
    tokens.counts = s->counts;
    return kvern_cache_append(s->cache, KVERN_PHASE_WINDOW, &tokens, read);
}

// `count` tokens more in every row, one row after the other.
static kvern_status append_stored(const attention_case *cell, setup *s, int64_t count)
{
    kvern_status status = KVERN_OK;
    fill_next(cell, s, count);
    for (size_t r = 0; r < s->rows && !status; r++) {
        memset(s->counts, 0, s->rows * sizeof(int64_t));
        s->counts[r] = count;
        status = append(cell, s, NULL, NULL);
    }
    return status;
}

// The new tokens of every row.
static kvern_status append_new(const attention_case *cell, setup *s)
{
    int64_t *start = calloc(s->rows, sizeof(int64_t));
    if (!start)
        return KVERN_ERR_MEMORY;
    fill_next(cell, s, cell->new_tokens);
    for (size_t r = 0; r < s->rows; r++)
        s->counts[r] = cell->new_tokens;
    kvern_status status = append(cell, s, start, &s->read);
    free(start);
    return status;
}

static kvern_layer layer_of(const attention_case *cell)
{
    kvern_layer layer = cell->latent ? kvern_layer_latent(cell->head_dim, cell->rope_dim, 0)
                                     : kvern_layer_default(cell->kv_heads, cell->head_dim);
    if (cell->latent) {
        layer.rotated_latents = 1;
        layer.latent_codec = cell->storage;
        layer.rope_codec = cell->rope_dim ? cell->storage : layer.rope_codec;
    } else {
        layer.k_codec = layer.v_codec = cell->storage;
    }
    return layer;
}

static kvern_status open_setup(const attention_case *cell, size_t cold_bytes, setup *s)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = cell->threads;
    s->layer = layer_of(cell);
    kvern_status status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &s->layer, 1, &s->composition);
    if (!status)
        s->rows = row_count(cell, s, cold_bytes);
    if (!status)
        status = kvern_cache_create(s->composition, 0, s->rows, &s->cache);
    if (!status && !take_tensors(cell, s))
        status = KVERN_ERR_MEMORY;
    for (size_t r = 0; r < s->rows && !status; r++)
        status = kvern_cache_reserve(s->cache, r, cell->positions + cell->new_tokens, 0);
    for (int64_t at = 0; at < cell->positions && !status; at += CHUNK_TOKENS) {
        const int64_t rest = cell->positions - at;
        status = append_stored(cell, s, rest < CHUNK_TOKENS ? rest : CHUNK_TOKENS);
    }
    return status ? status : append_new(cell, s);
}

static void close_setup(setup *s)
{
    kvern_read_release(s->read);
    kvern_cache_destroy(s->cache);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    free(s->k);
    free(s->v);
    free(s->q);
    free(s->out);
    free(s->counts);
}

static kvern_status run_once(const attention_case *cell, setup *s, size_t row, double *seconds)
{
    kvern_queries queries = kvern_queries_default(&s->layer, cell->query_heads);
    memset(s->counts, 0, s->rows * sizeof(int64_t));
    s->counts[row] = cell->new_tokens;
    queries.q = s->q;
    queries.out = s->out;
    queries.counts = s->counts;
    const double start = clock_seconds();
    kvern_status status = kvern_read_attend(s->read, &queries);
    *seconds = clock_seconds() - start;
    return status;
}

// Of all runs: our times, and the limits.
typedef struct samples {
    double *times, *bytes, *fma;
    size_t runs;
} samples;

static bool take_samples(size_t runs, samples *m)
{
    m->times = calloc(3 * runs, sizeof(double));
    m->bytes = m->times ? m->times + runs : NULL;
    m->fma = m->times ? m->bytes + runs : NULL;
    m->runs = runs;
    return m->times != NULL;
}

static void measure_limits(const roofline_buffer *buffer, const setup *s, size_t run, samples *m)
{
    const kvern_executor executor = kvern_context_executor(s->context);
    const roofline limits =
        roofline_measure(buffer, &executor, kvern_context_cpu_features(s->context));
    m->bytes[run] = limits.bytes_per_s;
    m->fma[run] = limits.fma_per_s;
}

// One timed attend. A short one follows another one, on another row: its threads are awake, as
// those of a forward pass are. Peers do the same.
static kvern_status run_timed(const attention_case *cell, setup *s, size_t run, double *seconds)
{
    kvern_status status = KVERN_OK;
    if (s->is_short)
        status = run_once(cell, s, (2 * run + 1) % s->rows, seconds);
    return status ? status : run_once(cell, s, 2 * run % s->rows, seconds);
}

static measure_fault run_all(const attention_case *cell, setup *s, const roofline_buffer *buffer,
                             timed_peer *peers, size_t count, samples *m)
{
    double seconds;
    if (run_once(cell, s, s->rows - 1, &seconds)) // warms scratch and threads
        return MEASURE_LIBRARY;
    s->is_short = seconds < SHORT_SECONDS;
    if (!timed_peers_run(peers, count, 0))
        return MEASURE_PEER_GONE;
    for (size_t i = 0; i < m->runs; i++) {
        measure_limits(buffer, s, i, m);
        if (run_timed(cell, s, i, &m->times[i]))
            return MEASURE_LIBRARY;
        clock_rest();
        if (!timed_peers_run(peers, count, i))
            return MEASURE_PEER_GONE;
    }
    return MEASURE_FINE;
}

static void summarize(const attention_case *cell, const setup *s, samples *m,
                      attention_result *result)
{
    const double new = (double)cell->new_tokens, old = (double)cell->positions;
    result->times = clock_quartiles(m->times, m->runs);
    result->bytes = row_bytes(cell, s);
    result->fma = (double)cell->query_heads * (double)(cell->head_dim + key_dim(cell)) *
                  (new *old + new *(new + 1) / 2);
    result->limits.bytes_per_s = clock_quantile(m->bytes, m->runs, 0.5);
    result->limits.fma_per_s = clock_quantile(m->fma, m->runs, 0.5);
    result->cache_bytes = cache_size_bytes();
    result->from_cache =
        s->is_short && (double)s->rows * result->bytes <= (double)result->cache_bytes;
    result->share = roofline_share(&result->limits, result->from_cache ? 0 : result->bytes,
                                   result->fma, result->times.median);
}

// Compares the last run's results: all heads of the first, a middle and the last new token.
static bool compare(const attention_case *cell, const setup *s, timed_peer *peer)
{
    const size_t tokens[] = {0, (size_t)cell->new_tokens / 2, (size_t)cell->new_tokens - 1};
    for (size_t t = 0; t < 3; t++) {
        for (size_t head = 0; head < cell->query_heads; head++) {
            const float *ours = s->out + (tokens[t] * cell->query_heads + head) * cell->head_dim;
            if (!timed_peer_compare(peer, tokens[t], head, ours, cell->head_dim))
                return false;
        }
    }
    return true;
}

static measure_fault open_peers(const attention_case *cell, size_t runs, timed_peer *peers,
                                size_t count)
{
    char kind[32], geometry[160];
    snprintf(kind, sizeof kind, "%s %s", cell->latent ? "latent" : "open", cell->phase);
    if (cell->latent)
        snprintf(geometry, sizeof geometry, "%zu %zu %zu", cell->head_dim, cell->rope_dim,
                 cell->query_heads);
    else
        snprintf(geometry, sizeof geometry, "%zu %zu %zu", cell->head_dim, cell->query_heads,
                 cell->kv_heads);
    const size_t length = strlen(geometry);
    snprintf(geometry + length, sizeof geometry - length, " %lld %lld %zu",
             (long long)cell->positions, (long long)cell->new_tokens, cell->threads);
    return timed_peers_open(peers, count, runs, kind, geometry);
}

// Everything that is timed, on a setup that is ready.
static measure_fault measure(const attention_case *cell, setup *s, const roofline_buffer *buffer,
                             timed_peer *peers, size_t count, samples *m)
{
    measure_fault fault = open_peers(cell, m->runs, peers, count);
    if (!fault)
        fault = run_all(cell, s, buffer, peers, count, m);
    for (size_t p = 0; p < count && !fault; p++)
        if (peers[p].measured && !compare(cell, s, &peers[p]))
            fault = MEASURE_PEER_GONE;
    if (!fault)
        fault = timed_peers_check(peers, count);
    timed_peers_close(peers, count, m->runs);
    return fault;
}

measure_fault attention_measure(const attention_case *cell, size_t runs,
                                const roofline_buffer *buffer, size_t cold_bytes, timed_peer *peers,
                                size_t count, attention_result *result)
{
    setup s;
    samples m;
    memset(&s, 0, sizeof s);
    memset(&m, 0, sizeof m);
    memset(result, 0, sizeof *result);
    measure_fault fault = take_samples(runs, &m) ? MEASURE_FINE : MEASURE_MEMORY;
    if (!fault)
        fault = measure_fault_of(open_setup(cell, cold_bytes, &s));
    if (!fault)
        fault = measure(cell, &s, buffer, peers, count, &m);
    if (!fault)
        summarize(cell, &s, &m, result);
    close_setup(&s);
    free(m.times);
    return fault;
}
