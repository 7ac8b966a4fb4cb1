// SPDX-License-Identifier: MIT
#include "bench/measure/recurrent_timing.h"

#include "bench/measure/clock.h"
#include "bench/measure/naive_recurrence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 512
#define INPUTS 9

typedef struct setup {
    const recurrent_case *cell;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    size_t rows;
    int64_t *counts;
    float *inputs[INPUTS];
    kvern_recur_weights weights;
    kvern_recur_tokens tokens;
    size_t y_floats;
    float *naive_s, *naive_y, *naive_scratch;
} setup;

static double s_floats(const kvern_layer *layer)
{
    return (double)layer->value_heads * (double)layer->v_dim * (double)layer->k_dim;
}

static size_t row_count(const recurrent_case *cell, size_t cold_bytes)
{
    if (cell->new_tokens > 1)
        return 1; // a window computes long on what it reads
    const double rows = (double)cold_bytes / (sizeof(float) * s_floats(&cell->layer)) + 1;
    return rows > MOST_ROWS ? MOST_ROWS : (size_t)rows;
}

// Input number `index`: `count` floats.
static float *fill(setup *s, size_t index, size_t count, float range)
{
    float *x = malloc((count + 1) * sizeof *x);
    if (x)
        peer_fill(x, count, (uint32_t)index + 1, range);
    s->inputs[index] = x;
    return x;
}

static bool take_inputs(const recurrent_case *cell, setup *s)
{
    const kvern_layer *layer = &cell->layer;
    const bool ssd = layer->recurrence == KVERN_RECURRENCE_SSD;
    const size_t count = (size_t)cell->new_tokens, heads = layer->value_heads;
    const size_t a =
        layer->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS ? heads * layer->k_dim : heads;
    s->weights = kvern_recur_weights_default(layer);
    s->weights.conv_weight = fill(s, 0, layer->conv_kernel * layer->conv_dim, 0.5f);
    s->weights.a_log = fill(s, 1, heads, 1);
    s->weights.dt_bias = fill(s, 2, a, 1);
    s->weights.d = fill(s, 3, heads, 1);
    s->tokens = kvern_recur_tokens_default(layer);
    s->tokens.x = fill(s, 4, count * layer->conv_dim, 1);
    s->tokens.a = fill(s, 5, count * a, 1);
    s->tokens.b = fill(s, 6, count * heads, 1);
    s->y_floats = count * heads * layer->v_dim;
    s->tokens.y = fill(s, 7, s->y_floats, 1);
    s->naive_y = fill(s, 8, s->y_floats, 1);
    s->naive_s = calloc((size_t)s_floats(layer), sizeof(float));
    s->naive_scratch = malloc(heads * naive_recurrence_scratch(layer) * sizeof(float));
    s->counts = calloc(s->rows, sizeof *s->counts);
    s->tokens.counts = s->counts;
    s->tokens.weights = &s->weights;
    if (!ssd)
        s->weights.d = NULL;
    if (ssd)
        s->tokens.b = NULL;
    for (size_t i = 0; i < INPUTS; i++) {
        if (!s->inputs[i])
            return false;
    }
    return s->naive_s && s->naive_scratch && s->counts;
}

static kvern_status open_setup(const recurrent_case *cell, size_t cold_bytes, setup *s)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = cell->threads;
    s->cell = cell;
    kvern_status status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &cell->layer, 1, &s->composition);
    s->rows = row_count(cell, cold_bytes);
    if (!status)
        status = kvern_cache_create(s->composition, 0, s->rows, &s->cache);
    if (!status && !take_inputs(cell, s))
        status = KVERN_ERR_MEMORY;
    return status;
}

static void close_setup(setup *s)
{
    kvern_cache_destroy(s->cache);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    for (size_t i = 0; i < INPUTS; i++)
        free(s->inputs[i]);
    free(s->naive_s);
    free(s->naive_scratch);
    free(s->counts);
}

static kvern_status run_ours(setup *s, size_t row, double *seconds)
{
    const kvern_phase phase = s->cell->new_tokens > 1 ? KVERN_PHASE_WINDOW : KVERN_PHASE_DECODE;
    memset(s->counts, 0, s->rows * sizeof *s->counts);
    s->counts[row] = s->cell->new_tokens;
    const double start = clock_seconds();
    const kvern_status status = kvern_cache_recur(s->cache, phase, &s->tokens);
    *seconds = clock_seconds() - start;
    return status;
}

