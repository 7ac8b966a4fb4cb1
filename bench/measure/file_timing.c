// SPDX-License-Identifier: MIT
#include "bench/measure/file_timing.h"

#include "bench/measure/clock.h"
#include "bench/measure/page_cache.h"
#include "bench/measure/roofline.h"

#include <kvern/kvern.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// A model of middle size.
#define LAYERS 16
#define KV_HEADS 8
#define QUERY_HEADS 16
#define HEAD_DIM 128
#define ROW_FLOATS (KV_HEADS * HEAD_DIM)
#define QUERY_FLOATS (QUERY_HEADS * HEAD_DIM)

#define CHUNK 512
#define WRITE_BYTES ((size_t)1 << 20)
#define LIMIT_BYTES ((size_t)256 << 20)

struct file_run {
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
    roofline_buffer buffer;
    float *values; // [CHUNK][ROW_FLOATS], and queries
    char rows[512], plain[512], made[520];
    uint64_t bytes;
};

// ---- Steps ----

static kvern_status append_layer(file_run *run, kvern_state *state, size_t layer, bool attends)
{
    const kvern_layer *plan = kvern_composition_layer(run->composition, layer);
    kvern_tokens tokens = kvern_tokens_default(plan);
    kvern_queries queries = kvern_queries_default(plan, QUERY_HEADS);
    float out[QUERY_FLOATS];
    kvern_read *read = NULL;
    tokens.k = tokens.v = run->values;
    queries.q = run->values;
    queries.out = out;
    kvern_status status = kvern_step_append(state, layer, &tokens, attends ? &read : NULL);
    if (!status && attends)
        status = kvern_read_attend(read, &queries);
    kvern_read_release(read);
    return status;
}

static kvern_status step(file_run *run, kvern_state *state, kvern_phase phase, int64_t count)
{
    kvern_status status = kvern_step_begin(state, phase, &count);
    for (size_t l = 0; l < LAYERS && !status; l++)
        status = append_layer(run, state, l, phase == KVERN_PHASE_DECODE);
    if (!status)
        status = kvern_step_end(state);
    if (status)
        kvern_step_abandon(state);
    return status;
}

static kvern_status fill(file_run *run, uint64_t bytes)
{
    const uint64_t tokens = bytes / kvern_composition_bytes_per_token(run->composition);
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < CHUNK * ROW_FLOATS; i++)
        run->values[i] = (float)((int)(i * 2654435761u >> 20) - 2048) * 0x1p-11f;
    for (uint64_t done = 0; done < tokens && !status; done += CHUNK)
        status = step(run, run->state, KVERN_PHASE_WINDOW, CHUNK);
    return status;
}

// ---- Life ----

static kvern_status make_state(const file_case *c, file_run *run)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_layer layers[LAYERS];
    options.threads = c->threads;
    for (size_t l = 0; l < LAYERS; l++)
        layers[l] = kvern_layer_default(KV_HEADS, HEAD_DIM);
    kvern_status status = kvern_context_create(&options, &run->context);
    if (!status)
        status = kvern_composition_create(run->context, layers, LAYERS, &run->composition);
    return status ? status : kvern_state_create(run->composition, 1, &run->state);
}

kvern_status file_timing_open(const file_case *c, file_run **out)
{
    file_run *run = calloc(1, sizeof *run);
    *out = NULL;
    if (!run)
        return KVERN_ERR_MEMORY;
    snprintf(run->rows, sizeof run->rows, "%s/kvern-bench-%d.kv", c->folder, (int)getpid());
    snprintf(run->plain, sizeof run->plain, "%s/kvern-bench-%d.plain", c->folder, (int)getpid());
    snprintf(run->made, sizeof run->made, "%s.made", run->plain);
    run->values = malloc(CHUNK * ROW_FLOATS * sizeof *run->values);
    kvern_status status = KVERN_ERR_MEMORY;
    if (run->values && roofline_open(LIMIT_BYTES, &run->buffer) && !(status = make_state(c, run)))
        status = fill(run, c->bytes);
    if (status)
        file_timing_close(run);
    else
        *out = run;
    return status;
}

void file_timing_close(file_run *run)
{
    if (!run)
        return;
    (void)unlink(run->rows);
    (void)unlink(run->plain);
    (void)unlink(run->made);
    kvern_state_destroy(run->state);
    kvern_composition_release(run->composition);
    kvern_context_release(run->context);
    roofline_close(&run->buffer);
    free(run->values);
    free(run);
}

uint64_t file_timing_bytes(const file_run *run)
{
    return run->bytes;
}

// ---- What the disk does ----

static bool write_all(int file, const roofline_buffer *buffer, uint64_t bytes)
{
    const char *data = (const char *)buffer->data;
    for (uint64_t done = 0; done < bytes;) {
        const size_t at = (size_t)(done % (buffer->bytes - buffer->bytes % WRITE_BYTES));
        const uint64_t left = bytes - done;
        const size_t part = left < WRITE_BYTES ? (size_t)left : WRITE_BYTES;
        const ssize_t written = write(file, data + at, part);
        if (written <= 0)
            return false;
        done += (uint64_t)written;
    }
    return true;
}

