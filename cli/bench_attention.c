// SPDX-License-Identifier: MIT
// kvern bench attention: a grid of geometries, each cell against the roofline and a peer.

#include "bench/measure/attention.h"
#include "bench/measure/peer.h"
#include "cli/bench.h"
#include "cli/json.h"
#include "cli/number_list.h"
#include "cli/progress.h"
#include "cli/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_PHASE = OPTIONS_KEY_COMMAND,
    KEY_STORAGE,
    KEY_HEAD_DIM,
    KEY_GROUP,
    KEY_KV_HEADS,
    KEY_POSITIONS,
    KEY_NEW,
    KEY_THREADS,
    KEY_RUNS,
    KEY_CSV,
    KEY_PEER
};

// Memory that the bandwidth is read from, and that decode reads cycle through: more than any cache
// that one machine shares between few cores.
#define COLD_BYTES ((size_t)512 << 20)

typedef struct attention_options {
    cli_options common;
    bool decode, window;
    kvern_type storage;
    number_list head_dims, groups, positions, threads;
    uint64_t kv_heads, new_tokens, runs;
    const char *csv;
    const char *peer;
} attention_options;

static kvern_type parse_storage(const struct argp_state *state, const char *text)
{
    if (strcmp(text, "bf16") == 0)
        return KVERN_BF16;
    if (strcmp(text, "f16") == 0)
        return KVERN_F16;
    if (strcmp(text, "f32") != 0)
        options_fail(state, "--storage is bf16, f16 or f32, not '%s'", text);
    return KVERN_F32;
}

static void parse_phase(const struct argp_state *state, const char *text,
                        attention_options *options)
{
    options->decode = strcmp(text, "decode") == 0 || strcmp(text, "both") == 0;
    options->window = strcmp(text, "window") == 0 || strcmp(text, "both") == 0;
    if (!options->decode && !options->window)
        options_fail(state, "--phase is decode, window or both, not '%s'", text);
}

static const struct argp ATTENTION_ARGP;

