// SPDX-License-Identifier: MIT
#include "bench/measure/append.h"

#include "bench/measure/clock.h"

#include <kvern/math.h>

#include <stdlib.h>
#include <string.h>

typedef struct setup {
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_layer layer;
    uint16_t *k, *v;
} setup;

// A tensor of all tokens; NULL: no memory.
static uint16_t *make_tensor(const attention_case *cell, uint32_t seed)
{
    const size_t count =
        (size_t)(cell->positions + cell->new_tokens) * cell->kv_heads * cell->head_dim;
    float *wide = malloc(count * sizeof *wide);
    uint16_t *tensor = malloc(count * sizeof *tensor);
    if (wide && tensor) {
        peer_fill(wide, count, seed, PEER_RANGE_KV);
        kvern_f32_to_bf16_array(kvern_cpu_features(), count, wide, tensor);
    }
    const bool made = wide && tensor;
    free(wide);
    if (made)
        return tensor;
    free(tensor);
    return NULL;
}

// `count` tokens from number `first` on.
static kvern_status append(setup *s, int64_t first, int64_t count)
{
    kvern_tokens tokens = kvern_tokens_default(&s->layer);
    tokens.k = s->k;
    tokens.v = s->v;
    tokens.k_type = tokens.v_type = KVERN_BF16;
    tokens.k_start = tokens.v_start = &first;
    tokens.counts = &count;
    return kvern_cache_append(s->cache, KVERN_PHASE_WINDOW, &tokens, NULL);
}

static kvern_status open_setup(const attention_case *cell, setup *s)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = cell->threads;
    s->layer = kvern_layer_default(cell->kv_heads, cell->head_dim);
    s->layer.k_codec = s->layer.v_codec = cell->storage;
    s->k = make_tensor(cell, PEER_SEED_K);
    s->v = make_tensor(cell, PEER_SEED_V);
    if (!s->k || !s->v)
        return KVERN_ERR_MEMORY;
    kvern_status status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &s->layer, 1, &s->composition);
    if (!status)
        status = kvern_cache_create(s->composition, 0, 1, &s->cache);
    if (!status)
        status = kvern_cache_reserve(s->cache, 0, cell->positions + cell->new_tokens, 0);
    return status ? status : append(s, 0, cell->positions);
}

static void close_setup(setup *s)
{
    kvern_cache_destroy(s->cache);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    free(s->k);
    free(s->v);
}

static kvern_status run_once(const attention_case *cell, setup *s, double *seconds)
{
    const double start = clock_seconds();
    const kvern_status status = append(s, cell->positions, cell->new_tokens);
    *seconds = clock_seconds() - start;
    return status ? status : kvern_cache_trim(s->cache, 0, cell->new_tokens);
}

// Fills the times of all runs, and the bandwidths beside them.
static measure_fault run_all(const attention_case *cell, setup *s, const roofline_buffer *buffer,
                             size_t runs, double *times, double *bytes)
{
    const kvern_executor executor = kvern_context_executor(s->context);
    for (size_t i = 0; i < runs; i++) {
        bytes[i] =
            roofline_measure(buffer, &executor, kvern_context_cpu_features(s->context)).bytes_per_s;
        if (run_once(cell, s, &times[i]) || run_once(cell, s, &times[i])) // the first one warms
            return MEASURE_LIBRARY;
    }
    return MEASURE_FINE;
}

measure_fault append_measure(const attention_case *cell, size_t runs, const roofline_buffer *buffer,
                             attention_result *result)
{
    setup s;
    double *times = calloc(2 * runs, sizeof *times);
    memset(&s, 0, sizeof s);
    memset(result, 0, sizeof *result);
    measure_fault fault = times ? measure_fault_of(open_setup(cell, &s)) : MEASURE_MEMORY;
    if (!fault)
        fault = run_all(cell, &s, buffer, runs, times, times + runs);
    if (!fault) {
        result->times = clock_quartiles(times, runs);
        result->bytes = 2.0 * (double)cell->new_tokens * (double)cell->kv_heads *
                        (double)cell->head_dim * (double)sizeof(uint16_t);
        result->limits.bytes_per_s = clock_quantile(times + runs, runs, 0.5);
        result->share = result->bytes / result->limits.bytes_per_s / result->times.median;
    }
    close_setup(&s);
    free(times);
    return fault;
}
