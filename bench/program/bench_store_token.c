// SPDX-License-Identifier: MIT
// kvern bench store first-token: prompts that begin as one that was served, through the scheduler,
// as a program serves them.

#include "bench/program/bench_store_token.h"

#include "bench/measure/clock.h"
#include "bench/measure/page_cache.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"
#include "cli/session/model_loading.h"
#include "engine/generation/schedule.h"

#include <stdio.h>
#include <stdlib.h>

enum { COLD, MEMORY, DISK, REOPENED, UNCACHED, CASES };

static const struct {
    const char *name, *what;
    bool from_disk;
} CASE_FACTS[CASES] = {
    [COLD] = {"cold", "nothing is stored: the whole prompt is computed", false},
    [MEMORY] = {"memory", "its beginning is in the store in memory", false},
    [DISK] = {"disk", "it is in a directory, and its checksums were compared before", true},
    [REOPENED] = {"disk_opened", "the directory is opened first, and checksums compared", true},
    [UNCACHED] = {"disk_uncached", "the same, and the files have to be read from the disk", true},
};

typedef struct token_bench {
    const store_token *what;
    loaded_model loaded;
    char folder[PAGE_CACHE_PATH_BYTES]; // "": not made
    kvern_store *memory;
    kvern_disk_store *disk;
    schedule *schedules[CASES]; // COLD, MEMORY and DISK
    int32_t *tokens;            // of a prompt
    double *samples;            // [CASES, runs]
} token_bench;

// ---- One prompt ----

// The same beginning, and what follows differs from prompt to prompt. Number 0 is what is stored.
static void write_prompt(token_bench *b, size_t number)
{
    const size_t vocabulary = model_get_facts(b->loaded.model)->vocabulary;
    const uint64_t prefix = b->what->prefix;
    for (size_t i = 0; i < prefix; i++)
        b->tokens[i] = (int32_t)((i * 7919 + 13) % vocabulary);
    for (size_t i = 0; i < b->what->behind; i++)
        b->tokens[prefix + i] = (int32_t)((i * 104729 + number * 31 + 17) % vocabulary);
}

typedef struct first_token {
    double first; // when its first token came
    int32_t token;
    schedule_result result;
} first_token;

static kvern_status take_token(void *user, int32_t token, const float *logits)
{
    first_token *a = user;
    (void)logits;
    a->first = clock_seconds();
    a->token = token;
    return KVERN_OK;
}

static void take_end(void *user, const schedule_result *result)
{
    first_token *a = user;
    a->result = *result;
}

static kvern_status ask(token_bench *b, schedule *s, first_token *a, engine_error *error)
{
    const schedule_request request = {.tokens = b->tokens,
                                      .count = b->what->prefix + b->what->behind,
                                      .max_tokens = 1,
                                      .sampling = sampler_default_options(),
                                      .user = a,
                                      .on_token = take_token,
                                      .on_end = take_end};
    uint64_t id;
    schedule_request greedy = request;
    greedy.sampling.temperature = 0;
    *a = (first_token){0};
    kvern_status status = schedule_submit(s, &greedy, &id, error);
    while (!status && schedule_step(s))
        ;
    return status ? status : a->result.status;
}

// ---- Stores ----

// A directory of which nothing is written any more: what is measured is read alone.
static kvern_status open_disk(token_bench *b, bool reads, kvern_disk_store **out,
                              engine_error *error)
{
    kvern_disk_store_options options = kvern_disk_store_options_default();
    options.read_only = reads;
    if (kvern_disk_store_open(model_context(b->loaded.model), b->folder, &options, out))
        return engine_fail_kvern(error, KVERN_ERR_IO, "opening the directory");
    return KVERN_OK;
}

static kvern_status open_schedule(token_bench *b, kvern_store *memory, kvern_disk_store *disk,
                                  schedule **out, engine_error *error)
{
    const schedule_options options = {
        .context_length = b->loaded.context_length, .most_rows = 1, .store = memory, .disk = disk};
    return schedule_create(b->loaded.model, b->loaded.composition, &options, out, error);
}

// Serves the prompt whose beginning is to be found.
static kvern_status store_prompt(token_bench *b, engine_error *error)
{
    kvern_disk_store *writer = NULL;
    schedule *s = NULL;
    first_token a;
    kvern_status status = open_disk(b, false, &writer, error);
    if (!status)
        status = open_schedule(b, b->memory, writer, &s, error);
    write_prompt(b, 0);
    if (!status)
        status = ask(b, s, &a, error);
    schedule_destroy(s);
    kvern_disk_store_close(writer); // when it is written
    return status;
}

static kvern_status open_all(token_bench *b, engine_error *error)
{
    const size_t count = b->what->prefix + b->what->behind;
    const cli_options common = {
        .model = b->what->model, .threads = b->what->threads, .context = (int64_t)count + 1};
    kvern_status status = load_model(&common, &b->loaded, error);
    if (status)
        return status;
    b->tokens = malloc(count * sizeof *b->tokens);
    b->samples = calloc(CASES * b->what->runs, sizeof *b->samples);
    if (!b->tokens || !b->samples)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory");
    if (page_cache_folder_make(b->what->folder, b->folder)) {
        b->folder[0] = '\0';
        return engine_fail(error, KVERN_ERR_IO, "no folder can be made in %s", b->what->folder);
    }
    if (kvern_store_create(model_context(b->loaded.model), NULL, &b->memory))
        return engine_fail_kvern(error, KVERN_ERR_MEMORY, "making a store");
    if ((status = store_prompt(b, error)) || (status = open_disk(b, true, &b->disk, error)))
        return status;
    status = open_schedule(b, NULL, NULL, &b->schedules[COLD], error);
    if (!status)
        status = open_schedule(b, b->memory, NULL, &b->schedules[MEMORY], error);
    return status ? status : open_schedule(b, NULL, b->disk, &b->schedules[DISK], error);
}