static error_t parse_attention(int key, char *argument, struct argp_state *state)
{
    attention_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options_init(state, &ATTENTION_ARGP);
        return 0;
    case KEY_PHASE:
        parse_phase(state, argument, options);
        return 0;
    case KEY_STORAGE:
        options->storage = parse_storage(state, argument);
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
    case KEY_NEW:
        options->new_tokens = options_number(state, "--new", argument, 1, 1 << 16);
        return 0;
    case KEY_THREADS:
        options_list(state, "--threads", argument, 1, 1024, &options->threads);
        return 0;
    case KEY_RUNS:
        options->runs = options_number(state, "--runs", argument, 1, 10000);
        return 0;
    case KEY_CSV:
        options->csv = argument;
        return 0;
    case KEY_PEER:
        options->peer = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option ATTENTION_OPTIONS[] = {
    {.name = "phase", .key = KEY_PHASE, .arg = "NAME", .doc = "decode, window or both (default)"},
    {.name = "storage", .key = KEY_STORAGE, .arg = "TYPE", .doc = "bf16 (default), f16 or f32"},
    {.name = "head-dim", .key = KEY_HEAD_DIM, .arg = "LIST", .doc = "Default: 64,128,256"},
    {.name = "group",
     .key = KEY_GROUP,
     .arg = "LIST",
     .doc = "Query heads per KV head; default: 1,3,4,8"},
    {.name = "kv-heads", .key = KEY_KV_HEADS, .arg = "N", .doc = "Default: 8"},
    {.name = "positions",
     .key = KEY_POSITIONS,
     .arg = "LIST",
     .doc = "Stored before the new tokens; default: 1024,8192,65536 for decode, 2048,8192 for a "
            "window"},
    {.name = "new", .key = KEY_NEW, .arg = "N", .doc = "New tokens of a window; default: 512"},
    {.name = "threads", .key = KEY_THREADS, .arg = "LIST", .doc = "Default: 1,2"},
    {.name = "runs", .key = KEY_RUNS, .arg = "N", .doc = "Timed runs of a cell; default: 11"},
    {.name = "csv", .key = KEY_CSV, .arg = "FILE", .doc = "Write the table as CSV too"},
    {.name = "peer",
     .key = KEY_PEER,
     .arg = "PROGRAM",
     .doc = "A program that runs the same geometry in between (see bench/peers)"},
    {0}};

static const struct argp_child ATTENTION_CHILDREN[] = {{&options_json_argp, 0, NULL, 0}, {0}};

static const struct argp ATTENTION_ARGP = {
    .options = ATTENTION_OPTIONS,
    .parser = parse_attention,
    .doc =
        "Times reads of one layer's KV cache, and shows their share of the roofline: the larger of "
        "bytes / bandwidth and fma / fma peak over the time, where both limits are measured on "
        "the same threads between the runs."
        "\vTimes are medians; the spread is that of the quartiles. Decode reads cycle through 512 "
        "MB of rows, so that they read from memory. A ratio is the peer's time over ours.",
    .children = ATTENTION_CHILDREN,
};

// Everything of one run: where rows of the table go.
typedef struct attention_run {
    const attention_options *options;
    roofline_buffer buffer;
    peer_process *peer;
    attention_peer peer_calls;
    FILE *csv;
    json_t *cells;
    progress bar;
    size_t done, total;
} attention_run;

static const char *storage_name(kvern_type type)
{
    return type == KVERN_BF16 ? "bf16" : type == KVERN_F16 ? "f16" : "f32";
}

static void print_head(const attention_run *run)
{
    if (run->options->common.json)
        return;
    printf("%-7s %-5s %4s %7s %9s %4s %3s %10s %15s %7s %7s %5s", "phase", "store", "dim", "heads",
           "positions", "new", "thr", "ms", "quartiles", "GB/s", "GFMA/s", "roof");
    printf(run->peer ? " %10s %6s\n" : "\n", "peer ms", "ratio");
}

static double ratio_of(const attention_result *r)
{
    return r->peer_ms > 0 ? r->peer_ms / r->ms : 0;
}

static void print_row(const attention_run *run, const attention_case *c, const attention_result *r)
{
    const double seconds = r->ms / 1e3;
    printf("%-7s %-5s %4zu %3zu/%-3zu %9lld %4lld %3zu %10.3f %7.3f-%-7.3f %7.1f %7.1f %4.0f%%",
           c->phase, storage_name(c->storage), c->head_dim, c->query_heads, c->kv_heads,
           (long long)c->positions, (long long)c->new_tokens, c->threads, r->ms, r->ms_low,
           r->ms_high, r->bytes / seconds / 1e9, r->fma / seconds / 1e9, 100 * r->share);
    if (run->peer && r->peer_ms > 0)
        printf(" %10.3f %5.2fx", r->peer_ms, ratio_of(r));
    else if (run->peer)
        printf(" %10s %6s", "-", "-");
    putchar('\n');
    fflush(stdout);
}

static void write_csv(const attention_run *run, const attention_case *c, const attention_result *r)
{
    fprintf(run->csv, "%s,%s,%zu,%zu,%zu,%lld,%lld,%zu,%.6f,%.4f,", c->phase,
            storage_name(c->storage), c->head_dim, c->query_heads, c->kv_heads,
            (long long)c->positions, (long long)c->new_tokens, c->threads, r->ms, r->share);
    if (r->peer_ms > 0)
        fprintf(run->csv, "%s,%.6f,%.4f\n", peer_name(run->peer), r->peer_ms, ratio_of(r));
    else
        fputs(",,\n", run->csv);
}

static bool add_json(attention_run *run, const attention_case *c, const attention_result *r)
{
    json_t *cell = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "phase",
        c->phase, "storage", storage_name(c->storage), "head_dim", (json_int_t)c->head_dim,
        "q_heads", (json_int_t)c->query_heads, "kv_heads", (json_int_t)c->kv_heads, "positions",
        (json_int_t)c->positions, "new_tokens", (json_int_t)c->new_tokens, "threads",
        (json_int_t)c->threads, "ms", r->ms, "ms_low", r->ms_low, "ms_high", r->ms_high,
        "roofline_share", r->share, "bytes_per_s", r->bytes / r->ms * 1e3, "fma_per_s",
        r->fma / r->ms * 1e3, "peer_ms", r->peer_ms);
    return json_array_append_new(run->cells, cell) == 0;
}

static int measure_cell(attention_run *run, const attention_case *c)
{
    attention_result r;
    progress_update(&run->bar, run->done++, run->total);
    kvern_status status = attention_measure(c, run->options->runs, &run->buffer, COLD_BYTES,
                                            run->peer ? &run->peer_calls : NULL, &r);
    progress_end(&run->bar);
    if (status)
        return report_error("%s", status == KVERN_ERR_MEMORY ? "not enough memory for this cell"
                                                             : kvern_error_detail());
    if (!run->options->common.json)
        print_row(run, c, &r);
    else if (!add_json(run, c, &r))
        return report_error("no memory for the table");
    if (run->csv)
        write_csv(run, c, &r);
    return CLI_SUCCESS;
}

