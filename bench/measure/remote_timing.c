// SPDX-License-Identifier: MIT
#include "bench/measure/remote_timing.h"

#include "bench/measure/clock.h"
#include "bench/measure/remote_raw.h"

#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A model of middle size.
#define LAYERS 16
#define KV_HEADS 8
#define HEAD_DIM 128
#define ROW_FLOATS (KV_HEADS * HEAD_DIM)
#define CHUNK 512
#define WAIT_MS 120000
#define TTL_SECONDS 600

struct remote_run {
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
    kvern_remote_store *store;
    remote_raw *raw; // NULL: nothing to compare with
    float *values;   // [CHUNK][ROW_FLOATS]
    int32_t *tokens;
    size_t count;
    unsigned rounds;
};

// ---- The row ----

static kvern_status append(remote_run *run)
{
    const int64_t count = CHUNK;
    kvern_status status = kvern_step_begin(run->state, KVERN_PHASE_WINDOW, &count);
    for (size_t l = 0; l < LAYERS && !status; l++) {
        kvern_tokens tokens = kvern_tokens_default(kvern_composition_layer(run->composition, l));
        tokens.k = tokens.v = run->values;
        run->values[0] = (float)l; // no two layers alike
        status = kvern_step_append(run->state, l, &tokens, NULL);
    }
    if (!status)
        status = kvern_step_end(run->state);
    return status;
}

// Nor are two chunks.
static void renew_values(remote_run *run, size_t chunk)
{
    for (size_t i = 0; i < CHUNK * ROW_FLOATS; i++)
        run->values[i] = (float)((int)((i + chunk * 7919) * 2654435761u >> 20) - 2048) * 0x1p-11f;
}

static kvern_status fill(remote_run *run, uint64_t bytes)
{
    kvern_status status = KVERN_OK;
    run->count = bytes / kvern_composition_bytes_per_token(run->composition) / CHUNK * CHUNK;
    run->count = run->count ? run->count : CHUNK;
    run->tokens = malloc(run->count * sizeof *run->tokens);
    if (!run->tokens)
        return KVERN_ERR_MEMORY;
    for (size_t i = 0; i < run->count; i++)
        run->tokens[i] = (int32_t)(i * 2654435761u >> 16);
    for (size_t c = 0; c < run->count / CHUNK && !status; c++) {
        renew_values(run, c);
        status = append(run);
    }
    return status;
}

// ---- Life ----

static kvern_status make_state(remote_run *run)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_layer layers[LAYERS];
    options.threads = 1;
    for (size_t l = 0; l < LAYERS; l++)
        layers[l] = kvern_layer_default(KV_HEADS, HEAD_DIM);
    kvern_status status = kvern_context_create(&options, &run->context);
    if (!status)
        status = kvern_composition_create(run->context, layers, LAYERS, &run->composition);
    return status ? status : kvern_state_create(run->composition, 1, &run->state);
}

static kvern_status make_store(const char *url, remote_run *run)
{
    kvern_remote_store_options options = kvern_remote_store_options_default();
    options.queue_bytes = UINT64_MAX;
    options.fetch_ms = WAIT_MS;
    options.ttl_seconds = TTL_SECONDS;
    return kvern_remote_store_open(run->context, url, &options, &run->store);
}

// The row's blocks are its pages.
static kvern_status open_raw(remote_run *run, const char *url)
{
    const size_t blocks = LAYERS * run->count / KVERN_PAGE_POSITIONS;
    return remote_raw_open(url, blocks, (size_t)(remote_timing_bytes(run) / blocks), &run->raw);
}

kvern_status remote_timing_open(const remote_case *c, remote_run **out)
{
    remote_run *run = calloc(1, sizeof *run);
    *out = NULL;
    if (!run)
        return KVERN_ERR_MEMORY;
    run->values = malloc(CHUNK * ROW_FLOATS * sizeof *run->values);
    kvern_status status = run->values ? make_state(run) : KVERN_ERR_MEMORY;
    if (!status)
        status = make_store(c->url, run);
    if (!status)
        status = fill(run, c->bytes);
    if (!status)
        status = open_raw(run, c->url);
    if (status)
        remote_timing_close(run);
    else
        *out = run;
    return status;
}

void remote_timing_close(remote_run *run)
{
    if (!run)
        return;
    remote_raw_close(run->raw);
    kvern_remote_store_close(run->store);
    kvern_state_destroy(run->state);
    kvern_composition_release(run->composition);
    kvern_context_release(run->context);
    free(run->tokens);
    free(run->values);
    free(run);
}

// ---- A round ----

