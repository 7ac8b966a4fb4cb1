// SPDX-License-Identifier: MIT
// kvern bench select: sparse attention, the selection of positions and the read of them.

#include "bench/measure/selection.h"
#include "bench/program/bench.h"
#include "bench/program/bench_peers.h"
#include "cli/io/json.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"
#include "cli/options/storage_options.h"

#include <stdio.h>

enum {
    KEY_STORAGE = OPTIONS_KEY_COMMAND,
    KEY_POSITIONS,
    KEY_TOP_K,
    KEY_INDEX_HEADS,
    KEY_INDEX_DIM,
    KEY_HEADS
};

// Memory that the bandwidth is read from: more than any cache that one machine shares between few
// cores.
#define COLD_BYTES ((size_t)256 << 20)

#define LATENT_DIM 512
#define ROPE_DIM 64

typedef struct select_options {
    bench_options bench; // first, as parsers want it
    name_list storages;
    kvern_codec codecs[BENCH_MOST_NAMES]; // of `storages`
    number_list positions, heads;
    uint64_t top_k, index_heads, index_dim;
} select_options;

static void parse_storages(const struct argp_state *state, const char *text,
                           select_options *options)
{
    bench_names(state, "--storage", text, &options->storages);
    for (size_t i = 0; i < options->storages.count; i++)
        if (kvern_codec_parse(options->storages.name[i], 64, &options->codecs[i]) != KVERN_OK)
            options_fail(state, "--storage knows " STORAGE_CODECS ", not '%s'",
                         options->storages.name[i]);
}

static error_t parse_select(int key, char *argument, struct argp_state *state)
{
    select_options *options = state->input;
    switch (key) {
    case KEY_STORAGE:
        parse_storages(state, argument, options);
        return 0;
    case KEY_POSITIONS:
        options_list(state, "--positions", argument, 2, 1 << 20, &options->positions);
        return 0;
    case KEY_TOP_K:
        options->top_k = options_number(state, "--top-k", argument, 1, 1 << 20);
        return 0;
    case KEY_INDEX_HEADS:
        options->index_heads =
            options_number(state, "--index-heads", argument, 1, KVERN_MAX_INDEX_HEADS);
        return 0;
    case KEY_INDEX_DIM:
        options->index_dim = options_number(state, "--index-dim", argument, 8, KVERN_MAX_INDEX_DIM);
        return 0;
    case KEY_HEADS:
        options_list(state, "--heads", argument, 1, 1024, &options->heads);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option SELECT_OPTIONS[] = {
    {.name = "storage",
     .key = KEY_STORAGE,
     .arg = "LIST",
     .doc = "What latents and index keys are stored as; default: bf16. There are " STORAGE_CODECS},
    {.name = "positions", .key = KEY_POSITIONS, .arg = "LIST", .doc = "Default: 65536"},
    {.name = "top-k",
     .key = KEY_TOP_K,
     .arg = "N",
     .doc = "Positions that are selected; "
            "default: 2048"},
    {.name = "index-heads", .key = KEY_INDEX_HEADS, .arg = "N", .doc = "Default: 64"},
    {.name = "index-dim", .key = KEY_INDEX_DIM, .arg = "N", .doc = "Default: 128"},
    {.name = "heads",
     .key = KEY_HEADS,
     .arg = "LIST",
     .doc = "Query heads of the reads; default: 16,128"},
    {0}};

static const struct argp_child SELECT_CHILDREN[] = {
    {.argp = &bench_repeat_argp}, {.argp = &bench_peer_argp}, {.argp = &options_json_argp}, {0}};

static const struct argp SELECT_ARGP = {
    .options = SELECT_OPTIONS,
    .parser = parse_select,
    .doc =
        "Times sparse attention over latents (512 numbers and 64 of the rope key) for one new "
        "token: scores of all positions and the best of them, and their share of the peak of "
        "multiply-adds, which is measured on the same threads between the runs; the same call with "
        "an indexer of 8 heads of 8 numbers, which does little else than pick the best; then the "
        "read of the selected positions beside the dense read of all."
        "\vTimes are medians of --runs runs (default: 11); the spread is that of the quartiles.",
    .children = SELECT_CHILDREN,
};

typedef struct select_run {
    const select_options *options;
    roofline_buffer buffer;
    bench_peers peers;
    json_t *cells;
    progress bar;
    size_t done, total;
} select_run;

static void print_head(const select_run *run)
{
    if (run->options->bench.common.json)
        return;
    printf("%-5s %9s %6s %9s %3s %10s %15s %7s %5s %8s %5s %6s %9s %9s %7s", "store", "positions",
           "top-k", "indexer", "thr", "select ms", "quartiles", "GFMA/s", "peak", "pick ms",
           "share", "heads", "sparse ms", "dense ms", "speed");
    bench_peers_print_head(&run->peers);
}

static double pick_share(const selection_result *r)
{
    return r->pick.median / r->select.median;
}

static double speed_of(const selection_result *r)
{
    return r->dense.median / r->attend.median;
}

static void print_row(const char *storage, const selection_case *c, const selection_result *r,
                      const timed_peer *peer)
{
    char indexer[16];
    snprintf(indexer, sizeof indexer, "%zux%zu", c->index_heads, c->index_dim);
    printf("%-5s %9lld %6lld %9s %3zu %10.3f %7.3f-%-7.3f %7.1f %4.0f%% %8.3f %4.1f%% %6zu %9.3f "
           "%9.3f %6.2fx",
           storage, (long long)c->positions, (long long)c->top_k, indexer, c->threads,
           1e3 * r->select.median, 1e3 * r->select.low, 1e3 * r->select.high,
           r->score_fma / r->select.median / 1e9, 100 * r->score_share, 1e3 * r->pick.median,
           100 * pick_share(r), c->heads, 1e3 * r->attend.median, 1e3 * r->dense.median,
           speed_of(r));
    bench_peers_print(peer, r->select.median);
}

static json_t *times_json(const quartiles *times)
{
    return json_pack("{s:f, s:f, s:f}", "ms", 1e3 * times->median, "ms_low", 1e3 * times->low,
                     "ms_high", 1e3 * times->high);
}

static bool add_json(select_run *run, const char *storage, const selection_case *c,
                     const selection_result *r)
{
    json_t *cell = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:o}",
        "storage", storage, "positions", (json_int_t)c->positions, "top_k", (json_int_t)c->top_k,
        "index_heads", (json_int_t)c->index_heads, "index_dim", (json_int_t)c->index_dim, "heads",
        (json_int_t)c->heads, "threads", (json_int_t)c->threads, "select", times_json(&r->select),
        "pick", times_json(&r->pick), "attend", times_json(&r->attend), "dense",
        times_json(&r->dense), "fma", r->score_fma, "fma_share", r->score_share, "pick_share",
        pick_share(r), "limit_bytes_per_s", r->limits.bytes_per_s, "limit_fma_per_s",
        r->limits.fma_per_s, "peers", bench_peers_json(&run->peers));
    return json_array_append_new(run->cells, cell) == 0;
}

