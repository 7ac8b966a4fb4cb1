// SPDX-License-Identifier: MIT
#include "bench/measure/overhead.h"

#include "bench/measure/clock.h"
#include "bench/measure/peer.h"

#include <stdlib.h>
#include <string.h>

// Operations of one sample.
#define OPERATIONS 256

struct overhead_run {
    kvern_composition *composition;
    kvern_state *state; // of `positions` positions between samples
    kvern_cache *cache; // of the first layer; empty between samples
    size_t layers, query_heads;
    int64_t positions;
    float *values; // enough for one token of any layer
};

static const int64_t ONE[1] = {1};

static kvern_tokens token_of(const overhead_run *run, const kvern_layer *layer)
{
    kvern_tokens tokens = kvern_tokens_default(layer);
    tokens.k = tokens.v = run->values;
    tokens.counts = ONE;
    return tokens;
}

// One token to every layer of a state. The reads are released as an engine does after it attended.
static kvern_status step(const overhead_run *run, kvern_state *state)
{
    kvern_status status = kvern_step_begin(state, KVERN_PHASE_DECODE, ONE);
    for (size_t i = 0; i < run->layers && !status; i++) {
        const kvern_tokens tokens = token_of(run, kvern_composition_layer(run->composition, i));
        kvern_read *read;
        status = kvern_step_append(state, i, &tokens, &read);
        if (!status)
            kvern_read_release(read);
    }
    if (status) {
        kvern_step_abandon(state);
        return status;
    }
    return kvern_step_end(state);
}

static double per_operation(double start, size_t operations)
{
    return (clock_seconds() - start) * 1e9 / (double)operations;
}

// Decodes into a cache with room, with or without taking the read.
static kvern_status sample_appends(overhead_run *run, bool with_read, double *nanoseconds)
{
    const kvern_tokens tokens = token_of(run, kvern_cache_layer(run->cache));
    kvern_status status = kvern_cache_reserve(run->cache, 0, OPERATIONS, run->query_heads);
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++) {
        kvern_read *read = NULL;
        status =
            kvern_cache_append(run->cache, KVERN_PHASE_DECODE, &tokens, with_read ? &read : NULL);
        kvern_read_release(read);
    }
    *nanoseconds = per_operation(start, OPERATIONS);
    return status ? status : kvern_cache_reset(run->cache, 0);
}

static kvern_status sample_append(overhead_run *run, double *nanoseconds)
{
    return sample_appends(run, false, nanoseconds);
}

static kvern_status sample_append_read(overhead_run *run, double *nanoseconds)
{
    return sample_appends(run, true, nanoseconds);
}

// Attends of one query that sees one position: what an attend costs before it reads anything.
static kvern_status attend_often(const overhead_run *run, const kvern_read *read,
                                 double *nanoseconds)
{
    const kvern_layer *layer = kvern_cache_layer(run->cache);
    kvern_queries queries = kvern_queries_default(layer, run->query_heads);
    float *out = malloc(run->query_heads * (layer->k_dim + layer->v_dim) * sizeof(float));
    if (!out)
        return KVERN_ERR_MEMORY;
    float *q = out + run->query_heads * layer->v_dim;
    peer_fill(q, run->query_heads * layer->k_dim, PEER_SEED_Q, PEER_RANGE_Q);
    queries.q = q;
    queries.out = out;
    kvern_status status = KVERN_OK;
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++)
        status = kvern_read_attend(read, &queries);
    *nanoseconds = per_operation(start, OPERATIONS);
    free(out);
    return status;
}

static kvern_status sample_attend(overhead_run *run, double *nanoseconds)
{
    const kvern_tokens tokens = token_of(run, kvern_cache_layer(run->cache));
    kvern_read *read;
    kvern_status status = kvern_cache_append(run->cache, KVERN_PHASE_DECODE, &tokens, &read);
    if (status)
        return status;
    status = attend_often(run, read, nanoseconds);
    kvern_read_release(read);
    return status ? status : kvern_cache_reset(run->cache, 0);
}

static kvern_status sample_step(overhead_run *run, double *nanoseconds)
{
    kvern_status status = kvern_state_reserve(run->state, 0, run->positions + OPERATIONS, 0);
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++)
        status = step(run, run->state);
    *nanoseconds = per_operation(start, OPERATIONS * run->layers);
    return status ? status : kvern_state_trim(run->state, 0, OPERATIONS);
}

static kvern_status sample_trim(overhead_run *run, double *nanoseconds)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < OPERATIONS && !status; i++)
        status = step(run, run->state);
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++)
        status = kvern_state_trim(run->state, 0, 1);
    *nanoseconds = per_operation(start, OPERATIONS * run->layers);
    return status;
}

