// SPDX-License-Identifier: MIT
#include "cli/options/options.h"

static error_t parse_cache(int key, char *argument, struct argp_state *state)
{
    cli_options *options = state->input;
    (void)argument;
    if (key != OPTIONS_KEY_NO_CACHE) {
        return ARGP_ERR_UNKNOWN;
    }
    options->no_cache = true;
    return 0;
}

static const struct argp_option CACHE_OPTIONS[] = {
    {.name = "no-cache",
     .key = OPTIONS_KEY_NO_CACHE,
     .doc = "Do not keep prompts and answers that have ended: a prompt that begins as one of them "
            "is then computed from its beginning. Answers are the same either way"},
    {0}};

const struct argp options_cache_argp = {
    .options = CACHE_OPTIONS, .parser = parse_cache, .doc = "KV cache"};
