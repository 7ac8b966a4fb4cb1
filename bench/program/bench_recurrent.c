// SPDX-License-Identifier: MIT
// kvern bench recurrent: recurrent layers, beside what the machine can do at most and plain loops.

#include "bench/measure/recurrent_timing.h"
#include "bench/program/bench.h"
#include "bench/program/bench_peers.h"
#include "cli/io/json.h"
#include "cli/io/progress.h"
#include "cli/io/report.h"

#include <stdio.h>
#include <string.h>

enum {
    KEY_KIND = OPTIONS_KEY_COMMAND,
    KEY_PHASE,
    KEY_NEW,
    KEY_KEY_HEADS,
    KEY_VALUE_HEADS,
    KEY_HEAD_DIM
};

// Memory that the bandwidth is read from, and that the states of decodes take: more than any cache
// that one machine shares between few cores.
#define COLD_BYTES ((size_t)512 << 20)
#define TAPS 4
#define ROUND_TOKENS 4

typedef struct recurrent_options {
    bench_options bench; // first, as parsers want it
    name_list kinds;
    number_list new_tokens;
    bool decode, window, rollback;
    uint64_t key_heads, value_heads, head_dim;
} recurrent_options;

static const char *const KINDS[] = {"delta", "channels", "ssd"};
#define KIND_COUNT (sizeof KINDS / sizeof KINDS[0])

static bool is_kind(const char *name)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (strcmp(name, KINDS[i]) == 0)
            return true;
    return false;
}

static void parse_kinds(const struct argp_state *state, const char *text,
                        recurrent_options *options)
{
    bench_names(state, "--kind", text, &options->kinds);
    for (size_t i = 0; i < options->kinds.count; i++)
        if (!is_kind(options->kinds.name[i]))
            options_fail(state, "--kind knows delta, channels and ssd, not '%s'",
                         options->kinds.name[i]);
}

static void parse_phase(const struct argp_state *state, const char *text,
                        recurrent_options *options)
{
    const bool all = strcmp(text, "all") == 0;
    options->decode = all || strcmp(text, "decode") == 0;
    options->window = all || strcmp(text, "window") == 0;
    options->rollback = all || strcmp(text, "rollback") == 0;
    if (!options->decode && !options->window && !options->rollback)
        options_fail(state, "--phase is decode, window, rollback or all, not '%s'", text);
}

