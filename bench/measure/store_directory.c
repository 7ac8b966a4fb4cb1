// SPDX-License-Identifier: MIT
#include "bench/measure/store_directory.h"

#include "bench/measure/page_cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Lookups of a sample; tokens in common, and behind them.
#define BATCH 100
#define COMMON 64
#define OWN_TOKENS 8
#define TOKENS (COMMON + OWN_TOKENS)
#define VOCABULARY 49152

typedef struct setup {
    const store_directory_case *cell;
    size_t runs, published;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
    kvern_disk_store *store;
    char folder[PAGE_CACHE_PATH_BYTES];
    int32_t tokens[TOKENS + 1]; // of a prompt, and one more
    double *samples;
} setup;

// No two entries have the same.
static void write_own_tokens(setup *s, size_t entry)
{
    for (size_t i = 0; i < OWN_TOKENS; i++)
        s->tokens[COMMON + i] = (int32_t)((entry * 7919 + i * 104729) % VOCABULARY);
    s->tokens[COMMON + 1] = (int32_t)(entry % VOCABULARY);
    s->tokens[COMMON + 2] = (int32_t)(entry / VOCABULARY);
}

// ---- Life ----

static kvern_status serve(setup *s)
{
    const int64_t count = TOKENS;
    void *lane;
    kvern_status status = kvern_step_begin(s->state, KVERN_PHASE_WINDOW, &count);
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
    kvern_status status = page_cache_folder_make(s->cell->folder, s->folder);
    if (status) {
        s->folder[0] = '\0';
        return status;
    }
    status = kvern_context_create(&options, &s->context);
    if (!status)
        status = kvern_composition_create(s->context, &layer, 1, &s->composition);
    if (!status)
        status = kvern_state_create(s->composition, 1, &s->state);
    if (!status)
        status = serve(s);
    s->samples = malloc(s->runs * sizeof *s->samples);
    if (!status && !s->samples)
        status = KVERN_ERR_MEMORY;
    for (size_t i = 0; i <= TOKENS; i++)
        s->tokens[i] = (int32_t)((i * 7919 + 13) % VOCABULARY);
    return status;
}

static void destroy(setup *s)
{
    kvern_disk_store_close(s->store);
    kvern_state_destroy(s->state);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
    if (s->folder[0])
        page_cache_folder_remove(s->folder);
    free(s->samples);
}

// ---- Entries ----

static kvern_status open_store(setup *s, bool reads, kvern_disk_store **out)
{
    kvern_disk_store_options options = kvern_disk_store_options_default();
    options.read_only = reads;
    return kvern_disk_store_open(s->context, s->folder, &options, out);
}

// Waits where the queue is full.
static kvern_status publish(setup *s, kvern_disk_store *writer)
{
    kvern_disk_outcome outcome = KVERN_DISK_DROPPED;
    kvern_status status = KVERN_OK;
    write_own_tokens(s, s->published);
    while (!status && outcome == KVERN_DISK_DROPPED) {
        status = kvern_disk_store_publish(writer, NULL, s->tokens, TOKENS, s->state, 0, &outcome);
        if (!status && outcome == KVERN_DISK_DROPPED)
            kvern_disk_store_flush(writer);
    }
    s->published++;
    return status;
}

static kvern_status publish_all(setup *s)
{
    kvern_disk_store *writer;
    kvern_status status = open_store(s, false, &writer);
    if (status)
        return status;
    while (s->published < s->cell->entries && !status)
        status = publish(s, writer);
    kvern_disk_store_close(writer);
    return status;
}

// ---- What is measured ----

static kvern_status allocated(const setup *s, kvern_memory *memory)
{
    *memory = kvern_memory_default();
    return kvern_context_memory(s->context, memory);
}