static kvern_status sample_fork(overhead_run *run, double *nanoseconds)
{
    const size_t row[1] = {0};
    kvern_status status = KVERN_OK;
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++) {
        kvern_state *fork;
        status = kvern_state_fork(run->state, row, 1, &fork);
        kvern_state_destroy(fork);
    }
    *nanoseconds = per_operation(start, OPERATIONS * run->layers);
    return status;
}

// The first step of a fork, which takes pages of its own.
static kvern_status sample_fork_step(overhead_run *run, double *nanoseconds)
{
    const size_t row[1] = {0}, operations = OPERATIONS / 8;
    kvern_status status = KVERN_OK;
    *nanoseconds = 0;
    for (size_t i = 0; i < operations && !status; i++) {
        kvern_state *fork;
        status = kvern_state_fork(run->state, row, 1, &fork);
        const double start = clock_seconds();
        if (!status)
            status = step(run, fork);
        *nanoseconds += per_operation(start, operations * run->layers);
        kvern_state_destroy(fork);
    }
    return status;
}

// The room is there already.
static kvern_status sample_reserve_again(overhead_run *run, double *nanoseconds)
{
    kvern_status status = KVERN_OK;
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++)
        status = kvern_state_reserve(run->state, 0, run->positions, run->query_heads);
    *nanoseconds = per_operation(start, OPERATIONS * run->layers);
    return status;
}

// Room for all positions of an empty row.
static kvern_status sample_reserve(overhead_run *run, double *nanoseconds)
{
    const size_t operations = OPERATIONS / 16;
    kvern_state *state;
    kvern_status status = kvern_state_create(run->composition, 1, &state);
    *nanoseconds = 0;
    for (size_t i = 0; i < operations && !status; i++) {
        const double start = clock_seconds();
        status = kvern_state_reserve(state, 0, run->positions, run->query_heads);
        *nanoseconds += per_operation(start, operations * run->layers);
        if (!status)
            status = kvern_state_reset(state, 0);
    }
    kvern_state_destroy(state);
    return status;
}

// ---- Rows that come and go ----

// Rows of the state that a row joins and leaves.
#define BATCH_ROWS 8

// The parts of one visit: a row is extracted from the state, joins a batch, and the batch is
// reordered without its first row.
typedef enum visit_part { EXTRACT, JOIN, KEEP, VISIT_PARTS } visit_part;

static kvern_status visit(const overhead_run *run, double *seconds)
{
    static const size_t batch_rows[BATCH_ROWS] = {0};
    static const size_t kept[BATCH_ROWS] = {8, 7, 6, 5, 4, 3, 2, 1};
    kvern_state *batch = NULL, *visitor = NULL;
    kvern_status status = kvern_state_fork(run->state, batch_rows, BATCH_ROWS, &batch);
    double times[VISIT_PARTS + 1];
    times[EXTRACT] = clock_seconds();
    if (!status)
        status = kvern_state_extract(run->state, 0, &visitor);
    times[JOIN] = clock_seconds();
    if (!status)
        status = kvern_state_join(batch, &visitor, 1);
    times[KEEP] = clock_seconds();
    if (!status)
        status = kvern_state_keep(batch, kept, BATCH_ROWS);
    times[VISIT_PARTS] = clock_seconds();
    for (int i = 0; i < VISIT_PARTS; i++)
        seconds[i] += times[i + 1] - times[i];
    kvern_state_destroy(visitor);
    kvern_state_destroy(batch);
    return status;
}

static kvern_status sample_visits(const overhead_run *run, visit_part part, double *nanoseconds)
{
    double seconds[VISIT_PARTS] = {0};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < OPERATIONS && !status; i++)
        status = visit(run, seconds);
    *nanoseconds = seconds[part] * 1e9 / OPERATIONS;
    return status;
}

static kvern_status sample_extract(overhead_run *run, double *nanoseconds)
{
    return sample_visits(run, EXTRACT, nanoseconds);
}

static kvern_status sample_join(overhead_run *run, double *nanoseconds)
{
    return sample_visits(run, JOIN, nanoseconds);
}

static kvern_status sample_keep(overhead_run *run, double *nanoseconds)
{
    return sample_visits(run, KEEP, nanoseconds);
}

// An empty speculative round, begun and taken back.
static kvern_status sample_round(overhead_run *run, double *nanoseconds)
{
    static const int64_t none[1] = {0};
    kvern_status status = KVERN_OK;
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS && !status; i++) {
        status = kvern_round_begin(run->state, ONE);
        if (!status)
            status = kvern_round_rollback(run->state, none);
    }
    *nanoseconds = per_operation(start, OPERATIONS);
    return status;
}

// ---- What plain arrays would cost ----

// Bytes of a layer's row of `positions`.
static size_t layer_bytes(const overhead_run *run, size_t layer, int64_t positions)
{
    const int64_t window = kvern_composition_layer(run->composition, layer)->window;
    const int64_t kept = window > 0 && window < positions ? window : positions;
    return (size_t)kept * kvern_composition_layer_bytes_per_token(run->composition, layer);
}