static void run_naive_head(void *arg, size_t head)
{
    setup *s = arg;
    kvern_recur_tokens tokens = s->tokens;
    tokens.y = s->naive_y;
    naive_recurrence(&s->cell->layer, &tokens, (size_t)s->cell->new_tokens, head, 1, s->naive_s,
                     s->naive_scratch + head * naive_recurrence_scratch(&s->cell->layer));
}

static double run_naive(setup *s)
{
    const kvern_executor executor = kvern_context_executor(s->context);
    const double start = clock_seconds();
    executor.run(executor.user, s->cell->layer.value_heads, run_naive_head, s);
    return clock_seconds() - start;
}

// The first tokens of an empty row: both must give the same.
static kvern_status compare(setup *s, recurrent_result *result)
{
    double seconds, sums[2] = {0, 0};
    const kvern_status status = run_ours(s, 0, &seconds);
    run_naive(s);
    for (size_t i = 0; i < s->y_floats; i++) {
        const double ours = s->tokens.y[i], theirs = s->naive_y[i];
        sums[0] += (ours - theirs) * (ours - theirs);
        sums[1] += ours * ours;
    }
    result->difference = sqrt(sums[0] / sums[1]);
    return status;
}

// The same for a peer: all heads of the first, a middle and the last token.
static bool compare_peer(const setup *s, timed_peer *peer)
{
    const size_t heads = s->cell->layer.value_heads, dim = s->cell->layer.v_dim;
    const size_t last = (size_t)s->cell->new_tokens - 1, tokens[] = {0, last / 2, last};
    double seconds;
    if (!peer_run(&peer->process, &seconds))
        return false;
    for (size_t t = 0; t < 3; t++)
        for (size_t head = 0; head < heads; head++)
            if (!timed_peer_compare(peer, tokens[t], head,
                                    s->tokens.y + (tokens[t] * heads + head) * dim, dim))
                return false;
    return true;
}

static measure_fault open_peers(const setup *s, size_t runs, timed_peer *peers, size_t count)
{
    const recurrent_case *c = s->cell;
    char kind[64], geometry[160];
    snprintf(kind, sizeof kind, "recurrent %s %s", c->kind,
             c->new_tokens > 1 ? "window" : "decode");
    snprintf(geometry, sizeof geometry, "%zu %zu %zu %lld %zu", c->layer.key_heads,
             c->layer.value_heads, c->layer.k_dim, (long long)c->new_tokens, c->threads);
    measure_fault fault = timed_peers_open(peers, count, runs, kind, geometry);
    for (size_t p = 0; p < count && !fault; p++)
        if (peers[p].measured && !compare_peer(s, &peers[p]))
            fault = MEASURE_PEER_GONE;
    return fault ? fault : timed_peers_check(peers, count);
}

static void summarize(const recurrent_case *cell, double *samples, size_t runs,
                      recurrent_result *result)
{
    const double numbers = s_floats(&cell->layer);
    result->times = clock_quartiles(samples, runs);
    result->naive = clock_quartiles(samples + runs, runs);
    result->limits.bytes_per_s = clock_quantile(samples + 2 * runs, runs, 0.5);
    result->limits.fma_per_s = clock_quantile(samples + 3 * runs, runs, 0.5);
    result->bytes = 2 * sizeof(float) * numbers;
    result->fma = (cell->layer.recurrence == KVERN_RECURRENCE_SSD ? 3 : 4) *
                  (double)cell->new_tokens * numbers;
    result->share =
        roofline_share(&result->limits, result->bytes, result->fma, result->times.median);
}

