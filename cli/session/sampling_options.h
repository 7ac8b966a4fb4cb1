// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_SAMPLING_OPTIONS_H
#define KVERN_CLI_SAMPLING_OPTIONS_H

// The options that say how answers are made and when they end, for `kvern run` and `kvern batch`.

#include "cli/session/session.h"

// -n, --stop, --system, --temp, --top-k, --top-p, --min-p, --seed. The parsers' input begins with a
// session_options.
extern const struct argp sampling_argp;

// What holds before parsing, with a random seed, and room for the stop strings of `argc` arguments.
// False: no memory.
bool sampling_init(session_options *options, int argc);
void sampling_free(session_options *options);

// Prints the way of sampling on stderr.
void sampling_print(const sampler_options *sampling);

#endif
