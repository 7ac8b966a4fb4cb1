// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_MEMORY_FIT_H
#define KVERN_CLI_MEMORY_FIT_H

// Whether the KV cache of a context fits the budget, with the scratch of reading it. The library
// answers by arithmetic (kvern_composition_plan_bytes): nothing is reserved, however long the
// context is.

#include "cli/options/options.h"

#include "engine/model/model.h"

// Bytes that one sequence of `tokens` tokens takes in the storage that the options ask for, with
// its context and composition, as a budget counts them.
KVERN_CHECK kvern_status memory_fit_bytes(const cli_options *options, const model_facts *facts,
                                          size_t tokens, uint64_t *bytes, engine_error *error);

// The longest context of up to `tokens` tokens that fits the options' budget; 0 for none.
KVERN_CHECK kvern_status memory_fit_longest(const cli_options *options, const model_facts *facts,
                                            size_t tokens, size_t *longest, engine_error *error);

#endif
