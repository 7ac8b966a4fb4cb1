// SPDX-License-Identifier: MIT
// kvern bench attention: a grid of geometries, each cell against the roofline and a peer.

#include "bench/measure/append.h"
#include "bench/measure/attention.h"
#include "bench/program/bench.h"
#include "bench/program/bench_peers.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_PHASE = OPTIONS_KEY_COMMAND, KEY_NEW, KEY_CSV, KEY_KIND, KEY_ROPE };

// Memory that the bandwidth is read from, and that decode reads cycle through: more than any cache
// that one machine shares between few cores.
#define COLD_BYTES ((size_t)512 << 20)

typedef struct attention_options {
    bench_grid grid;
    bool decode, window, append, latent;
    uint64_t new_tokens, rope_dim;
    const char *csv;
} attention_options;

static void parse_phase(const struct argp_state *state, const char *text,
                        attention_options *options)
{
    options->decode = strcmp(text, "decode") == 0 || strcmp(text, "both") == 0;
    options->window = strcmp(text, "window") == 0 || strcmp(text, "both") == 0;
    options->append = strcmp(text, "append") == 0;
    if (!options->decode && !options->window && !options->append)
        options_fail(state, "--phase is decode, window, both or append, not '%s'", text);
}

static void parse_kind(const struct argp_state *state, const char *text, attention_options *options)
{
    options->latent = strcmp(text, "latent") == 0;
    if (!options->latent && strcmp(text, "full") != 0)
        options_fail(state, "--kind is full or latent, not '%s'", text);
}

static void set_default(number_list *list, number_list usual)
{
    if (!list->count)
        *list = usual;
}

// What was not asked for, by the kind of layer; positions have defaults of their own.
static void complete(const struct argp_state *state, attention_options *options)
{
    bench_grid *grid = &options->grid;
    static const number_list LATENT_DIMS = {1, {512}}, LATENT_GROUPS = {2, {16, 128}};
    static const number_list DIMS = {3, {64, 128, 256}}, GROUPS = {4, {1, 3, 4, 8}};
    static const number_list ONE = {1, {1}};
    if (options->latent && grid->kv_heads > 1)
        options_fail(state, "latents have one KV head, not --kv-heads %llu",
                     (unsigned long long)grid->kv_heads);
    if (!options->latent && options->rope_dim)
        options_fail(state, "--rope needs --kind latent");
    if (!options->latent)
        bench_check_head_dims(state, grid);
    if (options->append && (options->latent || grid->bench.peer))
        options_fail(state, "--phase append is of keys and values, and has no peer");
    set_default(&grid->head_dims, options->latent ? LATENT_DIMS : DIMS);
    set_default(&grid->groups, options->append ? ONE : options->latent ? LATENT_GROUPS : GROUPS);
    if (!grid->kv_heads)
        grid->kv_heads = options->latent ? 1 : 8;
    if (options->latent && !options->rope_dim)
        options->rope_dim = 64;
}