static void close_all(token_bench *b)
{
    for (size_t c = 0; c < CASES; c++)
        schedule_destroy(b->schedules[c]);
    kvern_disk_store_close(b->disk);
    kvern_store_destroy(b->memory);
    unload_model(&b->loaded);
    if (b->folder[0])
        page_cache_folder_remove(b->folder);
    free(b->tokens);
    free(b->samples);
}

// ---- Measuring ----

static kvern_status run_reopened(token_bench *b, first_token *a, engine_error *error)
{
    kvern_disk_store *disk;
    schedule *s = NULL;
    kvern_status status = open_disk(b, true, &disk, error);
    if (status)
        return status;
    status = open_schedule(b, NULL, disk, &s, error);
    if (!status)
        status = ask(b, s, a, error);
    schedule_destroy(s);
    kvern_disk_store_close(disk);
    return status;
}

// Nothing is measured that is not what it says.
static kvern_status check(const token_bench *b, size_t which, const first_token *a,
                          const first_token *cold, engine_error *error)
{
    const size_t wanted = which == COLD ? 0 : b->what->prefix;
    if (a->result.stored_tokens != wanted || a->result.from_disk != CASE_FACTS[which].from_disk)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "%s: %zu tokens were stored, not %zu: %s",
                           CASE_FACTS[which].name, a->result.stored_tokens, wanted,
                           a->result.why ? a->result.why : "");
    if (a->token != cold->token)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "%s: the token is another one",
                           CASE_FACTS[which].name);
    return KVERN_OK;
}

static kvern_status run_case(token_bench *b, size_t which, first_token *a, const first_token *cold,
                             double *seconds, engine_error *error)
{
    clock_rest();
    const double start = clock_seconds();
    kvern_status status =
        b->schedules[which] ? ask(b, b->schedules[which], a, error) : run_reopened(b, a, error);
    *seconds = a->first - start;
    return status ? status : check(b, which, a, cold, error);
}

static kvern_status measure(token_bench *b, engine_error *error)
{
    const size_t runs = b->what->runs;
    kvern_status status = open_all(b, error);
    progress bar = progress_start("measuring", "rounds");
    for (size_t r = 0; r <= runs && !status; r++) { // the first round warms up
        first_token answers[CASES];
        progress_update(&bar, r, runs + 1);
        write_prompt(b, r + 1);
        for (size_t c = 0; c < CASES && !status; c++) {
            double seconds = -1;
            // Where files stay in memory (tmpfs) there is nothing to measure.
            if (c != UNCACHED || page_cache_drop_all(b->folder))
                status = run_case(b, c, &answers[c], &answers[COLD], &seconds, error);
            if (r > 0)
                b->samples[c * runs + r - 1] = seconds;
        }
    }
    progress_end(&bar);
    return status;
}

// ---- The table ----

static bool add_case(json_t *list, size_t which, const quartiles *q, double speed)
{
    return json_array_append_new(
               list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "name", CASE_FACTS[which].name,
                               "what", CASE_FACTS[which].what, "ms", 1e3 * q->median, "ms_low",
                               1e3 * q->low, "ms_high", 1e3 * q->high, "speed", speed)) == 0;
}

static int print_table(const token_bench *b, json_t **cells)
{
    const store_token *what = b->what;
    json_t *list = what->json ? json_array() : NULL;
    double cold = 0;
    if (!list)
        printf("%11s %23s %9s\n", "first token", "quartiles", "speed");
    for (size_t c = 0; c < CASES; c++) {
        const quartiles q = clock_quartiles(b->samples + c * what->runs, what->runs);
        cold = c == COLD ? q.median : cold;
        const double speed = cold / q.median;
        if (q.low < 0)
            continue;
        if (!list)
            printf("%8.2f ms  %9.2f-%-9.2f ms %8.1fx  %-14s %s\n", 1e3 * q.median, 1e3 * q.low,
                   1e3 * q.high, speed, CASE_FACTS[c].name, CASE_FACTS[c].what);
        else if (!add_case(list, c, &q, speed))
            return report_error("no memory for the table");
    }
    if (list)
        *cells =
            json_pack("{s:I, s:I, s:I, s:o}", "threads", (json_int_t)what->threads, "prefix",
                      (json_int_t)what->prefix, "behind", (json_int_t)what->behind, "items", list);
    return CLI_SUCCESS;
}

int bench_store_token(const store_token *what, json_t **cells)
{
    token_bench b = {.what = what};
    engine_error error;
    const kvern_status status = measure(&b, &error);
    const int code = status ? report_engine_error(&error) : print_table(&b, cells);
    close_all(&b);
    return code;
}
