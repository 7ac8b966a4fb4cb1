// SPDX-License-Identifier: MIT
#include "bench/measure/attention.h"

#include "bench/measure/clock.h"

#include <stdlib.h>
#include <string.h>

// The limits are measured once before every so many runs.
#define RUNS_PER_LIMIT 4

// Rows at most; each attend takes the next one, so that its pages have left the caches since they
// were last read.
#define MOST_ROWS 512

typedef struct setup {
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    size_t rows;
    kvern_layer layer;
    float *k, *v, *q, *out;
    int64_t *counts;
} setup;

static void fill(float *data, size_t count, uint32_t seed, float range)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = ((float)(seed >> 8) / 8388608.0f - 1) * range;
    }
}

static double row_bytes(const attention_case *cell)
{
    return (double)(cell->positions + cell->new_tokens) * (double)cell->kv_heads *
           (double)cell->head_dim * 2 * (double)kvern_type_bytes(cell->storage);
}

static size_t row_count(const attention_case *cell, size_t cold_bytes)
{
    if (strcmp(cell->phase, "decode") != 0)
        return 1; // a window computes long on what it reads
    const double rows = (double)cold_bytes / row_bytes(cell) + 1;
    return rows > MOST_ROWS ? MOST_ROWS : (size_t)rows;
}

static bool take_tensors(const attention_case *cell, setup *s)
{
    const size_t stored = (size_t)(cell->positions + cell->new_tokens) * cell->kv_heads;
    const size_t asked = (size_t)cell->new_tokens * cell->query_heads;
    s->k = malloc(stored * cell->head_dim * sizeof(float));
    s->v = malloc(stored * cell->head_dim * sizeof(float));
    s->q = malloc(asked * cell->head_dim * sizeof(float));
    s->out = malloc(asked * cell->head_dim * sizeof(float));
    s->counts = calloc(s->rows, sizeof(int64_t));
    if (!s->k || !s->v || !s->q || !s->out || !s->counts)
        return false;
    fill(s->k, stored * cell->head_dim, 1, 1);
    fill(s->v, stored * cell->head_dim, 2, 1);
    fill(s->q, asked * cell->head_dim, 3, 2);
    return true;
}

static kvern_status append_row(const attention_case *cell, setup *s, size_t row)
{
    kvern_tokens tokens = kvern_tokens_default(&s->layer);
    memset(s->counts, 0, s->rows * sizeof(int64_t));
    s->counts[row] = cell->positions;
    tokens.k = s->k;
    tokens.v = s->v;
    tokens.counts = s->counts;
    return kvern_cache_append_window(s->cache, &tokens, NULL);
}

// The new tokens of every row; all rows take the same ones.
static kvern_status append_new(const attention_case *cell, setup *s)
{
    kvern_tokens tokens = kvern_tokens_default(&s->layer);
    int64_t *start = calloc(s->rows, sizeof(int64_t));
    if (!start)
        return KVERN_ERR_MEMORY;
    for (size_t r = 0; r < s->rows; r++) {
        s->counts[r] = cell->new_tokens;
        start[r] = cell->positions;
    }
    tokens.k = s->k;
    tokens.v = s->v;
    tokens.counts = s->counts;
    tokens.k_start = tokens.v_start = start;
    kvern_status status = kvern_cache_append_window(s->cache, &tokens, &s->read);
    free(start);
    return status;
}

static kvern_status open_setup(const attention_case *cell, size_t cold_bytes, setup *s)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = cell->threads;
    s->rows = row_count(cell, cold_bytes);
    s->layer = kvern_layer_default(cell->kv_heads, cell->head_dim);
    s->layer.k_codec = s->layer.v_codec = kvern_codec_dense(cell->storage);
    kvern_status status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &s->layer, 1, &s->composition);
    if (!status)
        status = kvern_cache_create(s->composition, 0, s->rows, &s->cache);
    if (!status && !take_tensors(cell, s))
        status = KVERN_ERR_MEMORY;
    for (size_t r = 0; r < s->rows && !status; r++)
        status = append_row(cell, s, r);
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

typedef struct samples {
    double *own, *peer, *bytes, *fma;
    size_t runs, limits;
} samples;

static bool take_samples(size_t runs, samples *m)
{
    m->runs = runs;
    m->own = calloc(4 * runs, sizeof(double));
    if (!m->own)
        return false;
    m->peer = m->own + runs;
    m->bytes = m->peer + runs;
    m->fma = m->bytes + runs;
    return true;
}

static kvern_status run_all(const attention_case *cell, setup *s, const roofline_buffer *buffer,
                            const attention_peer *peer, samples *m)
{
    const kvern_executor executor = kvern_context_executor(s->context);
    double unused;
    kvern_status status = run_once(cell, s, s->rows - 1, &unused); // warms scratch and threads
    for (size_t i = 0; i < m->runs && !status; i++) {
        if (i % RUNS_PER_LIMIT == 0) {
            const roofline limits =
                roofline_measure(buffer, &executor, kvern_context_cpu_features(s->context));
            m->bytes[m->limits] = limits.bytes_per_s;
            m->fma[m->limits++] = limits.fma_per_s;
        }
        status = run_once(cell, s, i % s->rows, &m->own[i]);
        if (peer)
            m->peer[i] = peer->run(peer->user);
    }
    return status;
}

static void summarize(const attention_case *cell, const attention_peer *peer, samples *m,
                      attention_result *result)
{
    const double new = (double)cell->new_tokens, old = (double)cell->positions;
    memset(result, 0, sizeof *result);
    result->ms = 1e3 * clock_quantile(m->own, m->runs, 0.5);
    result->ms_low = 1e3 * clock_quantile(m->own, m->runs, 0.25);
    result->ms_high = 1e3 * clock_quantile(m->own, m->runs, 0.75);
    result->bytes = row_bytes(cell);
    result->fma =
        2 * (double)cell->query_heads * (double)cell->head_dim * (new *old + new *(new + 1) / 2);
    result->limits.bytes_per_s = clock_quantile(m->bytes, m->limits, 0.5);
    result->limits.fma_per_s = clock_quantile(m->fma, m->limits, 0.5);
    result->share = roofline_share(&result->limits, result->bytes, result->fma, result->ms / 1e3);
    if (peer)
        result->peer_ms = 1e3 * clock_quantile(m->peer, m->runs, 0.5);
}

kvern_status attention_measure(const attention_case *cell, size_t runs,
                               const roofline_buffer *buffer, size_t cold_bytes,
                               const attention_peer *peer, attention_result *result)
{
    setup s;
    samples m;
    memset(&s, 0, sizeof s);
    memset(&m, 0, sizeof m);
    if (peer && !peer->open(peer->user, cell))
        peer = NULL;
    kvern_status status = take_samples(runs, &m) ? KVERN_OK : KVERN_ERR_MEMORY;
    if (!status)
        status = open_setup(cell, cold_bytes, &s);
    if (!status)
        status = run_all(cell, &s, buffer, peer, &m);
    if (!status)
        summarize(cell, peer, &m, result);
    if (peer)
        peer->close(peer->user);
    close_setup(&s);
    free(m.own);
    return status;
}