static kvern_status time_opening(setup *s, store_directory_result *result)
{
    kvern_memory before, after;
    kvern_status status = allocated(s, &before);
    for (size_t r = 0; r < s->runs && !status; r++) {
        kvern_disk_store_close(s->store);
        s->store = NULL;
        const double start = clock_seconds();
        status = open_store(s, true, &s->store);
        s->samples[r] = clock_seconds() - start;
    }
    if (!status)
        status = allocated(s, &after);
    if (status)
        return status;
    result->index_bytes = after.held_bytes - before.held_bytes;
    result->opened = clock_quartiles(s->samples, s->runs);
    return KVERN_OK;
}

// `own`: an entry's tokens are among those looked up; else there are none.
static kvern_status look_up(setup *s, bool own, double *seconds, size_t *found)
{
    kvern_disk_hit hit = kvern_disk_hit_default();
    const double start = clock_seconds();
    kvern_status status = kvern_disk_store_find(s->store, NULL, s->composition, s->tokens,
                                                own ? TOKENS + 1 : COMMON + 1, &hit);
    *found += hit.positions > 0;
    if (!status)
        kvern_disk_store_release(s->store, &hit);
    *seconds += clock_seconds() - start;
    return status;
}

static kvern_status time_lookups(setup *s, bool own, quartiles *times)
{
    kvern_status status = KVERN_OK;
    size_t entry = 1, found = 0;
    for (size_t r = 0; r < s->runs && !status; r++) {
        double seconds = 0;
        for (size_t i = 0; i < BATCH && !status; i++) {
            entry = (entry * 7919 + 104729) % s->cell->entries;
            write_own_tokens(s, entry);
            if (!own)
                s->tokens[COMMON] = VOCABULARY;
            status = look_up(s, own, &seconds, &found);
        }
        s->samples[r] = seconds / BATCH;
    }
    *times = clock_quartiles(s->samples, s->runs);
    // Every one of the first kind is there, and none of the second.
    return !status && found != (own ? s->runs * BATCH : 0) ? KVERN_ERR_RANGE : status;
}

static kvern_status time_rescans(setup *s, bool changes, quartiles *times)
{
    kvern_disk_store *writer = NULL;
    kvern_status status = changes ? open_store(s, false, &writer) : KVERN_OK;
    for (size_t r = 0; r < s->runs && !status; r++) {
        if (changes && !(status = publish(s, writer)))
            kvern_disk_store_flush(writer);
        const double start = clock_seconds();
        if (!status)
            status = kvern_disk_store_rescan(s->store);
        s->samples[r] = clock_seconds() - start;
    }
    kvern_disk_store_close(writer);
    *times = clock_quartiles(s->samples, s->runs);
    return status;
}

// Time stamps of a directory are trusted when they are some seconds old.
static kvern_status age_folder(const setup *s)
{
    const struct timespec past[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    return utimensat(AT_FDCWD, s->folder, past, 0) ? KVERN_ERR_IO : KVERN_OK;
}

static kvern_status measure(setup *s, store_directory_result *result)
{
    kvern_memory before, after;
    kvern_disk_store_stats stats = kvern_disk_store_stats_default();
    kvern_status status = publish_all(s);
    if (!status)
        status = age_folder(s);
    if (!status)
        status = time_opening(s, result);
    if (!status)
        status = kvern_disk_store_get_stats(s->store, &stats);
    result->file_bytes = stats.bytes;
    if (!status && stats.entries != s->cell->entries)
        return KVERN_ERR_RANGE;
    if (!status)
        status = allocated(s, &before);
    if (!status)
        status = time_lookups(s, true, &result->found);
    if (!status)
        status = time_lookups(s, false, &result->missed);
    if (!status)
        status = allocated(s, &after);
    if (status)
        return status;
    result->allocations = after.allocations - before.allocations;
    status = time_rescans(s, false, &result->unchanged);
    return status ? status : time_rescans(s, true, &result->changed);
}

kvern_status store_directory_measure(const store_directory_case *cell, size_t runs,
                                     store_directory_result *result)
{
    setup s = {.cell = cell, .runs = runs};
    kvern_status status = create(&s);
    if (!status)
        status = measure(&s, result);
    destroy(&s);
    return status;
}
