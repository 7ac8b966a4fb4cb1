// SPDX-License-Identifier: MIT
#include "cli/bench_options.h"

#include "cli/report.h"
#include "cli/storage.h"

#include <stdio.h>
#include <string.h>

enum { KEY_RUNS = OPTIONS_KEY_COMMAND + 64, KEY_PEER, KEY_PEER_STORAGE };

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

void bench_storages(const struct argp_state *state, const char *name, const char *text,
                    name_list *list, kvern_codec codecs[BENCH_MOST_NAMES])
{
    bench_names(state, name, text, list);
    for (size_t i = 0; i < list->count; i++)
        if (kvern_codec_parse(list->name[i], 64, &codecs[i]) != KVERN_OK)
            options_fail(state, "%s knows " STORAGE_CODECS ", not '%s'", name, list->name[i]);
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
        options_once(state, key, "-t");
        options_list(state, "-t", argument, 1, MOST_THREADS, &options->threads);
        return 0;
    case KEY_RUNS:
        options_once(state, key, "--runs");
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

static const struct argp_option ONCE_OPTIONS[] = {
    {.name = "threads", .key = 't', .arg = "N", .doc = "Work on N threads; default: see below"},
    {.name = "runs", .key = KEY_RUNS, .arg = "N", .doc = "Timed runs; default: see below"},
    {0}};

const struct argp bench_repeat_once_argp = {.options = ONCE_OPTIONS, .parser = parse_repeat};

static error_t parse_peer(int key, char *argument, struct argp_state *state)
{
    bench_options *options = state->input;
    switch (key) {
    case KEY_PEER:
        options_once(state, key, "--peer");
        options->peer = argument;
        return 0;
    case KEY_PEER_STORAGE:
        options_once(state, key, "--peer-storage");
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
