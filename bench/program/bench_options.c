// SPDX-License-Identifier: MIT
#include "bench/program/bench_options.h"

#include "cli/io/report.h"
#include "cli/options/storage_options.h"

#include <stdio.h>
#include <string.h>

enum {
    KEY_RUNS = OPTIONS_KEY_COMMAND + 64,
    KEY_PEER,
    KEY_PEER_STORAGE,
    KEY_STORAGE,
    KEY_HEAD_DIM,
    KEY_GROUP,
    KEY_KV_HEADS,
    KEY_POSITIONS
};

#define MOST_RUNS 10000
#define MOST_THREADS 1024

void bench_names(const struct argp_state *state, const char *name, const char *text,
                 name_list *list)
{
    list->count = 0;
    while (true) {
        const size_t length = strcspn(text, ",");
        if (length == 0 || length >= BENCH_NAME_BYTES || list->count == BENCH_MOST_NAMES ||
            strcspn(text, " \t\r\n") < length)
            options_fail(state, "%s takes at most %d names, separated by commas", name,
                         BENCH_MOST_NAMES);
        snprintf(list->name[list->count++], BENCH_NAME_BYTES, "%.*s", (int)length, text);
        if (!text[length])
            return;
        text += length + 1;
    }
}

size_t bench_index(size_t *number, size_t count)
{
    const size_t index = *number % count;
    *number /= count;
    return index;
}

static error_t parse_repeat(int key, char *argument, struct argp_state *state)
{
    bench_options *options = state->input;
    switch (key) {
    case 't':
        options_list(state, "-t", argument, 1, MOST_THREADS, &options->threads);
        return 0;
    case KEY_RUNS:
        options->runs = options_number(state, "--runs", argument, 1, MOST_RUNS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option REPEAT_OPTIONS[] = {
    {.name = "threads", .key = 't', .arg = "LIST", .doc = "Numbers of threads; default: 1,2"},
    {.name = "runs",
     .key = KEY_RUNS,
     .arg = "N",
     .doc = "Timed runs of a cell; default: see below"},
    {0}};

const struct argp bench_repeat_argp = {.options = REPEAT_OPTIONS, .parser = parse_repeat};

// What runs on one number of threads takes no list of them.
static error_t parse_repeat_once(int key, char *argument, struct argp_state *state)
{
    bench_options *options = state->input;
    if (key != 't')
        return parse_repeat(key, argument, state);
    options->threads = (number_list){1, {options_number(state, "-t", argument, 1, MOST_THREADS)}};
    return 0;
}

static const struct argp_option ONCE_OPTIONS[] = {
    {.name = "threads", .key = 't', .arg = "N", .doc = "Work on N threads; default: see below"},
    {.name = "runs", .key = KEY_RUNS, .arg = "N", .doc = "Timed runs; default: see below"},
    {0}};

const struct argp bench_repeat_once_argp = {.options = ONCE_OPTIONS, .parser = parse_repeat_once};

static error_t parse_peer(int key, char *argument, struct argp_state *state)
{
    bench_options *options = state->input;
    switch (key) {
    case KEY_PEER:
        options->peer = argument;
        return 0;
    case KEY_PEER_STORAGE:
        bench_names(state, "--peer-storage", argument, &options->peer_storages);
        return 0;
    case ARGP_KEY_END:
        if (options->peer_storages.count && !options->peer)
            options_fail(state, "--peer-storage needs --peer");
        if (!options->peer_storages.count)
            bench_names(state, "--peer-storage", "f16", &options->peer_storages);
        if (!options->peer)
            options->peer_storages.count = 0;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option PEER_OPTIONS[] = {
    {.name = "peer",
     .key = KEY_PEER,
     .arg = "PROGRAM",
     .doc = "A program that does the same in between (docs/PERF.md)"},
    {.name = "peer-storage",
     .key = KEY_PEER_STORAGE,
     .arg = "LIST",
     .doc = "What the peer stores, each measured in the same run; default: f16"},
    {0}};

const struct argp bench_peer_argp = {.options = PEER_OPTIONS, .parser = parse_peer};

static void parse_storages(const struct argp_state *state, const char *text, bench_grid *grid)
{
    bench_names(state, "--storage", text, &grid->storages);
    for (size_t i = 0; i < grid->storages.count; i++)
        if (kvern_codec_parse(grid->storages.name[i], 64, &grid->codecs[i]) != KVERN_OK)
            options_fail(state, "--storage knows " STORAGE_CODECS ", not '%s'",
                         grid->storages.name[i]);
}

void bench_check_head_dims(const struct argp_state *state, const bench_grid *grid)
{
    for (size_t i = 0; i < grid->head_dims.count; i++)
        if (grid->head_dims.value[i] > KVERN_MAX_HEAD_DIM)
            options_fail(state, "--head-dim takes at most %d where these are no latents, not %llu",
                         KVERN_MAX_HEAD_DIM, (unsigned long long)grid->head_dims.value[i]);
}

static error_t parse_grid(int key, char *argument, struct argp_state *state)
{
    bench_grid *grid = state->input;
    switch (key) {
    case KEY_STORAGE:
        parse_storages(state, argument, grid);
        return 0;
    case KEY_HEAD_DIM:
        options_list(state, "--head-dim", argument, 8, KVERN_MAX_LATENT_DIM, &grid->head_dims);
        return 0;
    case KEY_GROUP:
        options_list(state, "--group", argument, 1, 256, &grid->groups);
        return 0;
    case KEY_KV_HEADS:
        grid->kv_heads = options_number(state, "--kv-heads", argument, 1, 256);
        return 0;
    case KEY_POSITIONS:
        options_list(state, "--positions", argument, 1, 1 << 20, &grid->positions);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option GRID_OPTIONS[] = {
    {.name = "storage",
     .key = KEY_STORAGE,
     .arg = "LIST",
     .doc = "What K and V are stored as; default: bf16. There are " STORAGE_CODECS},
    {.name = "head-dim", .key = KEY_HEAD_DIM, .arg = "LIST", .doc = "Default: see below"},
    {.name = "group",
     .key = KEY_GROUP,
     .arg = "LIST",
     .doc = "Query heads per KV head; default: see below"},
    {.name = "kv-heads", .key = KEY_KV_HEADS, .arg = "N", .doc = "Default: 8"},
    {.name = "positions",
     .key = KEY_POSITIONS,
     .arg = "LIST",
     .doc = "Stored before the new tokens; default: see below"},
    {0}};

const struct argp bench_grid_argp = {.options = GRID_OPTIONS, .parser = parse_grid};

int bench_start_peers(const bench_options *options, peer_process *peers[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (peer_start(options->peer, peers[i]))
            continue;
        while (i-- > 0)
            peer_stop(peers[i]);
        return report_error("the peer %s does not answer", options->peer);
    }
    return CLI_SUCCESS;
}