static int measure_cell(select_run *run, const char *storage, const selection_case *c)
{
    selection_result r;
    progress_update(&run->bar, run->done++, run->total);
    const measure_fault fault = selection_measure(c, run->options->bench.runs, &run->buffer,
                                                  run->peers.of, run->peers.count, &r);
    progress_end(&run->bar);
    if (fault)
        return bench_peers_report(&run->options->bench, &run->peers, fault);
    const bool json = run->options->bench.common.json;
    for (size_t p = 0; !json && (p == 0 || p < run->peers.count); p++)
        print_row(storage, c, &r, run->peers.count ? &run->peers.of[p] : NULL);
    if (json && !add_json(run, storage, c, &r))
        return report_error("no memory for the table");
    return CLI_SUCCESS;
}

static int measure_all(select_run *run)
{
    const select_options *o = run->options;
    int code = CLI_SUCCESS;
    run->total = o->bench.threads.count * o->storages.count * o->positions.count * o->heads.count;
    run->bar = progress_start("measuring", "cells");
    print_head(run);
    for (size_t i = 0; i < run->total && code == CLI_SUCCESS; i++) {
        size_t at = i;
        selection_case c = {.top_k = (int64_t)o->top_k,
                            .index_heads = o->index_heads,
                            .index_dim = o->index_dim,
                            .latent_dim = LATENT_DIM,
                            .rope_dim = ROPE_DIM};
        c.heads = o->heads.value[bench_index(&at, o->heads.count)];
        c.positions = (int64_t)o->positions.value[bench_index(&at, o->positions.count)];
        const size_t storage = bench_index(&at, o->storages.count);
        c.storage = o->codecs[storage];
        c.threads = o->bench.threads.value[at];
        code = measure_cell(run, o->storages.name[storage], &c);
    }
    return code;
}

int bench_select(int argc, char **argv)
{
    select_options options = {
        .bench = {.threads = {2, {1, 2}}, .runs = 11},
        .storages = {1, {"bf16"}},
        .codecs = {kvern_codec_dense(KVERN_BF16)},
        .positions = {1, {65536}},
        .heads = {2, {16, 128}},
        .top_k = 2048,
        .index_heads = 64,
        .index_dim = 128,
    };
    options_parse(&SELECT_ARGP, argc, argv, &options.bench.common);
    select_run run = {.options = &options};
    if (options.bench.common.json && !(run.cells = json_array()))
        return report_error("no memory");
    if (!roofline_open(COLD_BYTES, &run.buffer))
        return report_error("no memory to measure the bandwidth with");
    int code = bench_peers_start(&options.bench, &run.peers);
    if (code == CLI_SUCCESS)
        code = measure_all(&run);
    roofline_close(&run.buffer);
    if (run.cells && code == CLI_SUCCESS)
        code = json_print(json_pack("{s:s, s:s, s:o}", "cpu", kvern_cpu_name(kvern_cpu_features()),
                                    "peer", bench_peers_name(&run.peers), "cells", run.cells));
    else
        json_decref(run.cells);
    bench_peers_stop(&run.peers);
    return code;
}
