// SPDX-License-Identifier: MIT
#include "cli/io/number.h"
#include "cli/options/options.h"

#include <inttypes.h>

#define MOST_HOURS 8760
#define MOST_SECONDS 3600

static void take_size(struct argp_state *state, const char *name, const char *argument,
                      uint64_t *bytes)
{
    if (!number_parse_bytes(argument, bytes) || *bytes == 0) {
        options_fail(state, "--%s takes a number of bytes such as 512M or 2GiB, not '%s'", name,
                     argument);
    }
}

static void take_time(struct argp_state *state, const char *name, const char *argument,
                      uint64_t most, uint64_t *value)
{
    if (!number_parse(argument, most, value) || *value == 0) {
        options_fail(state, "--%s takes a number from 1 to %" PRIu64 ", not '%s'", name, most,
                     argument);
    }
}

static void check_cache(struct argp_state *state, const cli_options *options)
{
    if (options->no_cache && (options->cache || options->store)) {
        options_fail(state, "--%s and --no-cache cannot be used together",
                     options->cache ? "cache" : "store");
    }
    if (options->cache_bytes && !options->cache) {
        options_fail(state, "--cache-size needs --cache");
    }
    if ((options->store_bytes || options->store_hours || options->store_seconds) &&
        !options->store) {
        options_fail(state, "--store-%s needs --store",
                     options->store_bytes   ? "size"
                     : options->store_hours ? "hours"
                                            : "seconds");
    }
    if ((options->store_ca || options->store_cert || options->store_key) && !options->store) {
        options_fail(state, "--store-%s needs --store", options->store_ca ? "ca" : "cert");
    }
    if (!options->store_cert != !options->store_key) {
        options_fail(state, "--store-cert and --store-key go together");
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
        take_size(state, "cache-size", argument, &options->cache_bytes);
        return 0;
    case OPTIONS_KEY_NO_CACHE:
        options->no_cache = true;
        return 0;
    case OPTIONS_KEY_STORE:
        options->store = argument;
        return 0;
    case OPTIONS_KEY_STORE_SIZE:
        take_size(state, "store-size", argument, &options->store_bytes);
        return 0;
    case OPTIONS_KEY_STORE_HOURS:
        take_time(state, "store-hours", argument, MOST_HOURS, &options->store_hours);
        return 0;
    case OPTIONS_KEY_STORE_SECONDS:
        take_time(state, "store-seconds", argument, MOST_SECONDS, &options->store_seconds);
        return 0;
    case OPTIONS_KEY_STORE_CA:
        options->store_ca = argument;
        return 0;
    case OPTIONS_KEY_STORE_CERT:
        options->store_cert = argument;
        return 0;
    case OPTIONS_KEY_STORE_KEY:
        options->store_key = argument;
        return 0;
    case ARGP_KEY_END:
        check_cache(state, options);
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
    {.name = "store",
     .key = OPTIONS_KEY_STORE,
     .arg = "URL",
     .doc = "Share prompts and answers with other machines at this Redis server, "
            "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// with TLS, or unix:PATH. A "
            "password may be in the variable KVERN_STORE_PASSWORD instead"},
    {.name = "store-size",
     .key = OPTIONS_KEY_STORE_SIZE,
     .arg = "BYTES",
     .doc = "Let the server hold at most this much of all that write there with such a limit "
            "(default: as much as it takes)"},
    {.name = "store-hours",
     .key = OPTIONS_KEY_STORE_HOURS,
     .arg = "N",
     .doc = "Let the server forget what nobody used for so long (default: 24)"},
    {.name = "store-seconds",
     .key = OPTIONS_KEY_STORE_SECONDS,
     .arg = "N",
     .doc = "Let a prompt wait so long for what the server has of it (default: 5)"},
    {.name = "store-ca",
     .key = OPTIONS_KEY_STORE_CA,
     .arg = "FILE",
     .doc = "Trust the server's certificate by those in this file (default: those that the system "
            "trusts)"},
    {.name = "store-cert",
     .key = OPTIONS_KEY_STORE_CERT,
     .arg = "FILE",
     .doc = "Show the server this certificate"},
    {.name = "store-key",
     .key = OPTIONS_KEY_STORE_KEY,
     .arg = "FILE",
     .doc = "The certificate's key"},
    {.name = "no-cache",
     .key = OPTIONS_KEY_NO_CACHE,
     .doc = "Do not keep prompts and answers that have ended, not even in memory. Answers are the "
            "same either way"},
    {0}};

const struct argp options_cache_argp = {
    .options = CACHE_OPTIONS, .parser = parse_cache, .doc = "KV cache"};
