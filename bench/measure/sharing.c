// SPDX-License-Identifier: MIT
#include "bench/measure/sharing.h"

#include "bench/measure/clock.h"
#include "bench/measure/peer.h"

#include <stdlib.h>
#include <string.h>

// Sets of rows at most.
#define MOST_SETS 512

// Rows that are attended together, and the read of their newest tokens.
typedef struct row_set {
    kvern_cache *cache;
    kvern_read *read;
} row_set;

typedef struct setup {
    const sharing_case *cell;
    kvern_context *context;
    kvern_composition *composition;
    kvern_layer layer;
    row_set shared[MOST_SETS], alone[MOST_SETS];
    size_t shared_count, alone_count;
    float *k, *v, *q;
    float *out[2];   // of shared rows and of the others
    int64_t *counts; // per row
    int64_t *start;  // per row: its first token in k and v
    size_t *forks;   // per row: the row that it continues
} setup;

static size_t out_floats(const sharing_case *cell)
{
    return cell->rows * cell->query_heads * cell->head_dim;
}

static float *new_tensor(size_t count, uint32_t seed, float range)
{
    float *tensor = malloc(count * sizeof *tensor);
    if (tensor)
        peer_fill(tensor, count, seed, range);
    return tensor;
}

// The prefix and one token of each row, in one tensor.
static bool take_tensors(const sharing_case *cell, setup *s)
{
    const size_t stored = ((size_t)cell->positions + cell->rows) * cell->kv_heads * cell->head_dim;
    s->k = new_tensor(stored, PEER_SEED_K, PEER_RANGE_KV);
    s->v = new_tensor(stored, PEER_SEED_V, PEER_RANGE_KV);
    s->q = new_tensor(out_floats(cell), PEER_SEED_Q, PEER_RANGE_Q);
    s->out[0] = calloc(out_floats(cell), sizeof(float));
    s->out[1] = calloc(out_floats(cell), sizeof(float));
    s->counts = calloc(cell->rows, sizeof *s->counts);
    s->start = calloc(cell->rows, sizeof *s->start);
    s->forks = calloc(cell->rows, sizeof *s->forks);
    return s->k && s->v && s->q && s->out[0] && s->out[1] && s->counts && s->start && s->forks;
}

// Appends the prefix to every row, or one token of its own.
static kvern_status append(setup *s, row_set *set, bool prefix)
{
    kvern_tokens tokens = kvern_tokens_default(&s->layer);
    for (size_t r = 0; r < kvern_cache_rows(set->cache); r++) {
        s->counts[r] = prefix ? s->cell->positions : 1;
        s->start[r] = prefix ? 0 : s->cell->positions + (int64_t)r;
    }
    tokens.k = s->k;
    tokens.v = s->v;
    tokens.counts = s->counts;
    tokens.k_start = tokens.v_start = s->start;
    if (prefix)
        return kvern_cache_append(set->cache, KVERN_PHASE_WINDOW, &tokens, NULL);
    return kvern_cache_append(set->cache, KVERN_PHASE_DECODE, &tokens, &set->read);
}

static double page_bytes(const kvern_context *context)
{
    kvern_memory memory = {.size = sizeof memory};
    return kvern_context_memory(context, &memory) ? 0 : (double)memory.page_bytes;
}

// A set of rows that are forks of one, which is gone afterwards.
static kvern_status fork_set(setup *s, row_set *set, sharing_result *result)
{
    row_set prefix = {NULL, NULL};
    const double before = page_bytes(s->context);
    kvern_status status = kvern_cache_create(s->composition, 0, 1, &prefix.cache);
    if (!status)
        status = append(s, &prefix, true);
    const double one = page_bytes(s->context) - before;
    if (!status)
        status = kvern_cache_fork(prefix.cache, s->forks, s->cell->rows, &set->cache);
    kvern_cache_destroy(prefix.cache);
    if (status)
        return status;
    result->forked_memory = (page_bytes(s->context) - before) / one;
    status = append(s, set, false);
    result->decoded_memory = (page_bytes(s->context) - before) * (double)s->cell->rows /
                             (double)kvern_cache_bytes(set->cache);
    return status;
}