static const number_list *positions_of(const attention_options *options, bool decode)
{
    static const number_list DECODE = {3, {1024, 8192, 65536}}, WINDOW = {2, {2048, 8192}};
    if (options->positions.count)
        return &options->positions;
    return decode ? &DECODE : &WINDOW;
}

// One phase: the cells of all thread counts, dims and groups.
static int measure_phase(attention_run *run, bool decode)
{
    const attention_options *o = run->options;
    const number_list *positions = positions_of(o, decode);
    const size_t cells = o->threads.count * o->head_dims.count * o->groups.count * positions->count;
    int code = CLI_SUCCESS;
    for (size_t i = 0; i < cells && code == CLI_SUCCESS; i++) {
        size_t at = i;
        attention_case c = {.phase = decode ? "decode" : "window", .storage = o->storage};
        c.positions = (int64_t)positions->value[at % positions->count];
        at /= positions->count;
        c.kv_heads = o->kv_heads;
        c.query_heads = c.kv_heads * o->groups.value[at % o->groups.count];
        at /= o->groups.count;
        c.head_dim = o->head_dims.value[at % o->head_dims.count];
        c.threads = o->threads.value[at / o->head_dims.count];
        c.new_tokens = decode ? 1 : (int64_t)o->new_tokens;
        code = measure_cell(run, &c);
    }
    return code;
}

static size_t cells_of(const attention_options *o, bool decode)
{
    return o->threads.count * o->head_dims.count * o->groups.count * positions_of(o, decode)->count;
}

static int measure_all(attention_run *run)
{
    int code = CLI_SUCCESS;
    run->bar = progress_start("measuring", "cells");
    run->total = (run->options->decode ? cells_of(run->options, true) : 0) +
                 (run->options->window ? cells_of(run->options, false) : 0);
    print_head(run);
    if (run->options->decode)
        code = measure_phase(run, true);
    if (run->options->window && code == CLI_SUCCESS)
        code = measure_phase(run, false);
    return code;
}

static int open_run(attention_run *run)
{
    const attention_options *options = run->options;
    if (options->peer && !peer_open(options->peer, &run->peer, &run->peer_calls))
        return report_error("the peer %s does not answer", options->peer);
    if (options->csv && !(run->csv = fopen(options->csv, "w")))
        return report_error("%s: %s", options->csv, strerror(errno));
    if (run->csv)
        fputs("phase,storage,head_dim,q_heads,kv_heads,positions,new_tokens,threads,ms,"
              "roofline_share,peer,peer_ms,ratio\n",
              run->csv);
    if (options->common.json && !(run->cells = json_array()))
        return report_error("no memory");
    if (!roofline_open(COLD_BYTES, &run->buffer))
        return report_error("no memory to measure the bandwidth with");
    return CLI_SUCCESS;
}

static int close_run(attention_run *run, int code)
{
    roofline_close(&run->buffer);
    peer_close(run->peer);
    const bool written = !run->csv || (fflush(run->csv) == 0 && !ferror(run->csv));
    if (run->csv && (fclose(run->csv) != 0 || !written) && code == CLI_SUCCESS)
        code = report_error("%s: %s", run->options->csv, strerror(errno));
    if (run->cells && code == CLI_SUCCESS)
        return json_print(json_pack("{s:s, s:s, s:o}", "cpu", kvern_cpu_name(kvern_cpu_features()),
                                    "peer", run->peer ? peer_name(run->peer) : "", "cells",
                                    run->cells));
    json_decref(run->cells);
    return code;
}

int bench_attention(int argc, char **argv)
{
    attention_options options = {
        .decode = true,
        .window = true,
        .storage = KVERN_BF16,
        .head_dims = {3, {64, 128, 256}},
        .groups = {4, {1, 3, 4, 8}},
        .threads = {2, {1, 2}},
        .kv_heads = 8,
        .new_tokens = 512,
        .runs = 11,
    };
    options_parse(&ATTENTION_ARGP, argc, argv, &options.common);
    attention_run run = {.options = &options};
    int code = open_run(&run);
    if (code == CLI_SUCCESS)
        code = measure_all(&run);
    return close_run(&run, code);
}