// Copies `bytes`, so that the compiler knows neither how many nor that nobody reads them.
static void copy_bytes(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
}

// A token of the first layer behind the last one of an array.
static kvern_status sample_copy_token(overhead_run *run, double *nanoseconds)
{
    const size_t bytes = layer_bytes(run, 0, 1);
    char *array = calloc(OPERATIONS + 1, bytes);
    if (!array)
        return KVERN_ERR_MEMORY;
    memset(array, 1, (OPERATIONS + 1) * bytes); // its pages exist, as those of reserved room do
    const double start = clock_seconds();
    for (size_t i = 0; i < OPERATIONS; i++)
        copy_bytes(array + (i + 1) * bytes, array, bytes);
    *nanoseconds = per_operation(start, OPERATIONS);
    free(array);
    return KVERN_OK;
}

// The rows of all layers from array to array. One pair of arrays stands for all layers: nearer in
// the caches than those would be.
static kvern_status sample_copy_row(overhead_run *run, double *nanoseconds)
{
    size_t most = 0;
    for (size_t i = 0; i < run->layers; i++) {
        const size_t bytes = layer_bytes(run, i, run->positions);
        most = bytes > most ? bytes : most;
    }
    char *arrays = malloc(2 * most);
    if (!arrays)
        return KVERN_ERR_MEMORY;
    memset(arrays, 1, 2 * most);
    const double start = clock_seconds();
    for (size_t i = 0; i < run->layers; i++)
        copy_bytes(arrays + most, arrays, layer_bytes(run, i, run->positions));
    *nanoseconds = per_operation(start, 1);
    free(arrays);
    return KVERN_OK;
}

const overhead_item OVERHEAD_ITEMS[] = {
    {"append", "append a token to one layer, in reserved room", sample_append},
    {"append_read", "the same, a read taken and released", sample_append_read},
    {"attend", "attend one query over one position, one layer", sample_attend},
    {"step", "a step of one token: begin, append with read, end; per layer", sample_step},
    {"trim", "trim one token; per layer", sample_trim},
    {"fork", "fork a row and end the fork; per layer", sample_fork},
    {"fork_step", "the first step of a fork, which copies a page; per layer", sample_fork_step},
    {"extract", "extract a row; all layers", sample_extract},
    {"join", "join a row to a batch of 8; all layers", sample_join},
    {"keep", "reorder a batch of 9 rows and drop one; all layers", sample_keep},
    {"round", "begin a speculative round and roll it back; all layers", sample_round},
    {"reserve", "reserve all positions of an empty row; per layer", sample_reserve},
    {"reserve_again", "reserve what is reserved; per layer", sample_reserve_again},
    {"copy_token", "memcpy of a token into an array; per layer", sample_copy_token},
    {"copy_row", "memcpy of the row from array to array; all layers", sample_copy_row},
};
const size_t OVERHEAD_COUNT = sizeof OVERHEAD_ITEMS / sizeof OVERHEAD_ITEMS[0];

// Values for one token of the widest layer.
static kvern_status take_values(overhead_run *run)
{
    size_t most = 0;
    for (size_t i = 0; i < run->layers; i++) {
        const kvern_layer *layer = kvern_composition_layer(run->composition, i);
        const size_t dim = layer->k_dim > layer->v_dim ? layer->k_dim : layer->v_dim;
        most = layer->kv_heads * dim > most ? layer->kv_heads * dim : most;
    }
    run->values = malloc(most * sizeof(float));
    if (!run->values)
        return KVERN_ERR_MEMORY;
    peer_fill(run->values, most, PEER_SEED_K, PEER_RANGE_KV);
    return KVERN_OK;
}

kvern_status overhead_open(kvern_composition *composition, size_t query_heads, int64_t positions,
                           overhead_run **out)
{
    *out = NULL;
    overhead_run *run = calloc(1, sizeof *run);
    if (!run)
        return KVERN_ERR_MEMORY;
    run->composition = composition;
    run->layers = kvern_composition_layers(composition);
    run->query_heads = query_heads;
    run->positions = positions;
    kvern_status status = take_values(run);
    if (!status)
        status = kvern_state_create(composition, 1, &run->state);
    if (!status)
        status = kvern_cache_create(composition, 0, 1, &run->cache);
    for (int64_t i = 0; i < positions && !status; i++)
        status = step(run, run->state);
    if (status)
        overhead_close(run);
    else
        *out = run;
    return status;
}

void overhead_close(overhead_run *run)
{
    if (!run)
        return;
    kvern_cache_destroy(run->cache);
    kvern_state_destroy(run->state);
    free(run->values);
    free(run);
}