static kvern_status store_set(setup *s, row_set *set)
{
    kvern_status status = kvern_cache_create(s->composition, 0, s->cell->rows, &set->cache);
    if (!status)
        status = append(s, set, true);
    return status ? status : append(s, set, false);
}

// Sets that take `cold_bytes`; two at least, for one is attended to wake the threads.
static size_t set_count(const setup *s, size_t cold_bytes, size_t rows)
{
    const double set_bytes = (double)rows * (double)s->cell->positions *
                             (double)kvern_composition_bytes_per_token(s->composition);
    const double sets = (double)cold_bytes / set_bytes + 2;
    return sets > MOST_SETS ? MOST_SETS : (size_t)sets;
}

static kvern_status open_setup(setup *s, size_t cold_bytes, sharing_result *result)
{
    const sharing_case *cell = s->cell;
    kvern_context_options options = kvern_context_options_default();
    options.threads = cell->threads;
    s->layer = kvern_layer_default(cell->kv_heads, cell->head_dim);
    s->layer.k_codec = s->layer.v_codec = cell->storage;
    kvern_status status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &s->layer, 1, &s->composition);
    if (status)
        return status;
    if (!take_tensors(cell, s))
        return KVERN_ERR_MEMORY;
    s->shared_count = set_count(s, cold_bytes, 1);
    s->alone_count = set_count(s, cold_bytes, cell->rows);
    for (size_t i = 0; i < s->shared_count && !status; i++)
        status = fork_set(s, &s->shared[i], result);
    for (size_t i = 0; i < s->alone_count && !status; i++)
        status = store_set(s, &s->alone[i]);
    return status;
}

static void close_sets(row_set *sets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kvern_read_release(sets[i].read);
        kvern_cache_destroy(sets[i].cache);
    }
}

static void close_setup(setup *s)
{
    close_sets(s->shared, s->shared_count);
    close_sets(s->alone, s->alone_count);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    free(s->k);
    free(s->v);
    free(s->q);
    free(s->out[0]);
    free(s->out[1]);
    free(s->counts);
    free(s->start);
    free(s->forks);
}

static kvern_status attend(const setup *s, const row_set *set, float *out, double *seconds)
{
    kvern_queries queries = kvern_queries_default(&s->layer, s->cell->query_heads);
    queries.q = s->q;
    queries.out = out;
    const double start = clock_seconds();
    kvern_status status = kvern_read_attend(set->read, &queries);
    *seconds = clock_seconds() - start;
    return status;
}

// A timed attend behind another one, of other rows: its threads are awake, as those of a forward
// pass are.
static kvern_status attend_awake(const setup *s, const row_set *sets, size_t count, size_t run,
                                 float *out, double *seconds)
{
    kvern_status status = attend(s, &sets[(2 * run + 1) % count], out, seconds);
    return status ? status : attend(s, &sets[2 * run % count], out, seconds);
}

static kvern_status measure(const setup *s, size_t runs, double *samples, sharing_result *result)
{
    double *shared = samples, *alone = samples + runs;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < runs && !status; i++) {
        status = attend_awake(s, s->shared, s->shared_count, i, s->out[0], &shared[i]);
        if (!status)
            status = attend_awake(s, s->alone, s->alone_count, i, s->out[1], &alone[i]);
    }
    result->same_bits = memcmp(s->out[0], s->out[1], out_floats(s->cell) * sizeof(float)) == 0;
    result->shared = clock_quartiles(shared, runs);
    result->alone = clock_quartiles(alone, runs);
    return status;
}

kvern_status sharing_measure(const sharing_case *cell, size_t runs, size_t cold_bytes,
                             sharing_result *result)
{
    setup *s = calloc(1, sizeof *s);
    double *samples = calloc(2 * runs, sizeof *samples);
    kvern_status status = s && samples ? KVERN_OK : KVERN_ERR_MEMORY;
    memset(result, 0, sizeof *result);
    if (!status) {
        s->cell = cell;
        status = open_setup(s, cold_bytes, result);
        if (!status)
            status = measure(s, runs, samples, result);
        close_setup(s);
    }
    free(samples);
    free(s);
    return status;
}