static kvern_status time_publish(remote_run *run, const kvern_store_key *key, double *seconds)
{
    kvern_remote_store_stats before = kvern_remote_store_stats_default(), after = before;
    const double begun = clock_seconds();
    kvern_status status = kvern_remote_store_get_stats(run->store, &before);
    if (!status)
        status = kvern_remote_store_publish(run->store, key, run->tokens, run->count, run->state, 0,
                                            NULL);
    kvern_remote_store_flush(run->store);
    *seconds = clock_seconds() - begun;
    if (!status)
        status = kvern_remote_store_get_stats(run->store, &after);
    return status || after.publications > before.publications ? status : KVERN_ERR_IO;
}

// `wanted`: positions that must be found.
static kvern_status time_fetch(remote_run *run, const kvern_store_key *key, size_t count,
                               int64_t wanted, double *seconds)
{
    kvern_remote_found found = kvern_remote_found_default();
    kvern_remote_fetch *fetch;
    const double begun = clock_seconds();
    kvern_status status = kvern_remote_store_begin(run->store, key, run->composition, run->tokens,
                                                   count, 0, 0, &fetch);
    if (status)
        return status;
    const bool done = kvern_remote_store_wait(run->store, fetch, WAIT_MS, &found);
    *seconds = clock_seconds() - begun;
    kvern_remote_store_end(run->store, fetch);
    return done && found.positions == wanted ? KVERN_OK : KVERN_ERR_IO;
}

// Two fetches at once: of the row, and of it (`count` tokens with the same key), or of what is not
// there. Until the second one, or both, have come to their end.
static kvern_status time_beside(remote_run *run, const kvern_store_key *key,
                                const kvern_store_key *other, bool both, double *seconds)
{
    kvern_remote_found found = kvern_remote_found_default();
    kvern_remote_fetch *row, *beside;
    kvern_status status = kvern_remote_store_begin(run->store, key, run->composition, run->tokens,
                                                   run->count, 0, 0, &row);
    if (status)
        return status;
    const double begun = clock_seconds();
    status = kvern_remote_store_begin(run->store, other, run->composition, run->tokens, run->count,
                                      0, 0, &beside);
    if (!status) {
        bool done = kvern_remote_store_wait(run->store, beside, WAIT_MS, &found);
        if (both)
            done &= kvern_remote_store_wait(run->store, row, WAIT_MS, NULL);
        *seconds = clock_seconds() - begun;
        const bool is_right = both == (found.positions > 0);
        status = done && is_right ? KVERN_OK : KVERN_ERR_IO;
        kvern_remote_store_end(run->store, beside);
    }
    if (!kvern_remote_store_wait(run->store, row, WAIT_MS, NULL) && !status)
        status = KVERN_ERR_IO;
    kvern_remote_store_end(run->store, row);
    return status;
}

static kvern_status time_others(remote_run *run, const kvern_store_key *key, remote_times *times)
{
    const kvern_store_field field = {"salt", "nothing", 7};
    const kvern_store_key other = {&field, 1};
    kvern_status status = run->raw ? remote_raw_get(run->raw, &times->raw) : KVERN_OK;
    double warm; // the second reader connects
    if (!status)
        status = time_beside(run, key, &other, false, &warm);
    if (!status)
        status = time_beside(run, key, &other, false, &times->beside);
    return status ? status : time_beside(run, key, key, true, &times->two);
}

kvern_status remote_timing_measure(remote_run *run, remote_times *times)
{
    char salt[64];
    const kvern_store_field field = {"salt", salt, sizeof salt};
    const kvern_store_key key = {&field, 1};
    memset(salt, 0, sizeof salt);
    snprintf(salt, sizeof salt, "bench %d %u %.9f", (int)getpid(), run->rounds++, clock_seconds());
    const int64_t all = (int64_t)run->count - 1;
    kvern_status status = time_fetch(run, &key, run->count, 0, &times->ask); // connects
    if (!status)
        status = time_fetch(run, &key, run->count, 0, &times->ask);
    if (!status)
        status = time_publish(run, &key, &times->publish);
    if (!status)
        status = time_publish(run, &key, &times->again);
    if (!status)
        status = time_fetch(run, &key, run->count, all, &times->fetch);
    if (!status)
        status = time_fetch(run, &key, run->count / 2 + 1, all / 2 + 1, &times->half);
    return status ? status : time_others(run, &key, times);
}

uint64_t remote_timing_bytes(const remote_run *run)
{
    return kvern_state_bytes(run->state);
}

uint64_t remote_timing_tokens(const remote_run *run)
{
    return run->count;
}