// As a save does it: a new file, synced, renamed over the old one.
static kvern_status time_write(file_run *run, double *seconds)
{
    const double start = clock_seconds();
    const int file = open(run->made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        return KVERN_ERR_IO;
    bool fine = write_all(file, &run->buffer, run->bytes) && fsync(file) == 0;
    fine = close(file) == 0 && fine && rename(run->made, run->plain) == 0;
    *seconds = clock_seconds() - start;
    return fine ? KVERN_OK : KVERN_ERR_IO;
}

static kvern_status time_save(file_run *run, double *seconds)
{
    struct stat facts;
    const double start = clock_seconds();
    kvern_status status = kvern_file_save(run->state, NULL, run->rows);
    *seconds = clock_seconds() - start;
    if (!status && stat(run->rows, &facts) == 0)
        run->bytes = (uint64_t)facts.st_size;
    return status;
}

// ---- What a load costs ----

static kvern_status time_faults(file_run *run, double *seconds)
{
    const int file = open(run->rows, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return KVERN_ERR_IO;
    const volatile unsigned char *data = mmap(NULL, run->bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (data == MAP_FAILED)
        return KVERN_ERR_IO;
    const double start = clock_seconds();
    for (uint64_t at = 0; at < run->bytes; at += 4096)
        (void)data[at];
    *seconds = clock_seconds() - start;
    munmap((void *)data, run->bytes);
    return KVERN_OK;
}

static kvern_status time_decode(file_run *run, kvern_state *state, double *seconds)
{
    const double start = clock_seconds();
    kvern_status status = step(run, state, KVERN_PHASE_DECODE, 1);
    *seconds = clock_seconds() - start;
    return status;
}

static kvern_status time_load(file_run *run, file_times *times)
{
    kvern_file *file = NULL;
    kvern_state *state = NULL;
    kvern_status status = kvern_state_create(run->composition, 0, &state);
    const double start = clock_seconds();
    if (!status)
        status = kvern_file_open(run->context, run->rows, &file);
    if (!status)
        status = kvern_file_load(file, NULL, state);
    times->load = clock_seconds() - start;
    if (!status)
        status = time_decode(run, state, &times->first);
    if (!status)
        status = time_decode(run, state, &times->second);
    const double verified = clock_seconds();
    if (!status)
        status = kvern_file_verify(file);
    times->verify = clock_seconds() - verified;
    kvern_file_close(file);
    kvern_state_destroy(state);
    return status;
}

// ---- The same from the disk ----

static kvern_status time_disk_read(file_run *run, double *seconds)
{
    void *block = malloc(WRITE_BYTES);
    const double start = clock_seconds();
    const int file = open(run->rows, O_RDONLY | O_CLOEXEC);
    ssize_t count = block && file >= 0 ? 1 : -1;
    while (count > 0)
        count = read(file, block, WRITE_BYTES);
    *seconds = clock_seconds() - start;
    if (file >= 0)
        close(file);
    free(block);
    return count < 0 ? KVERN_ERR_IO : KVERN_OK;
}

// `then` is a decode, or the checksums of all pages.
static kvern_status time_disk_load(file_run *run, bool verifies, double *load, double *then)
{
    kvern_file *file = NULL;
    kvern_state *state = NULL;
    kvern_status status = kvern_state_create(run->composition, 0, &state);
    const double start = clock_seconds();
    if (!status)
        status = kvern_file_open(run->context, run->rows, &file);
    if (!status)
        status = kvern_file_load(file, NULL, state);
    const double loaded = clock_seconds();
    *load = loaded - start;
    if (!status)
        status = verifies ? kvern_file_verify(file) : step(run, state, KVERN_PHASE_DECODE, 1);
    *then = clock_seconds() - loaded;
    kvern_file_close(file);
    kvern_state_destroy(state);
    return status;
}

static kvern_status time_uncached(file_run *run, file_times *times, bool *all)
{
    double load;
    kvern_status status = KVERN_OK;
    if ((*all = page_cache_drop(run->rows)))
        status = time_disk_read(run, &times->disk_read);
    if (!status && (*all = *all && page_cache_drop(run->rows)))
        status = time_disk_load(run, true, &load, &times->disk_verify);
    if (!status && (*all = *all && page_cache_drop(run->rows)))
        status = time_disk_load(run, false, &times->disk_load, &times->disk_first);
    return status;
}

// All four or none: a system may keep a file in memory at any time, and one is told beside others.
static kvern_status time_disk(file_run *run, file_times *times)
{
    bool all;
    kvern_status status = time_uncached(run, times, &all);
    if (!all)
        times->disk_read = times->disk_load = times->disk_first = times->disk_verify = -1;
    return status;
}

kvern_status file_timing_measure(file_run *run, file_times *times)
{
    const kvern_executor executor = kvern_context_executor(run->context);
    kvern_status status = time_save(run, &times->save);
    if (!status)
        status = time_write(run, &times->write);
    if (!status)
        status = time_load(run, times);
    if (!status)
        status = time_faults(run, &times->faults);
    if (!status)
        status = time_disk(run, times);
    times->read_limit =
        roofline_measure(&run->buffer, &executor, kvern_context_cpu_features(run->context))
            .bytes_per_s;
    return status;
}
