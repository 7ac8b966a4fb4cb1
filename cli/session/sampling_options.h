// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_SAMPLING_OPTIONS_H
#define KVERN_CLI_SAMPLING_OPTIONS_H

// The options that say how answers are made and when they end, for `kvern run` and `kvern batch`.

#include "cli/session/session.h"

// The parsers' input begins with a session_options.
extern const struct argp answer_argp;   // -n, --stop, --system, --ignore-eos
extern const struct argp sampling_argp; // --temp, --top-k, ..., --seed, penalties, --logit-bias

// What holds before parsing, with a random seed, and room for the stop strings and biases of `argc`
// arguments. False: no memory, and nothing to be freed.
bool sampling_init(session_options *options, int argc);
void sampling_free(session_options *options);

// Prints the way of sampling on stderr.
void sampling_print(const sampler_options *sampling);

#endif