static error_t parse_recurrent(int key, char *argument, struct argp_state *state)
{
    recurrent_options *options = state->input;
    switch (key) {
    case KEY_KIND:
        parse_kinds(state, argument, options);
        return 0;
    case KEY_PHASE:
        parse_phase(state, argument, options);
        return 0;
    case KEY_NEW:
        options_list(state, "--new", argument, 2, 1 << 16, &options->new_tokens);
        return 0;
    case KEY_KEY_HEADS:
        options->key_heads = options_number(state, "--key-heads", argument, 1, 256);
        return 0;
    case KEY_VALUE_HEADS:
        options->value_heads = options_number(state, "--value-heads", argument, 1, 256);
        return 0;
    case KEY_HEAD_DIM:
        options->head_dim = options_number(state, "--head-dim", argument, 8, 256);
        return 0;
    case ARGP_KEY_END:
        if (options->value_heads % options->key_heads)
            options_fail(state, "--value-heads is no multiple of --key-heads");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option RECURRENT_OPTIONS[] = {
    {.name = "kind",
     .key = KEY_KIND,
     .arg = "LIST",
     .doc = "delta (Gated DeltaNet), channels (the same with a decay per key channel), ssd "
            "(Mamba2); default: all"},
    {.name = "phase",
     .key = KEY_PHASE,
     .arg = "NAME",
     .doc = "decode, window, rollback or all (default)"},
    {.name = "new", .key = KEY_NEW, .arg = "LIST", .doc = "Tokens of a window; default: 256"},
    {.name = "key-heads", .key = KEY_KEY_HEADS, .arg = "N", .doc = "Or groups; default: 16"},
    {.name = "value-heads", .key = KEY_VALUE_HEADS, .arg = "N", .doc = "Default: 32"},
    {.name = "head-dim",
     .key = KEY_HEAD_DIM,
     .arg = "N",
     .doc = "Of keys and values; default: 128"},
    {0}};

static const struct argp_child RECURRENT_CHILDREN[] = {
    {.argp = &bench_repeat_argp}, {.argp = &bench_peer_argp}, {.argp = &options_json_argp}, {0}};

static const struct argp RECURRENT_ARGP = {
    .options = RECURRENT_OPTIONS,
    .parser = parse_recurrent,
    .children = RECURRENT_CHILDREN,
    .doc =
        "Times a recurrent layer, from the inputs of its convolution to its results, and shows its "
        "share of the roofline: the larger of bytes / bandwidth and fma / fma peak over the time, "
        "where both limits are measured on the same threads between the runs. Bytes are those of "
        "the matrices, read once and written once, and so are those of the bandwidth: a loop that "
        "changes a buffer in place. A multiply-add is counted for each thing that a "
        "token does to each of their numbers: the decay, the sum over the key (not in ssd), the "
        "outer product, the sum over the query. What convolution, norms and gates cost is in the "
        "time, and in nothing that is counted."
        "\vTimes are medians of --runs runs (default: 11); the spread is that of the quartiles. "
        "Decodes cycle through 512 MB of states, so that they come from memory. The ratio is the "
        "time of plain loops, whose results must be ours, over our time. A rollback takes back the "
        "last token of a round of 4.",
};

typedef struct recurrent_run {
    const recurrent_options *options;
    roofline_buffer buffer;
    bench_peers peers;
    json_t *cells;
    progress bar;
    size_t done, total;
} recurrent_run;

static void print_head(const recurrent_run *run)
{
    if (run->options->bench.common.json)
        return;
    printf("%-7s %-8s %7s %4s %4s %3s %10s %15s %7s %7s %5s %10s %7s", "phase", "kind", "heads",
           "dim", "new", "thr", "ms", "quartiles", "GB/s", "GFMA/s", "roof", "loops ms", "ratio");
    bench_peers_print_head(&run->peers);
}

static const char *phase_of(const recurrent_case *c)
{
    return c->new_tokens > 1 ? "window" : "decode";
}

static void print_row(const recurrent_case *c, const recurrent_result *r, const timed_peer *peer)
{
    const double seconds = r->times.median;
    printf("%-7s %-8s %3zu/%-3zu %4zu %4lld %3zu %10.3f %7.3f-%-7.3f %7.1f %7.1f %4.0f%% %10.3f "
           "%6.2fx",
           phase_of(c), c->kind, c->layer.value_heads, c->layer.key_heads, c->layer.k_dim,
           (long long)c->new_tokens, c->threads, 1e3 * seconds, 1e3 * r->times.low,
           1e3 * r->times.high, r->bytes / seconds / 1e9, r->fma / seconds / 1e9, 100 * r->share,
           1e3 * r->naive.median, r->naive.median / seconds);
    bench_peers_print(peer, seconds);
}

static bool add_json(recurrent_run *run, const recurrent_case *c, const recurrent_result *r)
{
    json_t *cell = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:o}",
        "phase", phase_of(c), "kind", c->kind, "key_heads", (json_int_t)c->layer.key_heads,
        "value_heads", (json_int_t)c->layer.value_heads, "head_dim", (json_int_t)c->layer.k_dim,
        "new_tokens", (json_int_t)c->new_tokens, "threads", (json_int_t)c->threads, "ms",
        1e3 * r->times.median, "ms_low", 1e3 * r->times.low, "ms_high", 1e3 * r->times.high,
        "roofline_share", r->share, "bytes", r->bytes, "fma", r->fma, "limit_bytes_per_s",
        r->limits.bytes_per_s, "limit_fma_per_s", r->limits.fma_per_s, "loops_ms",
        1e3 * r->naive.median, "difference", r->difference, "peers", bench_peers_json(&run->peers));
    return json_array_append_new(run->cells, cell) == 0;
}

static int measure_cell(recurrent_run *run, const recurrent_case *c)
{
    recurrent_result r;
    progress_update(&run->bar, run->done++, run->total);
    const measure_fault fault = recurrent_measure(c, run->options->bench.runs, &run->buffer,
                                                  COLD_BYTES, run->peers.of, run->peers.count, &r);
    progress_end(&run->bar);
    if (fault)
        return bench_peers_report(&run->options->bench, &run->peers, fault);
    if (!(r.difference <= RECURRENT_MOST_DIFFERENCE))
        return report_error("results of plain loops are %.3g away from ours", r.difference);
    const bool json = run->options->bench.common.json;
    for (size_t p = 0; !json && (p == 0 || p < run->peers.count); p++)
        print_row(c, &r, run->peers.count ? &run->peers.of[p] : NULL);
    if (json && !add_json(run, c, &r))
        return report_error("no memory for the table");
    return CLI_SUCCESS;
}

static double again_of(const rollback_result *r)
{
    return r->again.median + r->copy.median;
}