static error_t parse_attention(int key, char *argument, struct argp_state *state)
{
    attention_options *options = state->input;
    switch (key) {
    case KEY_PHASE:
        parse_phase(state, argument, options);
        return 0;
    case KEY_NEW:
        options->new_tokens = options_number(state, "--new", argument, 1, 1 << 16);
        return 0;
    case KEY_CSV:
        options->csv = argument;
        return 0;
    case KEY_KIND:
        parse_kind(state, argument, options);
        return 0;
    case KEY_ROPE:
        options->rope_dim = options_number(state, "--rope", argument, 8, KVERN_MAX_ROPE_DIM);
        return 0;
    case ARGP_KEY_END:
        complete(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option ATTENTION_OPTIONS[] = {
    {.name = "phase",
     .key = KEY_PHASE,
     .arg = "NAME",
     .doc = "decode, window or both (default); append: what storing keys and values of bf16 costs"},
    {.name = "new",
     .key = KEY_NEW,
     .arg = "N",
     .doc = "New tokens of a window or an append; default: 512"},
    {.name = "csv", .key = KEY_CSV, .arg = "FILE", .doc = "Write the table as CSV too"},
    {.name = "kind",
     .key = KEY_KIND,
     .arg = "NAME",
     .doc = "full (default), or latent: absorbed reads of MLA, whose --head-dim is the latent's"},
    {.name = "rope",
     .key = KEY_ROPE,
     .arg = "N",
     .doc = "Numbers of the rotated key beside a latent; default: 64"},
    {0}};

static const struct argp_child ATTENTION_CHILDREN[] = {{.argp = &bench_grid_argp},
                                                       {.argp = &bench_repeat_argp},
                                                       {.argp = &bench_peer_argp},
                                                       {.argp = &options_json_argp},
                                                       {0}};

static const struct argp ATTENTION_ARGP = {
    .options = ATTENTION_OPTIONS,
    .parser = parse_attention,
    .doc =
        "Times reads of one layer's KV cache, and shows their share of the roofline: the larger of "
        "bytes / bandwidth and fma / fma peak over the time, where both limits are measured on "
        "the same threads between the runs. Where all rows lie in the last-level cache (marked *), "
        "it is the share of the multiply-adds alone."
        "\vDefaults: --head-dim 64,128,256, --group 1,3,4,8, --positions 1024,8192,65536 for "
        "decode and 2048,8192 for a window or an append (--group 1); with --kind latent: "
        "--head-dim 512, --group 16,128, "
        "--positions 8192. "
        "Times are medians of --runs runs (default: 11); the spread is that of the quartiles. "
        "Decode reads cycle through 512 MB of rows, at most 512 rows, so that they read from "
        "memory, unless a cache holds all of these. A ratio is the "
        "peer's time over ours; a peer whose results are not ours is an error.",
    .children = ATTENTION_CHILDREN,
};

// Everything of one run: where rows of the table go.
typedef struct attention_run {
    const attention_options *options;
    roofline_buffer buffer;
    bench_peers peers;
    FILE *csv;
    json_t *cells;
    progress bar;
    size_t done, total;
    size_t cache_bytes; // of a cell that was marked; 0: none was
} attention_run;

// One row of the table: a cell, and a peer or NULL.
typedef struct table_row {
    const char *storage;
    const attention_case *cell;
    const attention_result *result;
    const timed_peer *peer;
} table_row;

static void print_head(const attention_run *run)
{
    if (run->options->grid.bench.common.json)
        return;
    printf("%-7s %-5s %4s %7s %9s %4s %3s %10s %15s %7s %7s %5s", "phase", "store", "dim", "heads",
           "positions", "new", "thr", "ms", "quartiles", "GB/s", "GFMA/s", "roof");
    bench_peers_print_head(&run->peers);
}

static double ratio_of(const table_row *row)
{
    return row->peer->times.median / row->result->times.median;
}

static void print_row(const table_row *row)
{
    const attention_case *c = row->cell;
    const attention_result *r = row->result;
    const double seconds = r->times.median;
    char share[16];
    snprintf(share, sizeof share, "%s%.0f%%", r->from_cache ? "*" : "", 100 * r->share);
    printf("%-7s %-5s %4zu %3zu/%-3zu %9lld %4lld %3zu %10.3f %7.3f-%-7.3f %7.1f %7.1f %5s",
           c->phase, row->storage, c->head_dim, c->query_heads, c->kv_heads,
           (long long)c->positions, (long long)c->new_tokens, c->threads, 1e3 * seconds,
           1e3 * r->times.low, 1e3 * r->times.high, r->bytes / seconds / 1e9,
           r->fma / seconds / 1e9, share);
    bench_peers_print(row->peer, seconds);
}

static void write_csv(const attention_run *run, const table_row *row)
{
    const attention_case *c = row->cell;
    const attention_result *r = row->result;
    const char *from_cache = !r->cache_bytes ? "" : r->from_cache ? "1" : "0";
    fprintf(run->csv, "%s,%s,%zu,%zu,%zu,%lld,%lld,%zu,%.6f,%.4f,%s,", c->phase, row->storage,
            c->head_dim, c->query_heads, c->kv_heads, (long long)c->positions,
            (long long)c->new_tokens, c->threads, 1e3 * r->times.median, r->share, from_cache);
    if (row->peer && row->peer->measured)
        fprintf(run->csv, "%s %s,%.6f,%.4f\n", row->peer->process.name, row->peer->storage,
                1e3 * row->peer->times.median, ratio_of(row));
    else
        fputs(",,\n", run->csv);
}

static bool add_json(attention_run *run, const table_row *row)
{
    const attention_case *c = row->cell;
    const attention_result *r = row->result;
    json_t *cell =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:f, s:f, "
                  "s:f, s:f, s:o}",
                  "phase", c->phase, "storage", row->storage, "head_dim", (json_int_t)c->head_dim,
                  "q_heads", (json_int_t)c->query_heads, "kv_heads", (json_int_t)c->kv_heads,
                  "positions", (json_int_t)c->positions, "new_tokens", (json_int_t)c->new_tokens,
                  "threads", (json_int_t)c->threads, "ms", 1e3 * r->times.median, "ms_low",
                  1e3 * r->times.low, "ms_high", 1e3 * r->times.high, "roofline_share", r->share,
                  "from_cache", r->cache_bytes ? json_boolean(r->from_cache) : json_null(), "bytes",
                  r->bytes, "fma", r->fma, "limit_bytes_per_s", r->limits.bytes_per_s,
                  "limit_fma_per_s", r->limits.fma_per_s, "peers", bench_peers_json(&run->peers));
    return json_array_append_new(run->cells, cell) == 0;
}

// One row for each peer, or one without any.
static bool show_cell(attention_run *run, table_row row)
{
    if (row.result->from_cache)
        run->cache_bytes = row.result->cache_bytes;
    const bool json = run->options->grid.bench.common.json;
    for (size_t p = 0; p == 0 || p < run->peers.count; p++) {
        row.peer = run->peers.count ? &run->peers.of[p] : NULL;
        if (run->csv)
            write_csv(run, &row);
        if (!json)
            print_row(&row);
    }
    return !json || add_json(run, &row);
}

static int measure_cell(attention_run *run, const char *storage, const attention_case *c)
{
    attention_result r;
    progress_update(&run->bar, run->done++, run->total);
    const size_t runs = run->options->grid.bench.runs;
    measure_fault fault = run->options->append
                              ? append_measure(c, runs, &run->buffer, &r)
                              : attention_measure(c, runs, &run->buffer, COLD_BYTES, run->peers.of,
                                                  run->peers.count, &r);
    progress_end(&run->bar);
    if (fault)
        return bench_peers_report(&run->options->grid.bench, &run->peers, fault);
    if (!show_cell(run, (table_row){storage, c, &r, NULL}))
        return report_error("no memory for the table");
    return CLI_SUCCESS;
}

static const number_list *positions_of(const attention_options *options, bool decode)
{
    static const number_list DECODE = {3, {1024, 8192, 65536}}, WINDOW = {2, {2048, 8192}};
    static const number_list LATENT = {1, {8192}};
    if (options->grid.positions.count)
        return &options->grid.positions;
    if (options->latent)
        return &LATENT;
    return decode ? &DECODE : &WINDOW;
}

static size_t cells_of(const attention_options *o, bool decode)
{
    const bench_grid *grid = &o->grid;
    return grid->bench.threads.count * grid->storages.count * grid->head_dims.count *
           grid->groups.count * positions_of(o, decode)->count;
}

// One phase: the cells of all threads, dims, groups, positions and storages, the storages of one
// geometry behind each other.
static int measure_phase(attention_run *run, bool decode)
{
    const bench_grid *grid = &run->options->grid;
    const number_list *positions = positions_of(run->options, decode);
    const size_t cells = cells_of(run->options, decode);
    int code = CLI_SUCCESS;
    for (size_t i = 0; i < cells && code == CLI_SUCCESS; i++) {
        size_t at = i;
        const size_t storage = bench_index(&at, grid->storages.count);
        attention_case c = {.phase = decode                 ? "decode"
                                     : run->options->append ? "append"
                                                            : "window",
                            .storage = grid->codecs[storage],
                            .latent = run->options->latent,
                            .rope_dim = run->options->rope_dim};
        c.positions = (int64_t)positions->value[bench_index(&at, positions->count)];
        c.kv_heads = grid->kv_heads;
        c.query_heads = c.kv_heads * grid->groups.value[bench_index(&at, grid->groups.count)];
        c.head_dim = grid->head_dims.value[bench_index(&at, grid->head_dims.count)];
        c.threads = grid->bench.threads.value[at];
        c.new_tokens = decode ? 1 : (int64_t)run->options->new_tokens;
        code = measure_cell(run, grid->storages.name[storage], &c);
    }
    return code;
}

static void print_foot(const attention_run *run)
{
    char bytes[NUMBER_BYTES_TEXT];
    if (!run->options->grid.bench.common.json && run->cache_bytes)
        printf("* read from the last-level cache (%s), so that bandwidth is no limit: the share is "
               "that of the multiply-adds\n",
               number_format_bytes(run->cache_bytes, bytes));
}

static int measure_all(attention_run *run)
{
    int code = CLI_SUCCESS;
    run->bar = progress_start("measuring", "cells");
    const bool many = run->options->window || run->options->append;
    run->total = (run->options->decode ? cells_of(run->options, true) : 0) +
                 (many ? cells_of(run->options, false) : 0);
    print_head(run);
    if (run->options->decode)
        code = measure_phase(run, true);
    if (many && code == CLI_SUCCESS)
        code = measure_phase(run, false);
    print_foot(run);
    return code;
}

static int open_run(attention_run *run)
{
    const attention_options *options = run->options;
    if (bench_peers_start(&options->grid.bench, &run->peers) != CLI_SUCCESS)
        return CLI_FAILURE;
    if (options->csv && !(run->csv = fopen(options->csv, "w")))
        return report_error("%s: %s", options->csv, strerror(errno));
    if (run->csv)
        fputs("phase,storage,head_dim,q_heads,kv_heads,positions,new_tokens,threads,ms,"
              "roofline_share,from_cache,peer,peer_ms,ratio\n",
              run->csv);
    if (options->grid.bench.common.json && !(run->cells = json_array()))
        return report_error("no memory");
    if (!roofline_open(COLD_BYTES, &run->buffer))
        return report_error("no memory to measure the bandwidth with");
    return CLI_SUCCESS;
}

static int close_run(attention_run *run, int code)
{
    roofline_close(&run->buffer);
    const bool written = !run->csv || (fflush(run->csv) == 0 && !ferror(run->csv));
    if (run->csv && (fclose(run->csv) != 0 || !written) && code == CLI_SUCCESS)
        code = report_error("%s: %s", run->options->csv, strerror(errno));
    if (run->cells && code == CLI_SUCCESS)
        code = json_print(json_pack("{s:s, s:s, s:o}", "cpu", kvern_cpu_name(kvern_cpu_features()),
                                    "peer", bench_peers_name(&run->peers), "cells", run->cells));
    else
        json_decref(run->cells);
    bench_peers_stop(&run->peers);
    return code;
}

int bench_attention(int argc, char **argv)
{
    attention_options options = {
        .grid = {.bench = {.threads = {2, {1, 2}}, .runs = 11},
                 .storages = {1, {"bf16"}},
                 .codecs = {kvern_codec_dense(KVERN_BF16)}},
        .decode = true,
        .window = true,
        .new_tokens = 512,
    };
    options_parse(&ATTENTION_ARGP, argc, argv, &options.grid.bench.common);
    attention_run run = {.options = &options};
    int code = open_run(&run);
    if (code == CLI_SUCCESS)
        code = measure_all(&run);
    return close_run(&run, code);
}
