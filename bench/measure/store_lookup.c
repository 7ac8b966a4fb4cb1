// SPDX-License-Identifier: MIT
#include "bench/measure/store_lookup.h"

#include <stdlib.h>
#include <string.h>

// Lookups of a sample, and tokens of an entry behind those that all have in common.
#define BATCH 100
#define OWN_TOKENS 8
#define VOCABULARY 49152

typedef struct setup {
    const store_lookup_case *cell;
    size_t runs;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
    kvern_store *store;
    int32_t *tokens; // of a prompt: the common ones, own ones, and one more
    double *samples;
} setup;

// A model's tokens of entry number `entry`, far from those of the next one.
static void write_own_tokens(setup *s, size_t entry)
{
    uint64_t z = (uint64_t)entry * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < OWN_TOKENS; i++, z = z * UINT64_C(6364136223846793005) + 1)
        s->tokens[s->cell->common + i] = (int32_t)((z >> 33) % VOCABULARY);
    // Whatever the others are, no two entries are the same.
    s->tokens[s->cell->common + 1] = (int32_t)(entry % VOCABULARY);
    s->tokens[s->cell->common + 2] = (int32_t)(entry / VOCABULARY);
}

static kvern_status serve(setup *s, size_t count)
{
    const int64_t tokens = (int64_t)count;
    void *lane;
    kvern_status status = kvern_step_begin(s->state, KVERN_PHASE_WINDOW, &tokens);
    if (!status)
        status = kvern_step_lanes(s->state, 0, &lane);
    if (!status)
        memset(lane, 0, 8);
    return status ? status : kvern_step_end(s->state);
}

static kvern_status create(setup *s)
{
    kvern_context_options options = kvern_context_options_default();
    const kvern_layer layer = kvern_layer_lane(8);
    options.threads = s->cell->threads;
    kvern_status status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &layer, 1, &s->composition);
    if (!status)
        status = kvern_state_create(s->composition, 1, &s->state);
    if (!status)
        status = kvern_store_create(s->context, NULL, &s->store);
    if (!status)
        status = serve(s, s->cell->common + OWN_TOKENS);
    s->tokens = malloc((s->cell->common + OWN_TOKENS + 1) * sizeof *s->tokens);
    s->samples = malloc(s->runs * sizeof *s->samples);
    if (!status && (!s->tokens || !s->samples))
        status = KVERN_ERR_MEMORY;
    for (size_t i = 0; !status && i <= s->cell->common + OWN_TOKENS; i++)
        s->tokens[i] = (int32_t)((i * 7919 + 13) % VOCABULARY);
    return status;
}

static void destroy(setup *s)
{
    kvern_store_destroy(s->store);
    kvern_state_destroy(s->state);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    free(s->tokens);
    free(s->samples);
}

// The last ones are timed, one by one.
static kvern_status publish_all(setup *s, quartiles *times)
{
    const size_t entries = s->cell->entries, timed = s->runs < entries ? s->runs : entries;
    kvern_status status = KVERN_OK;
    for (size_t e = 0; e < entries && !status; e++) {
        write_own_tokens(s, e);
        const double start = clock_seconds();
        status = kvern_store_publish(s->store, NULL, s->tokens, s->cell->common + OWN_TOKENS,
                                     s->state, 0, NULL);
        if (e >= entries - timed)
            s->samples[e - (entries - timed)] = clock_seconds() - start;
    }
    *times = clock_quartiles(s->samples, timed);
    return status;
}

// `own`: an entry's tokens are among those looked up; else there are none.
static kvern_status look_up(setup *s, bool own, double *seconds, size_t *found)
{
    kvern_store_hit hit = kvern_store_hit_default();
    const double start = clock_seconds();
    kvern_status status = kvern_store_find(s->store, NULL, s->composition, s->tokens,
                                           s->cell->common + (own ? OWN_TOKENS + 1 : 1), &hit);
    *found += hit.positions > 0;
    if (!status)
        kvern_store_release(s->store, &hit);
    *seconds += clock_seconds() - start;
    return status;
}

static kvern_status time_lookups(setup *s, bool own, size_t *found, quartiles *times)
{
    kvern_status status = KVERN_OK;
    uint64_t entry = 1;
    for (size_t r = 0; r < s->runs && !status; r++) {
        double seconds = 0;
        for (size_t i = 0; i < BATCH && !status; i++) {
            entry = (entry * 7919 + 104729) % s->cell->entries;
            write_own_tokens(s, entry);
            if (!own)
                s->tokens[s->cell->common] = VOCABULARY;
            status = look_up(s, own, &seconds, found);
        }
        s->samples[r] = seconds / BATCH;
    }
    *times = clock_quartiles(s->samples, s->runs);
    return status;
}

static kvern_status measure(setup *s, store_lookup_result *result)
{
    kvern_memory before = kvern_memory_default(), after = kvern_memory_default();
    kvern_store_stats stats = kvern_store_stats_default();
    size_t found = 0, missed = 0;
    kvern_status status = publish_all(s, &result->published);
    if (!status)
        status = kvern_context_memory(s->context, &before);
    if (!status)
        status = time_lookups(s, true, &found, &result->found);
    if (!status)
        status = time_lookups(s, false, &missed, &result->missed);
    if (!status)
        status = kvern_context_memory(s->context, &after);
    if (!status)
        status = kvern_store_get_stats(s->store, &stats);
    result->index_bytes = stats.bytes - stats.page_bytes;
    result->allocations = after.allocations - before.allocations;
    // Every one of the first kind is there, and none of the second.
    return !status && (found != s->runs * BATCH || missed) ? KVERN_ERR_RANGE : status;
}

kvern_status store_lookup_measure(const store_lookup_case *cell, size_t runs,
                                  store_lookup_result *result)
{
    setup s = {.cell = cell, .runs = runs};
    kvern_status status = create(&s);
    if (!status)
        status = measure(&s, result);
    destroy(&s);
    return status;
}