// A round whose last token is taken back, beside its tokens once more and a copy of the matrices.
static int measure_rollback(recurrent_run *run, const recurrent_case *c)
{
    rollback_result r;
    progress_update(&run->bar, run->done++, run->total);
    const kvern_status status = recurrent_measure_rollback(c, run->options->bench.runs, &r);
    progress_end(&run->bar);
    if (status)
        return report_error("%s", kvern_error_detail());
    if (!run->options->bench.common.json) {
        printf("rollback %s: a round of %lld tokens, %zu thr, %.3f ms, %.3f-%.3f; its tokens again "
               "%.3f ms and a copy %.3f ms: %.0f%% of that\n",
               c->kind, (long long)c->new_tokens, c->threads, 1e3 * r.rollback.median,
               1e3 * r.rollback.low, 1e3 * r.rollback.high, 1e3 * r.again.median,
               1e3 * r.copy.median, 100 * r.rollback.median / again_of(&r));
        return CLI_SUCCESS;
    }
    json_t *cell = json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f}", "phase", "rollback", "kind",
                             c->kind, "new_tokens", (json_int_t)c->new_tokens, "threads",
                             (json_int_t)c->threads, "ms", 1e3 * r.rollback.median, "again_ms",
                             1e3 * r.again.median, "copy_ms", 1e3 * r.copy.median);
    return json_array_append_new(run->cells, cell) ? report_error("no memory for the table")
                                                   : CLI_SUCCESS;
}

static kvern_layer layer_of(const recurrent_options *o, const char *kind)
{
    if (strcmp(kind, "ssd") == 0)
        return kvern_layer_ssd(o->key_heads, o->value_heads, o->head_dim, o->head_dim, TAPS);
    kvern_layer layer =
        kvern_layer_delta(o->key_heads, o->value_heads, o->head_dim, o->head_dim, TAPS);
    if (strcmp(kind, "channels") == 0)
        layer.recurrence = KVERN_RECURRENCE_DELTA_CHANNELS;
    return layer;
}

static int measure_all(recurrent_run *run)
{
    const recurrent_options *o = run->options;
    const size_t windows = o->window ? o->new_tokens.count : 0, phases = windows + o->decode;
    int code = CLI_SUCCESS;
    run->total = o->bench.threads.count * o->kinds.count * phases;
    run->bar = progress_start("measuring", "cells");
    if (phases)
        print_head(run);
    for (size_t i = 0; i < run->total && code == CLI_SUCCESS; i++) {
        size_t at = i;
        const size_t phase = bench_index(&at, phases);
        const char *kind = o->kinds.name[bench_index(&at, o->kinds.count)];
        const size_t window = phase - o->decode; // behind the decode, where there is one
        const recurrent_case c = {
            .kind = kind,
            .layer = layer_of(o, kind),
            .new_tokens = o->decode && phase == 0 ? 1 : (int64_t)o->new_tokens.value[window],
            .threads = o->bench.threads.value[at],
        };
        code = measure_cell(run, &c);
    }
    return code;
}

// Behind the table: rounds of each kind.
static int measure_rollbacks(recurrent_run *run)
{
    const recurrent_options *o = run->options;
    int code = CLI_SUCCESS;
    run->done = 0;
    run->total = o->bench.threads.count * o->kinds.count;
    for (size_t i = 0; i < run->total && code == CLI_SUCCESS; i++) {
        size_t at = i;
        const char *kind = o->kinds.name[bench_index(&at, o->kinds.count)];
        const recurrent_case c = {.kind = kind,
                                  .layer = layer_of(o, kind),
                                  .new_tokens = ROUND_TOKENS,
                                  .threads = o->bench.threads.value[at]};
        code = measure_rollback(run, &c);
    }
    return code;
}

int bench_recurrent(int argc, char **argv)
{
    recurrent_options options = {
        .bench = {.threads = {2, {1, 2}}, .runs = 11},
        .kinds = {3, {"delta", "channels", "ssd"}},
        .new_tokens = {1, {256}},
        .decode = true,
        .window = true,
        .rollback = true,
        .key_heads = 16,
        .value_heads = 32,
        .head_dim = 128,
    };
    options_parse(&RECURRENT_ARGP, argc, argv, &options.bench.common);
    recurrent_run run = {.options = &options};
    if (options.bench.common.json && !(run.cells = json_array()))
        return report_error("no memory");
    if (!roofline_open(COLD_BYTES, &run.buffer))
        return report_error("no memory to measure the bandwidth with");
    int code = bench_peers_start(&options.bench, &run.peers);
    if (code == CLI_SUCCESS)
        code = measure_all(&run);
    if (code == CLI_SUCCESS && options.rollback)
        code = measure_rollbacks(&run);
    roofline_close(&run.buffer);
    if (run.cells && code == CLI_SUCCESS)
        code = json_print(json_pack("{s:s, s:s, s:o}", "cpu", kvern_cpu_name(kvern_cpu_features()),
                                    "peer", bench_peers_name(&run.peers), "cells", run.cells));
    else
        json_decref(run.cells);
    bench_peers_stop(&run.peers);
    return code;
}
