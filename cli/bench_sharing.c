// SPDX-License-Identifier: MIT
// kvern bench sharing: rows that share a prefix against rows that do not.

#include "bench/measure/sharing.h"
#include "cli/bench.h"
#include "cli/bench_options.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/storage.h"

#include <stdio.h>

enum {
    KEY_STORAGE = OPTIONS_KEY_COMMAND,
    KEY_HEAD_DIM,
    KEY_GROUP,
    KEY_KV_HEADS,
    KEY_POSITIONS,
    KEY_ROWS
};

// Memory that the attends of either kind cycle through: more than any cache that one machine shares
// between few cores.
#define COLD_BYTES ((size_t)256 << 20)

#define DEFAULT_RUNS 21

typedef struct sharing_options {
    bench_options bench;
    name_list storages;
    kvern_codec codecs[BENCH_MOST_NAMES]; // of `storages`
    number_list head_dims, groups, positions, rows;
    uint64_t kv_heads;
} sharing_options;

static const struct argp SHARING_ARGP;

static error_t parse_sharing(int key, char *argument, struct argp_state *state)
{
    sharing_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options_init(state, &SHARING_ARGP);
        return 0;
    case KEY_STORAGE:
        bench_storages(state, "--storage", argument, &options->storages, options->codecs);
        return 0;
    case KEY_HEAD_DIM:
        options_list(state, "--head-dim", argument, 8, KVERN_MAX_HEAD_DIM, &options->head_dims);
        return 0;
    case KEY_GROUP:
        options_list(state, "--group", argument, 1, 256, &options->groups);
        return 0;
    case KEY_KV_HEADS:
        options->kv_heads = options_number(state, "--kv-heads", argument, 1, 256);
        return 0;
    case KEY_POSITIONS:
        options_list(state, "--positions", argument, 1, 1 << 20, &options->positions);
        return 0;
    case KEY_ROWS:
        options_list(state, "--rows", argument, 2, 1024, &options->rows);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option SHARING_OPTIONS[] = {
    {.name = "rows", .key = KEY_ROWS, .arg = "LIST", .doc = "Rows that decode; default: 8"},
    {.name = "positions",
     .key = KEY_POSITIONS,
     .arg = "LIST",
     .doc = "Length of the prefix; default: 2048"},
    {.name = "storage",
     .key = KEY_STORAGE,
     .arg = "LIST",
     .doc = "What K and V are stored as; default: bf16. There are " STORAGE_CODECS},
    {.name = "head-dim", .key = KEY_HEAD_DIM, .arg = "LIST", .doc = "Default: 64,128"},
    {.name = "group",
     .key = KEY_GROUP,
     .arg = "LIST",
     .doc = "Query heads per KV head; default: 1,2,3"},
    {.name = "kv-heads", .key = KEY_KV_HEADS, .arg = "N", .doc = "Default: 8"},
    {0}};

static const struct argp_child SHARING_CHILDREN[] = {
    {&bench_repeat_argp, 0, NULL, 0}, {&options_json_argp, 0, NULL, 0}, {0}};

static const struct argp SHARING_ARGP = {
    .options = SHARING_OPTIONS,
    .parser = parse_sharing,
    .doc = "Times the decode of rows that were forked from one prefix, in turns with that of as "
           "many rows of the same contents that were stored one by one: reads of one layer's KV "
           "cache, of one new token per row."
           "\vTimes are medians of --runs runs (default: 21) and their quartiles. Both kinds cycle "
           "through 256 MB, so that they read from memory. The results of both must have the same "
           "bits. Memory is that of the KV pages of all rows: behind the fork over that of the "
           "prefix, and when each row has a token of its own, over that of one of them.",
    .children = SHARING_CHILDREN,
};

typedef struct sharing_run {
    const sharing_options *options;
    json_t *cells;
    progress bar;
    size_t done, total;
} sharing_run;

static void print_head(const sharing_run *run)
{
    if (!run->options->bench.common.json)
        printf("%-5s %4s %7s %9s %4s %3s %10s %15s %10s %15s %7s %14s\n", "store", "dim", "heads",
               "positions", "rows", "thr", "shared ms", "quartiles", "alone ms", "quartiles",
               "speed", "memory");
}

static double speed_of(const sharing_result *r)
{
    return r->alone.median / r->shared.median;
}

static void print_row(const char *storage, const sharing_case *c, const sharing_result *r)
{
    printf("%-5s %4zu %3zu/%-3zu %9lld %4zu %3zu %10.3f %7.3f-%-7.3f %10.3f %7.3f-%-7.3f %6.2fx "
           "%5.2fx-%.2fx\n",
           storage, c->head_dim, c->query_heads, c->kv_heads, (long long)c->positions, c->rows,
           c->threads, 1e3 * r->shared.median, 1e3 * r->shared.low, 1e3 * r->shared.high,
           1e3 * r->alone.median, 1e3 * r->alone.low, 1e3 * r->alone.high, speed_of(r),
           r->forked_memory, r->decoded_memory);
    fflush(stdout);
}

static json_t *times_json(const sharing_times *times)
{
    return json_pack("{s:f, s:f, s:f}", "ms", 1e3 * times->median, "ms_low", 1e3 * times->low,
                     "ms_high", 1e3 * times->high);
}

static bool add_json(sharing_run *run, const char *storage, const sharing_case *c,
                     const sharing_result *r)
{
    json_t *cell = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:f, s:f}",
                             "storage", storage, "head_dim", (json_int_t)c->head_dim, "q_heads",
                             (json_int_t)c->query_heads, "kv_heads", (json_int_t)c->kv_heads,
                             "positions", (json_int_t)c->positions, "rows", (json_int_t)c->rows,
                             "threads", (json_int_t)c->threads, "shared", times_json(&r->shared),
                             "alone", times_json(&r->alone), "speed", speed_of(r), "forked_memory",
                             r->forked_memory, "decoded_memory", r->decoded_memory);
    return json_array_append_new(run->cells, cell) == 0;
}

