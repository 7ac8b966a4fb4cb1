// SPDX-License-Identifier: MIT
#include "cli/io/number.h"
#include "cli/options/options.h"

static void take_size(struct argp_state *state, const char *argument, cli_options *options)
{
    if (!number_parse_bytes(argument, &options->cache_bytes) || options->cache_bytes == 0) {
        options_fail(state, "--cache-size takes a number of bytes such as 512M or 2GiB, not '%s'",
                     argument);
    }
}

static error_t parse_cache(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    switch (key) {
    case OPTIONS_KEY_CACHE:
        if (!argument[0]) {
            options_fail(state, "--cache takes the name of a directory, not ''");
        }
        options->cache = argument;
        return 0;
    case OPTIONS_KEY_CACHE_SIZE:
        take_size(state, argument, options);
        return 0;
    case OPTIONS_KEY_NO_CACHE:
        options->no_cache = true;
        return 0;
    case ARGP_KEY_END:
        if (options->no_cache && options->cache) {
            options_fail(state, "--cache and --no-cache cannot be used together");
        }
        if (options->cache_bytes && !options->cache) {
            options_fail(state, "--cache-size needs --cache");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option CACHE_OPTIONS[] = {
    {.name = "cache",
     .key = OPTIONS_KEY_CACHE,
     .arg = "DIR",
     .doc = "Keep prompts and answers in this directory, which is made if it is not there: a "
            "prompt that begins as one of them is computed from there on, also by another process"},
    {.name = "cache-size",
     .key = OPTIONS_KEY_CACHE_SIZE,
     .arg = "BYTES",
     .doc = "Let the directory hold at most this much (default: 4G); what was unused for the "
            "longest goes first"},
    {.name = "no-cache",
     .key = OPTIONS_KEY_NO_CACHE,
     .doc = "Do not keep prompts and answers that have ended, not even in memory. Answers are the "
            "same either way"},
    {0}};

const struct argp options_cache_argp = {
    .options = CACHE_OPTIONS, .parser = parse_cache, .doc = "KV cache"};