// samples: ours, naive, bytes per second, multiply-adds per second; `runs` each.
static measure_fault run_all(setup *s, size_t runs, const roofline_buffer *buffer,
                             timed_peer *peers, size_t count, double *samples)
{
    const kvern_executor executor = kvern_context_executor(s->context);
    kvern_status status = KVERN_OK;
    for (size_t row = 0; row < s->rows && !status; row++) // every state is there, and not zero
        status = run_ours(s, row, samples);
    for (size_t i = 0; i < runs && !status; i++) {
        const uint32_t features = kvern_context_cpu_features(s->context);
        samples[2 * runs + i] = roofline_measure_updates(buffer, &executor, features);
        samples[3 * runs + i] = roofline_measure(buffer, &executor, features).fma_per_s;
        status = run_ours(s, (2 * i + 1) % s->rows, &samples[i]); // wakes the threads
        if (!status)
            status = run_ours(s, 2 * i % s->rows, &samples[i]);
        samples[runs + i] = run_naive(s);
        clock_rest();
        if (!timed_peers_run(peers, count, i))
            return MEASURE_PEER_GONE;
    }
    return measure_fault_of(status);
}

measure_fault recurrent_measure(const recurrent_case *cell, size_t runs,
                                const roofline_buffer *buffer, size_t cold_bytes, timed_peer *peers,
                                size_t count, recurrent_result *result)
{
    setup s;
    memset(&s, 0, sizeof s);
    memset(result, 0, sizeof *result);
    double *samples = calloc(4 * runs, sizeof *samples);
    kvern_status status = samples ? open_setup(cell, cold_bytes, &s) : KVERN_ERR_MEMORY;
    if (!status)
        status = compare(&s, result);
    measure_fault fault = measure_fault_of(status);
    if (!fault)
        fault = open_peers(&s, runs, peers, count);
    if (!fault)
        fault = run_all(&s, runs, buffer, peers, count, samples);
    if (!fault)
        summarize(cell, samples, runs, result);
    timed_peers_close(peers, count, runs);
    close_setup(&s);
    free(samples);
    return fault;
}

// ---- Rollbacks ----

static kvern_status take_step(kvern_state *state, const setup *s)
{
    kvern_status status = kvern_step_begin(state, KVERN_PHASE_WINDOW, s->counts);
    if (status)
        return status;
    status = kvern_step_recur(state, 0, &s->tokens);
    if (status)
        kvern_step_abandon(state);
    return status ? status : kvern_step_end(state);
}

static kvern_status time_rollback(kvern_state *state, setup *s, double *seconds)
{
    const int64_t keep = s->cell->new_tokens - 1;
    kvern_status status = kvern_round_begin(state, s->counts);
    if (!status)
        status = take_step(state, s);
    const double start = clock_seconds();
    if (!status)
        status = kvern_round_rollback(state, &keep);
    *seconds = clock_seconds() - start;
    return status;
}

// The plain loops have matrices of the same size.
static double time_copy(setup *s, float *to)
{
    const double start = clock_seconds();
    memcpy(to, s->naive_s, sizeof(float) * (size_t)s_floats(&s->cell->layer));
    return clock_seconds() - start;
}

static kvern_status run_rollbacks(setup *s, kvern_state *state, size_t runs, float *copy,
                                  double *samples)
{
    float *y = s->tokens.y;
    kvern_status status = KVERN_OK;
    s->counts[0] = s->cell->new_tokens;
    for (size_t i = 0; i <= runs && !status; i++) {
        const size_t at = i ? i - 1 : 0; // the first one warms up
        status = time_rollback(state, s, &samples[at]);
        s->tokens.y = NULL;
        if (!status)
            status = run_ours(s, 0, &samples[runs + at]);
        s->tokens.y = y;
        samples[2 * runs + at] = time_copy(s, copy);
    }
    return status;
}

kvern_status recurrent_measure_rollback(const recurrent_case *cell, size_t runs,
                                        rollback_result *result)
{
    setup s;
    memset(&s, 0, sizeof s);
    kvern_state *state = NULL;
    double *samples = calloc(3 * runs, sizeof *samples);
    float *copy = malloc(sizeof(float) * (size_t)s_floats(&cell->layer));
    kvern_status status = samples && copy ? open_setup(cell, 0, &s) : KVERN_ERR_MEMORY;
    if (!status)
        status = kvern_state_create(s.composition, 1, &state);
    if (!status)
        status = run_rollbacks(&s, state, runs, copy, samples);
    if (!status)
        *result =
            (rollback_result){clock_quartiles(samples, runs), clock_quartiles(samples + runs, runs),
                              clock_quartiles(samples + 2 * runs, runs)};
    kvern_state_destroy(state);
    close_setup(&s);
    free(samples);
    free(copy);
    return status;
}