static int measure_cell(sharing_run *run, const char *storage, const sharing_case *c)
{
    sharing_result r;
    const size_t runs = run->options->bench.runs ? run->options->bench.runs : DEFAULT_RUNS;
    progress_update(&run->bar, run->done++, run->total);
    const kvern_status status = sharing_measure(c, runs, COLD_BYTES, &r);
    progress_end(&run->bar);
    if (status == KVERN_ERR_MEMORY)
        return report_error("not enough memory for this cell");
    if (status)
        return report_error("%s", kvern_error_detail());
    if (!r.same_bits)
        return report_error("rows that share a prefix have other results than rows alone");
    if (!run->options->bench.common.json)
        print_row(storage, c, &r);
    else if (!add_json(run, storage, c, &r))
        return report_error("no memory for the table");
    return CLI_SUCCESS;
}

static int measure_all(sharing_run *run)
{
    const sharing_options *o = run->options;
    int code = CLI_SUCCESS;
    run->total = o->bench.threads.count * o->storages.count * o->head_dims.count * o->groups.count *
                 o->positions.count * o->rows.count;
    run->bar = progress_start("measuring", "cells");
    print_head(run);
    for (size_t i = 0; i < run->total && code == CLI_SUCCESS; i++) {
        size_t at = i;
        const size_t storage = bench_index(&at, o->storages.count);
        sharing_case c = {.storage = o->codecs[storage], .kv_heads = o->kv_heads};
        c.rows = o->rows.value[bench_index(&at, o->rows.count)];
        c.positions = (int64_t)o->positions.value[bench_index(&at, o->positions.count)];
        c.query_heads = c.kv_heads * o->groups.value[bench_index(&at, o->groups.count)];
        c.head_dim = o->head_dims.value[bench_index(&at, o->head_dims.count)];
        c.threads = o->bench.threads.value[at];
        code = measure_cell(run, o->storages.name[storage], &c);
    }
    return code;
}

int bench_sharing(int argc, char **argv)
{
    sharing_options options = {
        .bench = {.threads = {2, {1, 2}}},
        .storages = {1, {"bf16"}},
        .codecs = {kvern_codec_dense(KVERN_BF16)},
        .head_dims = {2, {64, 128}},
        .groups = {3, {1, 2, 3}},
        .positions = {1, {2048}},
        .rows = {1, {8}},
        .kv_heads = 8,
    };
    options_parse(&SHARING_ARGP, argc, argv, &options.bench.common);
    sharing_run run = {.options = &options};
    if (options.bench.common.json && !(run.cells = json_array()))
        return report_error("no memory");
    const int code = measure_all(&run);
    if (run.cells && code == CLI_SUCCESS)
        return json_print(json_pack("{s:s, s:o}", "cpu", kvern_cpu_name(kvern_cpu_features()),
                                    "cells", run.cells));
    json_decref(run.cells);
    return code;
}
