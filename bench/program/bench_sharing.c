// SPDX-License-Identifier: MIT
// kvern bench sharing: rows that share a prefix against rows that do not.

#include "bench/measure/sharing.h"
#include "bench/program/bench.h"
#include "bench/program/bench_options.h"
#include "cli/io/json.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"

#include <stdio.h>

enum { KEY_ROWS = OPTIONS_KEY_COMMAND };

// Memory that the attends of either kind cycle through: more than any cache that one machine shares
// between few cores.
#define COLD_BYTES ((size_t)256 << 20)

typedef struct sharing_options {
    bench_grid grid;
    number_list rows;
} sharing_options;

static error_t parse_sharing(int key, char *argument, struct argp_state *state)
{
    sharing_options *options = state->input;
    switch (key) {
    case KEY_ROWS:
        options_list(state, "--rows", argument, 2, 1024, &options->rows);
        return 0;
    case ARGP_KEY_END:
        bench_check_head_dims(state, &options->grid);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option SHARING_OPTIONS[] = {
    {.name = "rows", .key = KEY_ROWS, .arg = "LIST", .doc = "Rows that decode; default: 8"}, {0}};

static const struct argp_child SHARING_CHILDREN[] = {
    {.argp = &bench_grid_argp}, {.argp = &bench_repeat_argp}, {.argp = &options_json_argp}, {0}};

static const struct argp SHARING_ARGP = {
    .options = SHARING_OPTIONS,
    .parser = parse_sharing,
    .doc =
        "Times the decode of rows that were forked from one prefix, in turns with that of as "
        "many rows of the same contents that were stored one by one: reads of one layer's KV "
        "cache, of one new token per row."
        "\vDefaults: --head-dim 64,128, --group 1,2,3, --positions 2048, the length of the prefix. "
        "Times are medians of --runs runs (default: 21) and their quartiles. Both kinds cycle "
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
    if (!run->options->grid.bench.common.json)
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

static json_t *times_json(const quartiles *times)
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
    progress_update(&run->bar, run->done++, run->total);
    const kvern_status status = sharing_measure(c, run->options->grid.bench.runs, COLD_BYTES, &r);
    progress_end(&run->bar);
    if (status == KVERN_ERR_MEMORY)
        return report_error("not enough memory for this cell");
    if (status)
        return report_error("%s", kvern_error_detail());
    if (!r.same_bits)
        return report_error("rows that share a prefix have other results than rows alone");
    if (!run->options->grid.bench.common.json)
        print_row(storage, c, &r);
    else if (!add_json(run, storage, c, &r))
        return report_error("no memory for the table");
    return CLI_SUCCESS;
}

static int measure_all(sharing_run *run)
{
    const bench_grid *grid = &run->options->grid;
    const number_list *rows = &run->options->rows;
    int code = CLI_SUCCESS;
    run->total = grid->bench.threads.count * grid->storages.count * grid->head_dims.count *
                 grid->groups.count * grid->positions.count * rows->count;
    run->bar = progress_start("measuring", "cells");
    print_head(run);
    for (size_t i = 0; i < run->total && code == CLI_SUCCESS; i++) {
        size_t at = i;
        const size_t storage = bench_index(&at, grid->storages.count);
        sharing_case c = {.storage = grid->codecs[storage], .kv_heads = grid->kv_heads};
        c.rows = rows->value[bench_index(&at, rows->count)];
        c.positions = (int64_t)grid->positions.value[bench_index(&at, grid->positions.count)];
        c.query_heads = c.kv_heads * grid->groups.value[bench_index(&at, grid->groups.count)];
        c.head_dim = grid->head_dims.value[bench_index(&at, grid->head_dims.count)];
        c.threads = grid->bench.threads.value[at];
        code = measure_cell(run, grid->storages.name[storage], &c);
    }
    return code;
}

int bench_sharing(int argc, char **argv)
{
    sharing_options options = {
        .grid = {.bench = {.threads = {2, {1, 2}}, .runs = 21},
                 .storages = {1, {"bf16"}},
                 .codecs = {kvern_codec_dense(KVERN_BF16)},
                 .head_dims = {2, {64, 128}},
                 .groups = {3, {1, 2, 3}},
                 .positions = {1, {2048}},
                 .kv_heads = 8},
        .rows = {1, {8}},
    };
    options_parse(&SHARING_ARGP, argc, argv, &options.grid.bench.common);
    sharing_run run = {.options = &options};
    if (options.grid.bench.common.json && !(run.cells = json_array()))
        return report_error("no memory");
    const int code = measure_all(&run);
    if (run.cells && code == CLI_SUCCESS)
        return json_print(json_pack("{s:s, s:o}", "cpu", kvern_cpu_name(kvern_cpu_features()),
                                    "cells", run.cells));
    json_decref(run.cells);
    return code;
}
