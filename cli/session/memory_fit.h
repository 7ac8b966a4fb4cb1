// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_MEMORY_FIT_H
#define KVERN_CLI_MEMORY_FIT_H

// Whether the KV cache of a context fits the budget, with the scratch of reading it. It is the
// library that answers: room is reserved and given back, and no page of it is touched. What cannot
// fit by the size of its pages is not reserved at all.

#include "cli/options/options.h"

#include "engine/model/model.h"

// Tries the room of one sequence of `tokens` tokens, in the storage that the options ask for: at
// its end, and in bf16 up to a start. KVERN_ERR_BUDGET when it does not fit the options' budget.
KVERN_CHECK kvern_status memory_fit_try(const cli_options *options, const model_facts *facts,
                                        size_t tokens, engine_error *error);

// The same in a context, which keeps the scratch: what follows in it takes none beyond that.
KVERN_CHECK kvern_status memory_fit_take(const cli_options *options, const model_facts *facts,
                                         kvern_context *context, size_t tokens,
                                         engine_error *error);

// The longest context below `tokens`, which does not fit, that does; 0 for none.
size_t memory_fit_longest(const cli_options *options, const model_facts *facts, size_t tokens);

// The bytes that the library takes for a context, measured where there is no budget; of one above 1
// GiB computed from shorter ones. 0 when that is impossible.
uint64_t memory_fit_bytes(const cli_options *options, const model_facts *facts, size_t tokens);

#endif
